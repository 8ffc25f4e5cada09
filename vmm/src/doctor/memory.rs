//! How much memory guests can have, by each of the measures that may be in the way.
//!
//! A guest's memory costs the host nothing until the guest uses it, so a measure warns if a guest of
//! the size in question could not use all of its own, and fails if the smallest could not.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::control_group::ControlGroups;
use super::{Check, Outcome};
use crate::builder::MEMORY_MIB_MIN;
use crate::memory::MIB;
use crate::remedy;

/// What the host has available.
pub(super) fn host(meminfo: &str, guest_mib: u32) -> Check {
    const NAME: &str = "memory";
    let Some(free) = field_mib(meminfo, "MemAvailable") else {
        return Check::new(NAME, Outcome::Warning, "/proc/meminfo does not say");
    };
    let found = format!("{free} MiB available");
    room(NAME, free, guest_mib, found, remedy::MEMORY)
}

/// What the control groups around this process leave it.
pub(super) fn control_group(groups: &ControlGroups, guest_mib: u32) -> Check {
    const NAME: &str = "control group";
    let Some(limit) = groups.tightest_of_memory() else {
        return Check::new(NAME, Outcome::Good, "no limit on memory");
    };
    let free = limit.free() / MIB;
    let found = format!("{free} of {} MiB left by {}", limit.max / MIB, limit.file);
    room(NAME, free, guest_mib, found, remedy::MEMORY_GROUP)
}

/// What `RLIMIT_AS` leaves this process.
pub(super) fn address_space(guest_mib: u32) -> Check {
    const NAME: &str = "address space";
    let Some(limit) = getrlimit(Resource::As).current else {
        return Check::new(NAME, Outcome::Good, "no limit");
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mapped = field_mib(&status, "VmSize").unwrap_or(0);
    let free = (limit / MIB).saturating_sub(mapped);
    let found = format!("{free} MiB left by RLIMIT_AS");
    room(NAME, free, guest_mib, found, remedy::ADDRESS_SPACE)
}

/// Whether the host promises memory only once, which counts guests' in full from their start.
pub(super) fn overcommit(meminfo: &str, guest_mib: u32) -> Check {
    let policy = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    by_policy(policy.trim(), meminfo, guest_mib)
}

fn by_policy(policy: &str, meminfo: &str, guest_mib: u32) -> Check {
    const NAME: &str = "overcommit";
    const NEVER: &str = "2";
    if policy != NEVER {
        return Check::new(NAME, Outcome::Good, "guests pay only for memory they use");
    }
    let of = |name| field_mib(meminfo, name).unwrap_or(0);
    let free = of("CommitLimit").saturating_sub(of("Committed_AS"));
    let found = format!(
        "vm.overcommit_memory is 2: each guest's memory counts in full from its start, and {free} \
         MiB can still be promised"
    );
    match room(NAME, free, guest_mib, found, remedy::OVERCOMMIT) {
        Check {
            outcome: Outcome::Good,
            detail,
            ..
        } => Check::new(
            NAME,
            Outcome::Warning,
            format!("{detail}; {}", remedy::OVERCOMMIT),
        ),
        worse => worse,
    }
}

/// A measure by which guests can have `free` MiB, for one of `guest_mib`.
fn room(name: &'static str, free: u64, guest_mib: u32, found: String, remedy: &str) -> Check {
    if free < u64::from(MEMORY_MIB_MIN) {
        Check::new(
            name,
            Outcome::Bad,
            format!("{found}: not enough for the smallest guest ({MEMORY_MIB_MIN} MiB); {remedy}"),
        )
    } else if free < u64::from(guest_mib) {
        Check::new(
            name,
            Outcome::Warning,
            format!("{found}: less than a guest of {guest_mib} MiB may use; {remedy}"),
        )
    } else {
        Check::new(name, Outcome::Good, found)
    }
}

/// A field of `/proc/meminfo`, or of a process's `status`.
fn field_mib(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib / (MIB / 1024))
}

#[cfg(test)]
#[path = "memory_test.rs"]
mod tests;
