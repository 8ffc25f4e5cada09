//! One execution's group.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_exec_proto::{ExecId, Failure, FailureKind, Resources};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, unlinkat};
use rustix::io::{Errno, retry_on_intr};

use super::account::{self, Account};
use super::{GROUP, below};
use crate::failure::describe;
use crate::figures::Figures;

/// What `cpu.max` counts its quota against, in microseconds.
const CPU_PERIOD_US: u32 = 100_000;

/// One execution's group, from before its first process until it is given back.
pub(crate) struct Leaf {
    pub(super) remains: Remains,
    dir: OwnedFd,
}

/// What there is to tidy up of a leaf.
pub(super) struct Remains {
    /// Where it is below the parent.
    pub(super) path: String,
    /// Whose memory it counts in; `None` if in its own.
    pub(super) account: Option<Account>,
}

impl Remains {
    /// For as long as something keeps it: takes no descriptors.
    pub(super) fn at_rest(mut self) -> Self {
        if let Some(account) = &mut self.account {
            account.close();
        }
        self
    }

    /// Removes the leaf below `parent` if there is nothing in it.
    pub(super) fn remove(&self, parent: BorrowedFd<'_>) -> Result<(), Errno> {
        let remove = |group: BorrowedFd<'_>, name| unlinkat(group, name, AtFlags::REMOVEDIR);
        match (&self.account, self.path.rsplit_once('/')) {
            // A step at a time: a command may have mounted something over the account.
            (Some(account), Some((_, leaf))) => account.within(parent, |group| remove(group, leaf)),
            _ => remove(parent, &self.path),
        }
    }
}

impl Leaf {
    /// Makes the group of execution `id` below `parent`, in an account if it has one. Gives the
    /// account back if it cannot.
    pub(super) fn make(
        parent: BorrowedFd<'_>,
        id: ExecId,
        account: Option<Account>,
    ) -> Result<Self, (Errno, Option<Account>)> {
        let path = match &account {
            Some(account) => format!("{}/{id}", account.name),
            None => id.to_string(),
        };
        let make = |group: BorrowedFd<'_>| {
            let name = id.to_string();
            mkdirat(group, &name, Mode::from_raw_mode(0o755))?;
            below(group, &name, GROUP).inspect_err(|_| {
                let _ = unlinkat(group, &name, AtFlags::REMOVEDIR);
            })
        };
        let made = match &account {
            None => make(parent),
            Some(account) => account.within(parent, make),
        };
        match made {
            Ok(dir) => Ok(Self {
                remains: Remains { path, account },
                dir,
            }),
            Err(errno) => Err((errno, account)),
        }
    }

    /// Sets what the execution may take. All of it is set, or the execution must not start.
    pub(crate) fn limit(&self, limits: &Resources) -> Result<(), Failure> {
        for (file, value) in settings(limits) {
            write(self.dir.as_fd(), file, &value)
                .map_err(|errno| refused(file, &value, Some(errno)))?;
        }
        if limits.memory.is_some() {
            // Else what does not fit would go to the guest's swap, if it has some. A kernel
            // without swap has no such file.
            match write(self.dir.as_fd(), SWAP, "0") {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(refused(SWAP, "0", Some(errno))),
            }
        }
        Ok(())
    }

    /// CPU time of everything in it so far: in user mode and in the kernel, in microseconds.
    pub(crate) fn cpu(&self) -> (Option<u64>, Option<u64>) {
        match Figures::open(self.dir.as_fd(), "cpu.stat") {
            Some(stat) => (stat.get("user_usec "), stat.get("system_usec ")),
            None => (None, None),
        }
    }

    /// The most memory that it held at a time, in bytes.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        match &self.remains.account {
            Some(account) => account.peak(),
            None => Figures::open(self.dir.as_fd(), "memory.peak")?.get(""),
        }
    }

    /// Whether the kernel killed a process of it for want of memory. A victim is counted before it
    /// dies.
    pub(crate) fn oom_killed(&self) -> Option<bool> {
        match &self.remains.account {
            Some(account) => account.oom_killed(),
            None => account::oom_killed(self.dir.as_fd()),
        }
    }

    /// Kills every process in the leaf and below.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        kill(self.dir.as_fd())
    }
}

/// For starting a process in the leaf.
impl AsFd for Leaf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

const SWAP: &str = "memory.swap.max";

/// What a request asks for, and where it does not say, what the VM does.
pub(crate) fn limits(request: Option<&Resources>, vm: &Resources) -> Resources {
    let request = request.copied().unwrap_or_default();
    Resources {
        memory: request.memory.or(vm.memory),
        pids: request.pids.or(vm.pids),
        cpu_weight: request.cpu_weight.or(vm.cpu_weight),
        cpu_quota: request.cpu_quota.or(vm.cpu_quota),
    }
}

/// Whether there is anything to set.
pub(crate) fn is_limited(limits: &Resources) -> bool {
    settings(limits).next().is_some()
}

/// The answer for an execution that can have no group.
pub(crate) fn unlimited(limits: &Resources) -> Result<(), Failure> {
    match settings(limits).next() {
        None => Ok(()),
        Some((file, value)) => Err(refused(file, &value, None)),
    }
}

/// Kills every process in a group and below.
pub(super) fn kill(group: BorrowedFd<'_>) -> Result<(), Errno> {
    write(group, "cgroup.kill", "1")
}

/// Files of a group and what to write to them.
fn settings(limits: &Resources) -> impl Iterator<Item = (&'static str, String)> {
    let quota = |quota| format!("{quota} {CPU_PERIOD_US}");
    [
        ("memory.max", limits.memory.map(|bytes| bytes.to_string())),
        ("pids.max", limits.pids.map(|n| n.to_string())),
        ("cpu.weight", limits.cpu_weight.map(|n| n.to_string())),
        ("cpu.max", limits.cpu_quota.map(quota)),
    ]
    .into_iter()
    .filter_map(|(file, value)| Some((file, value?)))
}

/// Writes to a file of a group, never to what a command put over it: that could make PID 1 wait.
pub(super) fn write(group: BorrowedFd<'_>, file: &str, value: &str) -> Result<(), Errno> {
    let file = below(group, file, OFlags::WRONLY)?;
    retry_on_intr(|| rustix::io::write(&file, value.as_bytes())).map(drop)
}

fn refused(file: &str, value: &str, errno: Option<Errno>) -> Failure {
    let reason = match errno {
        None => "the guest has no control groups".to_owned(),
        Some(Errno::NOENT) => "the guest's kernel has no such control".to_owned(),
        Some(errno) => describe(errno),
    };
    Failure {
        kind: FailureKind::ResourceLimit,
        errno: errno.map(Errno::raw_os_error),
        stage: format!("cgroup({file})"),
        message: format!("cannot set {file} of the execution to {value}: {reason}"),
    }
}

#[cfg(test)]
#[path = "leaf_test.rs"]
mod tests;
