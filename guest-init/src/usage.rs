//! What an execution used, read when its leader has ended.
//!
//! | figure | source | of whom |
//! |---|---|---|
//! | CPU time | `cpu.stat` of the leaf | everything in the leaf, up to then |
//! | peak of memory | `memory.peak` of the leaf or its account | the same; page cache and kernel memory included |
//! | faults, switches | `waitid` | the leader and the children that it waited for |
//! | bytes read and written | `/proc/PID/io`, before the leader is collected | the same |
//!
//! A figure that cannot be had is `None`, never zero. One exit costs one read of each of these files
//! and of `memory.events`, whatever the execution did.

use std::os::fd::{AsFd as _, OwnedFd};

use forebay_exec_proto::Usage;
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use crate::cgroup::Leaf;
use crate::figures::Figures;
use crate::reaper::Reaped;

/// Bytes that went through read and write calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Io {
    read: Option<u64>,
    written: Option<u64>,
}

/// Where processes are accounted for.
pub(crate) struct Processes {
    /// Opened before the first command, which could put something over it. `None` without one.
    proc: Option<OwnedFd>,
}

impl Processes {
    /// Opens `/proc`.
    pub(crate) fn open() -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self {
            proc: rustix::fs::open("/proc", flags, Mode::empty()).ok(),
        }
    }

    /// What a process moved that was not collected yet.
    pub(crate) fn io(&self, pid: Pid) -> Option<Io> {
        let path = format!("{}/io", pid.as_raw_nonzero());
        let io = Figures::open(self.proc.as_ref()?.as_fd(), &path)?;
        Some(Io {
            read: io.get("rchar: "),
            written: io.get("wchar: "),
        })
    }
}

/// Everything that is known of what an execution used.
pub(crate) fn usage(leaf: Option<&Leaf>, io: Option<Io>, leader: &Reaped) -> Usage {
    let (user_us, system_us) = leaf.map_or((None, None), Leaf::cpu);
    Usage {
        user_us,
        system_us,
        peak_memory: leaf.and_then(Leaf::peak_memory),
        major_faults: leader.major_faults,
        involuntary_switches: leader.involuntary_switches,
        read_bytes: io.and_then(|io| io.read),
        written_bytes: io.and_then(|io| io.written),
    }
}

#[cfg(test)]
#[path = "usage_test.rs"]
mod tests;
