//! Freezing everything in all leaves at once, by the parent's own control.
//!
//! The kernel stops each process when it would next run a program's instruction, and says so in
//! `cgroup.events` when the last one has stopped. That takes as long as a process is inside the
//! kernel for something that cannot be interrupted. What is frozen can be killed. A leaf that is
//! made meanwhile is frozen too, and what a command froze of its own groups stays so afterwards.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, inotify};
use rustix::io::{Errno, retry_on_intr};

use super::leaf::Leaf;
use super::{Parent, below};
use crate::figures::Figures;

/// How the kernel tells that the parent's processes have stopped.
pub(super) struct Freezing {
    events: OwnedFd,
    /// In the parent's watch of leaves.
    watch: i32,
}

impl Parent {
    /// Begins to stop everything. [`as_fd`](Self::as_fd) becomes readable when that may have
    /// succeeded: then, and once at the beginning, see [`is_frozen`](Self::is_frozen).
    pub(crate) fn freeze(&mut self) -> Result<(), Errno> {
        let events = below(self.dir.as_fd(), "cgroup.events", OFlags::RDONLY)?;
        // Only for as long as it is of interest: it also tells when the last execution ends.
        let watch = self.watch(&events)?;
        self.freezing = Some(Freezing { events, watch });
        self.set_frozen(b"1").inspect_err(|_| self.stop_watching())
    }

    /// Whether everything has stopped.
    pub(crate) fn is_frozen(&self) -> bool {
        let events = self.freezing.as_ref().map(|freezing| &freezing.events);
        events.is_some_and(|events| is_frozen(Figures::read(events)))
    }

    /// Nobody waits for [`is_frozen`](Self::is_frozen) any more.
    pub(crate) fn stop_watching(&mut self) {
        if let Some(freezing) = self.freezing.take() {
            let _ = inotify::remove_watch(&self.watch, freezing.watch);
        }
    }

    /// Lets everything go on.
    pub(crate) fn thaw(&mut self) -> Result<(), Errno> {
        self.stop_watching();
        self.set_frozen(b"0")
    }

    fn set_frozen(&self, value: &[u8; 1]) -> Result<(), Errno> {
        let control = self.freeze.as_ref().ok_or(Errno::NOENT)?;
        // Each time at the beginning, as if it had just been opened.
        retry_on_intr(|| rustix::io::pwrite(control, value, 0)).map(drop)
    }

    /// Has something else than the kernel be told to freeze and thaw.
    #[cfg(test)]
    pub(crate) fn freeze_by(&mut self, control: OwnedFd) {
        self.freeze = Some(control);
    }
}

impl Leaf {
    /// Whether everything in it has stopped.
    pub(crate) fn is_frozen(&self) -> bool {
        is_frozen(Figures::open(self.as_fd(), "cgroup.events"))
    }
}

/// What cannot be learned goes on.
fn is_frozen(events: Option<Figures>) -> bool {
    events.and_then(|events| events.get("frozen ")) == Some(1)
}
