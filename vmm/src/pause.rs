//! A VM that stands still: how everybody of it comes to rest, and goes on.
//!
//! Owns the meeting point of those who rest ([`Standstill`]: vCPU threads and the event loop) and
//! of those who want them to; [`PausedMachine`], the guest that does not run while the value lives; and
//! what is kept meanwhile. What a vCPU does before it rests is [`crate::vcpu`]'s, what the console
//! device does the device's.
//!
//! While a VM is paused nobody writes its memory: vCPUs are outside the guest with every access
//! they had begun finished, the event loop rests, and the console device takes nothing from the
//! application's threads. The guest's monotonic clock stands still, and so do all deadlines, those
//! of executions included: to guest and deadlines the pause has not been.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_virtio_console::Held;
use kvm_bindings::kvm_clock_data;

use crate::error::HostError;
use crate::machine::Machine;
use crate::stop::StopReason;

/// A thread that has not come to rest by then is held up by code of the host program.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A guest that stands still. Dropping this lets it go on.
///
/// It can still be looked at, stopped and killed: a paused machine ends as promptly as a running
/// one.
#[must_use = "the guest goes on when this is dropped"]
#[derive(Debug)]
pub struct PausedMachine<'a> {
    machine: &'a Machine,
}

impl<'a> PausedMachine<'a> {
    /// Takes charge of a machine that stands still.
    pub(crate) fn new(machine: &'a Machine) -> Self {
        Self { machine }
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// Lets the guest go on, as dropping this does.
    pub fn resume(self) {}
}

impl Drop for PausedMachine<'_> {
    fn drop(&mut self) {
        self.machine.resume();
    }
}

/// What is kept while a VM stands still.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The guest's clock, to go on from.
    pub(crate) clock: kvm_clock_data,
    /// The console device, which goes on when this is dropped.
    pub(crate) device: Held,
}

/// Why a VM was not paused. It goes on as before, if it has not ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PauseError {
    /// Somebody has paused it: there is one pause at a time.
    #[error("the VM is paused already; resume it before it is paused again")]
    AlreadyPaused,
    /// It has ended, or ended meanwhile.
    #[error("the VM cannot be paused, it has ended: {reason}")]
    Ended {
        /// How.
        reason: StopReason,
    },
    /// A thread of the VM did not come to rest.
    #[error(
        "the VM cannot be paused: {who} did not come to rest within {PATIENCE:?}. A console tap, a \
         gate or a waker that blocks holds it up; pause from a thread that none of them waits for"
    )]
    HeldUp {
        /// Which threads.
        who: String,
    },
    /// A system call of the host failed.
    #[error("the VM cannot be paused: {0}")]
    Host(#[from] HostError),
}

/// Where the threads of one VM rest.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Somebody wants the VM to rest, or has it rest.
    wanted: bool,
    /// The VM ends: nobody rests any more.
    ended: bool,
    /// vCPU threads at rest.
    vcpus: usize,
    /// The event loop is at rest.
    event_loop: bool,
    /// Counts [`Standstill::nudge`].
    nudges: u64,
}

impl State {
    fn rests(&self) -> bool {
        self.wanted && !self.ended
    }
}

/// Why a VM does not stand still.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoStandstill {
    Already,
    Ended,
    HeldUp(String),
}

impl Standstill {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Wants everybody to rest. They must be called afterwards, wherever they are; those not yet
    /// started look here first.
    pub(crate) fn begin(&self) -> Result<(), NoStandstill> {
        let mut state = self.lock();
        match *state {
            State { ended: true, .. } => Err(NoStandstill::Ended),
            State { wanted: true, .. } => Err(NoStandstill::Already),
            _ => {
                state.wanted = true;
                Ok(())
            }
        }
    }

    /// Waits until `vcpus` threads and the event loop rest, for `limit` at most. On an error nobody
    /// is wanted to rest any more.
    pub(crate) fn wait_for(&self, vcpus: usize, limit: Duration) -> Result<(), NoStandstill> {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if state.ended {
                return Err(NoStandstill::Ended);
            }
            if state.vcpus >= vcpus && state.event_loop {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let late = match (vcpus.saturating_sub(state.vcpus), state.event_loop) {
                    (0, _) => "the event loop".to_owned(),
                    (late, true) => format!("{late} of {vcpus} vCPUs"),
                    (late, false) => format!("{late} of {vcpus} vCPUs and the event loop"),
                };
                drop(state);
                self.release();
                return Err(NoStandstill::HeldUp(late));
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Lets everybody go on.
    pub(crate) fn release(&self) {
        self.lock().wanted = false;
        self.changed.notify_all();
    }

    /// The VM ends: lets everybody go, and nobody rests again.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Has vCPU threads at rest look at what they are asked for.
    pub(crate) fn nudge(&self) {
        let mut state = self.lock();
        state.nudges = state.nudges.wrapping_add(1);
        drop(state);
        self.changed.notify_all();
    }

    /// Whether the VM is to rest.
    pub(crate) fn is_wanted(&self) -> bool {
        self.lock().rests()
    }

    /// Called by a vCPU's thread outside the guest, with no access pending: rests if that is
    /// wanted, and does `errands` at the beginning and after each [`nudge`](Self::nudge). Whether it
    /// has rested.
    pub(crate) fn rest_vcpu(&self, mut errands: impl FnMut()) -> bool {
        let mut state = self.lock();
        if !state.rests() {
            return false;
        }
        state.vcpus += 1;
        self.changed.notify_all();
        while state.rests() {
            let seen = state.nudges;
            drop(state);
            errands();
            state = self.lock();
            while state.rests() && state.nudges == seen {
                state = self.wait(state);
            }
        }
        state.vcpus -= 1;
        true
    }

    /// Called by the event loop between two events: rests if that is wanted.
    pub(crate) fn rest_loop(&self) {
        let mut state = self.lock();
        while state.rests() {
            if !state.event_loop {
                state.event_loop = true;
                self.changed.notify_all();
            }
            state = self.wait(state);
        }
        state.event_loop = false;
    }
}

#[cfg(test)]
#[path = "pause_test.rs"]
mod tests;
