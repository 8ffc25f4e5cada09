//! The clock of a VM's event loop: a few named deadlines on one timer descriptor.
//!
//! Deadlines run on the VM's own loop so that they hold when the application does not poll
//! anything.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::error::HostError;

/// What a deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// The agent must be ready.
    Boot,
    /// A guest that reported a panic must have reset itself.
    Panic,
    /// The agent side asked to be called.
    Agent,
    /// Executions have had their time.
    Executions,
    /// A guest that was asked to switch itself off must have done so.
    PowerOff,
    /// A device reset that nothing followed has to be taken for what it looks like.
    Reset,
}

impl Deadline {
    const ALL: [Self; 6] = [
        Self::Boot,
        Self::Panic,
        Self::Agent,
        Self::Executions,
        Self::PowerOff,
        Self::Reset,
    ];
}

/// The deadlines of one VM. Set from any thread, looked at by the loop.
#[derive(Debug)]
pub(crate) struct Deadlines {
    timer: OwnedFd,
    at: Mutex<[Option<Instant>; Deadline::ALL.len()]>,
}

impl Deadlines {
    pub(crate) fn new() -> Result<Self, HostError> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )
        .map_err(|e| HostError::new("timerfd_create", e))?;
        Ok(Self {
            timer,
            at: Mutex::default(),
        })
    }

    /// Sets a deadline, or takes it back.
    pub(crate) fn set(&self, which: Deadline, at: Option<Instant>) -> io::Result<()> {
        self.change(which, |_| at)
    }

    /// Sets a deadline unless it is set to an earlier time: whoever does so need not know what
    /// others set meanwhile.
    pub(crate) fn bring_forward(&self, which: Deadline, at: Instant) -> io::Result<()> {
        self.change(which, |set| Some(set.map_or(at, |set| set.min(at))))
    }

    fn change(
        &self,
        which: Deadline,
        to: impl Fn(Option<Instant>) -> Option<Instant>,
    ) -> io::Result<()> {
        let mut all = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        for (slot, deadline) in all.iter_mut().zip(Deadline::ALL) {
            if deadline == which {
                *slot = to(*slot);
            }
        }
        self.arm(&*all)
    }

    /// Takes out those that are due, and sets the timer for the next. Called by the loop when the
    /// timer fires.
    pub(crate) fn take_due(&self) -> io::Result<Vec<Deadline>> {
        let mut all = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let mut due = Vec::new();
        for (slot, deadline) in all.iter_mut().zip(Deadline::ALL) {
            if slot.is_some_and(|at| at <= now) {
                *slot = None;
                due.push(deadline);
            }
        }
        // Setting the timer also clears its count, so nothing need be read.
        self.arm(&*all)?;
        Ok(due)
    }

    fn arm(&self, all: &[Option<Instant>]) -> io::Result<()> {
        let off = Timespec::default();
        let value = match all.iter().flatten().min() {
            None => off,
            Some(at) => {
                // Zero would switch the timer off.
                let left = at
                    .saturating_duration_since(Instant::now())
                    .max(Duration::from_nanos(1));
                Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?
            }
        };
        let setting = Itimerspec {
            it_interval: off,
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }
}

impl AsRawFd for Deadlines {
    fn as_raw_fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}

#[cfg(test)]
#[path = "deadline_test.rs"]
mod tests;
