//! The clock of a VM's event loop: a few named deadlines on one timer descriptor.
//!
//! Deadlines run on the VM's own loop so that they hold when the application does not poll
//! anything.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    /// Executions have had their time, or their readers are to be told of output.
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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    at: [Option<Instant>; Deadline::ALL.len()],
    /// The VM stands still since then, and so do the deadlines: one that is set meanwhile is noted
    /// as if it had been set then, and all move on together.
    held: Option<Instant>,
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
            state: Mutex::default(),
        })
    }

    /// Sets a deadline, or takes it back.
    pub(crate) fn set(&self, which: Deadline, at: Option<Instant>) -> io::Result<()> {
        self.change(which, at, |_, at| at)
    }

    /// Sets a deadline unless it is set to an earlier time: whoever does so need not know what
    /// others set meanwhile.
    pub(crate) fn bring_forward(&self, which: Deadline, at: Instant) -> io::Result<()> {
        self.change(which, Some(at), |set, at| set.into_iter().chain(at).min())
    }

    fn change(
        &self,
        which: Deadline,
        at: Option<Instant>,
        to: impl Fn(Option<Instant>, Option<Instant>) -> Option<Instant>,
    ) -> io::Result<()> {
        let mut state = self.lock();
        let waited = state.held.map_or(Duration::ZERO, |since| since.elapsed());
        let at = at.map(|at| at.checked_sub(waited).unwrap_or(at));
        for (slot, deadline) in state.at.iter_mut().zip(Deadline::ALL) {
            if deadline == which {
                *slot = to(*slot, at);
            }
        }
        self.arm(&state)
    }

    /// The VM stands still from `since` on: nothing is due until [`release`](Self::release).
    pub(crate) fn hold(&self, since: Instant) -> io::Result<()> {
        let mut state = self.lock();
        state.held = Some(since);
        self.arm(&state)
    }

    /// The VM goes on: every deadline is later by the time it stood still.
    pub(crate) fn release(&self) -> io::Result<()> {
        let mut state = self.lock();
        if let Some(since) = state.held.take() {
            let by = since.elapsed();
            for at in state.at.iter_mut().flatten() {
                *at = at.checked_add(by).unwrap_or(*at);
            }
        }
        self.arm(&state)
    }

    /// Takes out those that are due, and sets the timer for the next. Called by the loop when the
    /// timer fires.
    pub(crate) fn take_due(&self) -> io::Result<Vec<Deadline>> {
        let mut state = self.lock();
        let now = Instant::now();
        let mut due = Vec::new();
        if state.held.is_some() {
            return Ok(due);
        }
        for (slot, deadline) in state.at.iter_mut().zip(Deadline::ALL) {
            if slot.is_some_and(|at| at <= now) {
                *slot = None;
                due.push(deadline);
            }
        }
        // Setting the timer also clears its count, so nothing need be read.
        self.arm(&state)?;
        Ok(due)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arm(&self, state: &State) -> io::Result<()> {
        let off = Timespec::default();
        let next = state.at.iter().flatten().min();
        let value = match next.filter(|_| state.held.is_none()) {
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
