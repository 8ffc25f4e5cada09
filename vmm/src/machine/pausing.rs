//! Having a machine stand still, and go on.

use std::io;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use kvm_bindings::kvm_clock_data;
use kvm_ioctls::VmFd;

use super::Machine;
use crate::error::HostError;
use crate::pause::{Hold, NoStandstill, PATIENCE, PauseError, PausedMachine};
use crate::stop::StopReason;

impl Machine {
    /// Makes the guest stand still, at any moment from its first instruction on, until the value is
    /// dropped. Blocks this thread for milliseconds, not longer than ten seconds: not from within a
    /// console tap, a call of the gate or a waker, which it would wait for.
    ///
    /// Neither clock of the guest that counts from its boot moves meanwhile, and no deadline comes
    /// nearer. Its wall clock is behind afterwards, by the length of the pause.
    ///
    /// # Errors
    /// [`PauseError::AlreadyPaused`] and [`PauseError::Ended`]; nothing is waited for then. Else what
    /// kept it from standing still, and it goes on.
    pub fn pause(&self) -> Result<PausedMachine<'_>, PauseError> {
        self.stand_still().map_err(|why| match why {
            NoStandstill::Already => PauseError::AlreadyPaused,
            NoStandstill::HeldUp(who) => PauseError::HeldUp { who },
            NoStandstill::Ended => PauseError::Ended {
                reason: self.lifecycle.reason().unwrap_or(StopReason::Dropped),
            },
        })?;
        let paused = PausedMachine::new(self);
        let device = self.console.hold();
        let since = Instant::now();
        // Behind the last vCPU, so that none of them has seen a later time.
        let clock = self
            .vm()?
            .get_clock()
            .map_err(|e| HostError::new("KVM_GET_CLOCK", e))?;
        self.deadlines
            .hold(since)
            .map_err(|e| HostError::new("timerfd_settime", e))?;
        self.agent.hold_time();
        *self.hold() = Some(Hold { clock, device });
        Ok(paused)
    }

    fn stand_still(&self) -> Result<(), NoStandstill> {
        let standstill = self.lifecycle.standstill();
        standstill.begin()?;
        self.lifecycle.kick_all();
        self.lifecycle.wake_loop();
        standstill.wait_for(self.vcpus.count(), PATIENCE)
    }

    /// The end of a [`PausedMachine`].
    pub(crate) fn resume(&self) {
        let hold = self.hold().take();
        if let Some(Hold { clock, device }) = hold {
            if let Err(e) = self.go_on_at(&clock) {
                self.lifecycle.stop(StopReason::Host {
                    error: e.to_string(),
                });
            }
            self.agent.release_time();
            drop(device);
        }
        self.lifecycle.standstill().release();
    }

    /// Sets clock and deadlines going, before anybody runs.
    fn go_on_at(&self, clock: &kvm_clock_data) -> Result<(), HostError> {
        // Without the flags that came with it: they would have KVM add the time that has passed.
        let clock = kvm_clock_data {
            clock: clock.clock,
            ..Default::default()
        };
        self.vm()?
            .set_clock(&clock)
            .map_err(|e| HostError::new("KVM_SET_CLOCK", e))?;
        self.deadlines
            .release()
            .map_err(|e| HostError::new("timerfd_settime", e))
    }

    pub(super) fn hold(&self) -> MutexGuard<'_, Option<Hold>> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn vm(&self) -> Result<&VmFd, HostError> {
        // Only a value that is being taken apart has none, and that cannot be asked.
        let gone = || HostError::new("reach the VM", io::Error::from(io::ErrorKind::NotFound));
        self.remains.as_ref().map(|(r, _)| &r.vm).ok_or_else(gone)
    }
}

#[cfg(test)]
#[path = "pausing_test.rs"]
mod tests;
