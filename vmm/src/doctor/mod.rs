//! Is this host fit to run VMs? The same checks that starting one makes, as a list for people.
//!
//! | check | asks |
//! |---|---|
//! | `KVM` | is `/dev/kvm` there, may it be opened, is it the right version with all that is needed; how many vCPUs a VM may have |
//! | `guests` | does it run an unmodified 64-bit guest, or only emulate |
//! | `descriptors` | `RLIMIT_NOFILE` against what VMs take |
//! | `threads` | `pids.max` of the control groups around this process |
//! | `memory` | what the host has available |
//! | `control group` | `memory.max` of the control groups around this process |
//! | `address space` | `RLIMIT_AS` |
//! | `overcommit` | does the host count guests' memory before it is used, and is there room |
//! | `image` | is there a default image |
//!
//! These names stay as they are, and so does the form of a [`Check`] in JSON; more may come.
//! `RLIMIT_MEMLOCK` is not among them: no memory is locked here. What a limit is called, and what
//! to do about it, is said in the words of the errors that it leads to.

mod control_group;
mod memory;

use std::fmt;
use std::fs;

use forebay_images::Image;
use rustix::process::{Resource, getrlimit};

use crate::builder::MEMORY_MIB_DEFAULT;
use crate::kvm::{self, DEVICE};
use crate::probe;
use crate::remedy;
use control_group::ControlGroups;

/// Descriptors one VM takes: KVM, VM, one vCPU, its eventfds, timer and epoll.
const DESCRIPTORS_PER_VM: u64 = 16;
/// Threads one VM takes: one vCPU, the event loop, and one for its attach socket.
const THREADS_PER_VM: u64 = 3;
/// Fewer VMs than these are few.
const FEW_VMS: u64 = 10;

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

/// One check. In JSON an object of three strings: `name`, `outcome` (`good`, `warning` or `bad`) and
/// `detail`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at; see the [module](self).
    pub name: &'static str,
    /// How it went.
    pub outcome: Outcome,
    /// What was found, and what to do if that is not good; for people.
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

    /// For something of which there is `found`, enough for so many VMs.
    fn room_for(name: &'static str, vms: u64, found: &str, remedy: &str) -> Self {
        let detail = format!("{found}, room for about {vms} VMs in this process");
        match vms {
            0 => Self::new(name, Outcome::Bad, format!("{detail}; {remedy}")),
            1..FEW_VMS => Self::new(
                name,
                Outcome::Warning,
                format!("{detail}; for more, {remedy}"),
            ),
            _ => Self::new(name, Outcome::Good, detail),
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
    let meminfo = meminfo();
    let groups = ControlGroups::of_this_process();
    vec![
        kvm_device(),
        guests_run(),
        descriptors(),
        threads(&groups),
        memory::host(&meminfo, MEMORY_MIB_DEFAULT),
        memory::control_group(&groups, MEMORY_MIB_DEFAULT),
        memory::address_space(MEMORY_MIB_DEFAULT),
        memory::overcommit(&meminfo, MEMORY_MIB_DEFAULT),
        image(),
    ]
}

/// Says in the trace which limits may end this process as soon as a guest of this size uses its
/// memory. The others are answers of the system calls that reach them.
pub(crate) fn warn_of_memory(guest_mib: u32) {
    if !tracing::enabled!(tracing::Level::WARN) {
        return;
    }
    let checks = [
        memory::host(&meminfo(), guest_mib),
        memory::control_group(&ControlGroups::of_this_process(), guest_mib),
    ];
    for check in checks {
        if check.outcome != Outcome::Good {
            tracing::warn!("{}: {}", check.name, check.detail);
        }
    }
}

fn meminfo() -> String {
    fs::read_to_string("/proc/meminfo").unwrap_or_default()
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
    let found = format!("a limit of {limit}");
    Check::room_for(NAME, vms, &found, remedy::DESCRIPTORS)
}

fn threads(groups: &ControlGroups) -> Check {
    const NAME: &str = "threads";
    match groups.tightest_of_threads() {
        None => Check::new(NAME, Outcome::Good, "no limit of a control group"),
        Some(limit) => Check::room_for(
            NAME,
            limit.free() / THREADS_PER_VM,
            &format!("{} of {} taken in {}", limit.used, limit.max, limit.file),
            remedy::THREADS,
        ),
    }
}

fn image() -> Check {
    const NAME: &str = "image";
    match Image::default_cached() {
        Ok(image) => Check::new(
            NAME,
            Outcome::Good,
            format!(
                "the default image `{}` in {}",
                image.name(),
                image.directory().display()
            ),
        ),
        Err(e) => Check::new(NAME, Outcome::Warning, e.to_string()),
    }
}

#[cfg(test)]
#[path = "doctor_test.rs"]
mod tests;
