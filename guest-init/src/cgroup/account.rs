//! Groups that account for the memory of one execution after the other.
//!
//! A group with the memory controller costs a sixth of a command's whole round trip to make and to
//! remove, and one that is removed while a file that its processes wrote is still in memory stays in
//! the kernel as long as that. So the leaves of executions without limits have no controllers: each
//! is made in an account, which it has for itself, and which the next execution gets when the leaf
//! is gone. What an account still holds then counts as memory of the next one, so an account that
//! holds more than [`LEFT_MAX`] is not used again.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, unlinkat};
use rustix::io::{Errno, pwrite, retry_on_intr};

use super::{GROUP, below};
use crate::figures::Figures;

/// Bytes that an account may hold when an execution begins. The kernel charges in advance, up to
/// 256 KiB for each CPU, so an account is rarely empty.
const LEFT_MAX: u64 = 1 << 20;

/// What a process of a group that was killed for want of memory is counted as.
const OOM_KILL: &str = "oom_kill ";

/// A group that one execution at a time has its leaf in.
pub(super) struct Account {
    pub(super) name: String,
    /// `None` while it waits for a leaf that outlives its execution.
    files: Option<Files>,
    /// Processes killed for want of memory before the present execution.
    oom_kills: u64,
}

/// The group and its controls, open.
struct Files {
    /// To make and remove leaves in. What a command mounts over the group later is not in the way.
    group: OwnedFd,
    peak: OwnedFd,
    events: OwnedFd,
}

impl Files {
    fn open(parent: BorrowedFd<'_>, account: &str) -> Result<Self, Errno> {
        let group = below(parent, account, GROUP)?;
        let open = |file, flags| below(group.as_fd(), file, flags);
        Ok(Self {
            // Before 6.12 the peak cannot be written to, and an account serves once.
            peak: open("memory.peak", OFlags::RDWR)
                .or_else(|_| open("memory.peak", OFlags::RDONLY))?,
            events: open("memory.events", OFlags::RDONLY)?,
            group,
        })
    }

    fn peak(&self) -> Option<u64> {
        Figures::read(self.peak.as_fd())?.get("")
    }

    fn oom_kills(&self) -> Option<u64> {
        Figures::read(self.events.as_fd())?.get(OOM_KILL)
    }
}

impl Account {
    /// Makes the group `name` below `parent`.
    pub(super) fn make(parent: BorrowedFd<'_>, name: String) -> Result<Self, Errno> {
        mkdirat(parent, &name, Mode::from_raw_mode(0o755))?;
        match Files::open(parent, &name) {
            Ok(files) => Ok(Self {
                name,
                files: Some(files),
                oom_kills: 0,
            }),
            Err(error) => {
                let _ = unlinkat(parent, &name, AtFlags::REMOVEDIR);
                Err(error)
            }
        }
    }

    /// Does something in the group.
    pub(super) fn within<T>(
        &self,
        parent: BorrowedFd<'_>,
        act: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match &self.files {
            Some(files) => act(files.group.as_fd()),
            None => act(below(parent, &self.name, GROUP)?.as_fd()),
        }
    }

    /// The most that was held at a time since the execution began, in bytes.
    pub(super) fn peak(&self) -> Option<u64> {
        self.files.as_ref()?.peak()
    }

    /// Whether a process was killed for want of memory since the execution began.
    pub(super) fn oom_killed(&self) -> Option<bool> {
        Some(self.files.as_ref()?.oom_kills()? > self.oom_kills)
    }

    /// Closes its controls: its leaf may be there for as long as a descendant lives.
    pub(super) fn close(&mut self) {
        self.files = None;
    }

    /// Makes it ready for another execution, whose leaf does not exist yet. False if it cannot be.
    pub(super) fn renew(&mut self, parent: BorrowedFd<'_>) -> bool {
        let Some(files) = self
            .files
            .take()
            .or_else(|| Files::open(parent, &self.name).ok())
        else {
            return false;
        };
        // Any write makes the peak what is held now, for this descriptor.
        let reset = retry_on_intr(|| pwrite(&files.peak, b"0", 0));
        let (Ok(_), Some(held), Some(kills)) = (reset, files.peak(), files.oom_kills()) else {
            return false;
        };
        self.oom_kills = kills;
        self.files = Some(files);
        held <= LEFT_MAX
    }
}

/// The same of a group that has the memory controller for one execution alone.
pub(super) fn oom_killed(group: BorrowedFd<'_>) -> Option<bool> {
    Some(Figures::open(group, "memory.events")?.get(OOM_KILL)? > 0)
}

#[cfg(test)]
#[path = "account_test.rs"]
mod tests;
