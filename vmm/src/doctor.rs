//! Is this host fit to run VMs? The same checks that starting one makes, as a list for people.

use std::fmt;
use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::builder::MEMORY_MIB_MIN;
use crate::kvm::{self, DEVICE};
use crate::memory::MIB;
use crate::probe;
use crate::remedy;

/// Descriptors one VM takes: KVM, VM, one vCPU, its eventfds, timer and epoll.
const DESCRIPTORS_PER_VM: u64 = 16;
/// Host memory beside which even small VMs are no fun, in MiB.
const MEMORY_COMFORTABLE_MIB: u64 = 512;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As it should be.
    Good,
    /// VMs run, but not well or not many.
    Warning,
    /// No VM will run.
    Bad,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it went.
    pub outcome: Outcome,
    /// What was found, and what to do if that is not good.
    pub detail: String,
}

impl Check {
    fn new(name: &'static str, outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            name,
            outcome,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.outcome {
            Outcome::Good => "ok     ",
            Outcome::Warning => "warning",
            Outcome::Bad => "FAILED ",
        };
        write!(f, "{mark} {}: {}", self.name, self.detail)
    }
}

/// Makes all checks. Creates and destroys one VM; takes a few milliseconds on hardware, and a few
/// seconds at most.
#[must_use]
pub fn examine() -> Vec<Check> {
    vec![
        kvm_device(),
        guests_run(),
        descriptors(),
        host_memory(),
        overcommit(),
    ]
}

/// Whether a VM can be started: no check is [`Outcome::Bad`].
#[must_use]
pub fn is_fit(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.outcome != Outcome::Bad)
}

fn kvm_device() -> Check {
    const NAME: &str = "KVM";
    match kvm::open() {
        Ok(kvm) => Check::new(
            NAME,
            Outcome::Good,
            format!(
                "{DEVICE}, API version {}, up to {} vCPUs per VM",
                kvm.get_api_version(),
                kvm.get_max_vcpus()
            ),
        ),
        Err(e) => Check::new(NAME, Outcome::Bad, e.to_string()),
    }
}

fn guests_run() -> Check {
    const NAME: &str = "guests";
    match probe::probe() {
        Ok(()) => Check::new(
            NAME,
            Outcome::Good,
            "this KVM runs unmodified 64-bit guests",
        ),
        Err(e) => Check::new(NAME, Outcome::Bad, e.to_string()),
    }
}

fn descriptors() -> Check {
    const NAME: &str = "descriptors";
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return Check::new(NAME, Outcome::Good, "no limit");
    };
    let open = fs::read_dir("/proc/self/fd").map_or(0, |dir| dir.count() as u64);
    let vms = limit.saturating_sub(open) / DESCRIPTORS_PER_VM;
    let detail = format!("a limit of {limit}, room for about {vms} VMs in this process");
    match vms {
        0 => Check::new(
            NAME,
            Outcome::Bad,
            format!("{detail}; {}", remedy::DESCRIPTORS),
        ),
        1..10 => Check::new(
            NAME,
            Outcome::Warning,
            format!("{detail}; for more {}", remedy::DESCRIPTORS),
        ),
        _ => Check::new(NAME, Outcome::Good, detail),
    }
}

fn host_memory() -> Check {
    const NAME: &str = "memory";
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let Some(mib) = available_mib(&meminfo) else {
        return Check::new(NAME, Outcome::Warning, "/proc/meminfo does not say");
    };
    let detail = format!("{mib} MiB available");
    if mib < u64::from(MEMORY_MIB_MIN) {
        Check::new(
            NAME,
            Outcome::Bad,
            format!("{detail}: not enough for the smallest guest ({MEMORY_MIB_MIN} MiB)"),
        )
    } else if mib < MEMORY_COMFORTABLE_MIB {
        Check::new(
            NAME,
            Outcome::Warning,
            format!("{detail}: guests that use theirs may be killed by the host"),
        )
    } else {
        Check::new(NAME, Outcome::Good, detail)
    }
}

fn available_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib / (MIB / 1024))
}

fn overcommit() -> Check {
    const NAME: &str = "overcommit";
    const NEVER: &str = "2";
    let policy = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if policy.trim() == NEVER {
        Check::new(
            NAME,
            Outcome::Warning,
            "vm.overcommit_memory is 2: each guest's memory counts in full from its start; set it \
             to 0 or 1 to pay only for what is used",
        )
    } else {
        Check::new(NAME, Outcome::Good, "guests pay only for memory they use")
    }
}

#[cfg(test)]
#[path = "doctor_test.rs"]
mod tests;
