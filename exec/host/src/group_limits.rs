//! Limits of an execution's control group: of one request, and of a VM for all that say nothing.

use forebay_exec_proto::Resources;

/// What the control group of an execution may take: all its processes together. `None` is no
/// limit of its own.
///
/// The fields are those of [`Exec`](crate::Exec) that have their names, where units and bounds
/// stand. Whoever makes a [`Hub`](crate::Hub) puts them into its configuration to give them to
/// every request that does not set its own.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GroupLimits {
    /// See [`Exec::memory_limit`](crate::Exec::memory_limit).
    pub memory_limit: Option<u64>,
    /// See [`Exec::process_limit`](crate::Exec::process_limit).
    pub process_limit: Option<u32>,
    /// See [`Exec::cpu_weight`](crate::Exec::cpu_weight).
    pub cpu_weight: Option<u16>,
    /// See [`Exec::cpu_limit`](crate::Exec::cpu_limit).
    pub cpu_limit: Option<f64>,
}

/// A limit that cannot work: which field, its value, and what would do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, it must be {bound}")]
#[non_exhaustive]
pub struct GroupLimitError {
    /// The field's name in [`GroupLimits`].
    pub field: &'static str,
    /// The refused value.
    pub value: String,
    /// What is possible, such as `1 to 10000`.
    pub bound: String,
}

impl GroupLimits {
    /// Least memory, in bytes: below, no program gets as far as its first instruction.
    pub const MEMORY_MIN: u64 = 1 << 20;
    /// Most processes: as many as Linux has ids for.
    pub const PROCESSES_MAX: u32 = 1 << 22;
    /// Largest CPU weight.
    pub const CPU_WEIGHT_MAX: u16 = 10_000;
    /// Least CPU time, in CPUs: a millisecond in each tenth of a second.
    pub const CPU_MIN: f64 = 0.01;
    /// Most CPU time, in CPUs: more than a guest can have.
    pub const CPU_MAX: f64 = 1024.0;

    /// The same in wire form.
    ///
    /// # Errors
    /// The first that cannot work.
    pub fn check(&self) -> Result<Resources, GroupLimitError> {
        if let Some(bytes) = self.memory_limit
            && bytes < Self::MEMORY_MIN
        {
            let bound = format!("at least {} bytes", Self::MEMORY_MIN);
            return Err(refused("memory_limit", bytes, bound));
        }
        if let Some(most) = self.process_limit
            && !(1..=Self::PROCESSES_MAX).contains(&most)
        {
            let bound = format!("1 to {}", Self::PROCESSES_MAX);
            return Err(refused("process_limit", most, bound));
        }
        if let Some(weight) = self.cpu_weight
            && !(1..=Self::CPU_WEIGHT_MAX).contains(&weight)
        {
            let bound = format!("1 to {}", Self::CPU_WEIGHT_MAX);
            return Err(refused("cpu_weight", weight, bound));
        }
        if let Some(cpus) = self.cpu_limit
            && !(Self::CPU_MIN..=Self::CPU_MAX).contains(&cpus)
        {
            let bound = format!("{} to {} CPUs", Self::CPU_MIN, Self::CPU_MAX);
            return Err(refused("cpu_limit", cpus, bound));
        }
        Ok(Resources {
            memory: self.memory_limit,
            pids: self.process_limit,
            cpu_weight: self.cpu_weight,
            cpu_quota: self.cpu_limit.map(quota),
        })
    }
}

/// Microseconds in each 100 000, of CPUs within the bounds.
fn quota(cpus: f64) -> u32 {
    // The cast saturates, and within the bounds it has nothing to cut but the fraction.
    (cpus * 100_000.0).round() as u32
}

fn refused(field: &'static str, value: impl ToString, bound: String) -> GroupLimitError {
    GroupLimitError {
        field,
        value: value.to_string(),
        bound,
    }
}

#[cfg(test)]
#[path = "group_limits_test.rs"]
mod tests;
