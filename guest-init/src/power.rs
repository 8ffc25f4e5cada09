//! Ends the guest in order: SIGTERM to everything, a grace, SIGKILL, sync, power off or reboot.
//!
//! [`Shutdown`] is the order of these steps and has no effects of its own; the loop goes on
//! serving output and exits while it runs, and does what the steps say.
//!
//! | step | takes at most |
//! |---|---|
//! | SIGTERM to every process | the grace of the request |
//! | SIGKILL to those that are left | 2 s |
//! | last output and exits to the host | 0.2 s |
//! | sync, then power off or reboot | what the disks take; not bounded here |
//!
//! Each step ends as soon as it has nothing left to wait for. A host that kills a guest which does
//! not obey therefore has to allow the grace, 2.2 s, and time for the guest's disks.

use std::time::{Duration, Instant};

use rustix::system::{RebootCommand, reboot};

/// How the agent's loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Power the guest off.
    PowerOff,
    /// Restart the guest.
    Reboot,
    /// The connection was lost and there is no port to open again.
    Disconnected,
}

/// Grace when the request names none: the power button, or a signal to PID 1.
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// After SIGKILL, the wait for processes to be gone. One stuck in the kernel is left behind. This,
/// [`DRAIN`] and the writing to disk share the ten seconds by which the host's patience exceeds the
/// grace.
const KILLED: Duration = Duration::from_secs(2);

/// The wait for the last output and exits to reach the host, which may have stopped reading.
const DRAIN: Duration = Duration::from_millis(200);

/// What has to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask every process to end.
    Terminate,
    /// Kill every process.
    Kill,
    /// Wait for events until the deadline.
    Wait,
    /// End the guest.
    Finish(End),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asked,
    Terminated,
    Killed,
    Draining,
}

/// A power-off or reboot under way.
#[derive(Debug)]
pub(crate) struct Shutdown {
    end: End,
    grace: Duration,
    stage: Stage,
    deadline: Instant,
}

impl Shutdown {
    /// Begins: the next [`advance`](Self::advance) says to terminate.
    pub(crate) fn new(end: End, grace: Duration, now: Instant) -> Self {
        Self {
            end,
            grace,
            stage: Stage::Asked,
            deadline: now,
        }
    }

    /// When to call [`advance`](Self::advance) at the latest.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The next step. `alone`: no process is left. `drained`: the host has everything.
    pub(crate) fn advance(&mut self, alone: bool, drained: bool, now: Instant) -> Step {
        let late = now >= self.deadline;
        match self.stage {
            Stage::Asked => self.enter(Stage::Terminated, self.grace, now, Step::Terminate),
            Stage::Terminated | Stage::Killed if alone => {
                if drained {
                    Step::Finish(self.end)
                } else {
                    self.enter(Stage::Draining, DRAIN, now, Step::Wait)
                }
            }
            Stage::Terminated if late => self.enter(Stage::Killed, KILLED, now, Step::Kill),
            Stage::Killed if late => self.enter(Stage::Draining, DRAIN, now, Step::Wait),
            Stage::Draining if drained || late => Step::Finish(self.end),
            _ => Step::Wait,
        }
    }

    fn enter(&mut self, stage: Stage, wait: Duration, now: Instant, step: Step) -> Step {
        self.stage = stage;
        // A grace too long for the clock is one that does not end by itself; an hour is as good.
        self.deadline = now
            .checked_add(wait)
            .unwrap_or(now + Duration::from_secs(3600));
        step
    }
}

/// Writes everything to disk and ends the guest. Returns why it did not, if it did not.
pub(crate) fn finish(end: End) -> String {
    let command = match end {
        End::Reboot => RebootCommand::Restart,
        End::PowerOff | End::Disconnected => RebootCommand::PowerOff,
    };
    rustix::fs::sync();
    match reboot(command) {
        Ok(()) => format!("the kernel did not act on {end:?}"),
        Err(error) => format!("the kernel refused {end:?}: {error}"),
    }
}

#[cfg(test)]
#[path = "power_test.rs"]
mod tests;
