//! What a change under the hub's lock leaves to be done outside it: whom to wake, what to say,
//! which of the application's buffers to drop. Collected by the hub's state, carried out by
//! `Hub::step` and `Hub::settle`.

use std::panic::{self, AssertUnwindSafe};
use std::task::Waker;

use bytes::Bytes;

use crate::sync::Notify;

/// Whom a step concerns.
#[derive(Default)]
pub(super) struct Wakes {
    pub(super) tasks: Vec<Waker>,
    pub(super) ready: bool,
    pub(super) control: bool,
    /// A look at the relay's VM was answered.
    pub(super) looked: bool,
    /// A quiesce or a renewal is over.
    pub(super) rest: bool,
    /// Why a guest that was to go on stays frozen, to be warned of.
    pub(super) frozen: Option<String>,
    /// The version of the agent that became ready, to be logged.
    pub(super) agent: Option<String>,
    /// The VM's name, if that agent keeps no limits and is the first of this VM that does not, to
    /// be warned of.
    pub(super) legacy: Option<String>,
    /// Why the connection ended, to be logged.
    pub(super) ended: Option<String>,
}

impl Wakes {
    /// Whether it concerns nobody.
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            tasks,
            ready,
            control,
            looked,
            rest,
            frozen,
            agent,
            legacy,
            ended,
        } = self;
        let said = [frozen, agent, legacy, ended];
        tasks.is_empty()
            && !(*ready || *control || *looked || *rest)
            && said.iter().all(|text| text.is_none())
    }
}

/// What is left to do when no lock is held.
pub(super) struct Due {
    pub(super) wakes: Wakes,
    /// Buffers of the application that are done with.
    pub(super) dropped: Vec<Bytes>,
}

impl Due {
    /// Wakes, and drops what runs the application's code when dropped. Call with no lock held.
    pub(super) fn carry_out(
        self,
        ready: &Notify,
        control_room: &Notify,
        rest: &Notify,
        looked: &Notify,
    ) {
        let Self { wakes, dropped } = self;
        // A subscriber is the application's code as much as a waker is.
        if let Some(reason) = wakes.ended {
            tracing::debug!(reason, "the agent's connection ended");
        }
        if let Some(version) = wakes.agent {
            tracing::debug!(agent = version, "the agent is ready");
            if let Some(vm) = wakes.legacy {
                tracing::warn!(
                    vm,
                    agent = version,
                    "the guest's agent is too old to keep any limits: neither stdin in the guest \
                     nor a command that is read slowly is bounded; rebuild the guest image"
                );
            }
        }
        if let Some(reason) = wakes.frozen {
            tracing::warn!(reason, "the guest's commands stay frozen");
        }
        if wakes.ready {
            contained(|| ready.notify_waiters());
        }
        if wakes.control {
            contained(|| control_room.notify_waiters());
        }
        if wakes.looked {
            contained(|| looked.notify_waiters());
        }
        if wakes.rest {
            contained(|| rest.notify_waiters());
        }
        for waker in wakes.tasks {
            contained(|| waker.wake());
        }
        for buffer in dropped {
            contained(|| drop(buffer));
        }
    }
}

/// Runs a waker, or the end of a buffer, which must not panic. One that does must not keep the
/// others from running, nor end the VM on whose thread it happens to be.
fn contained(foreign: impl FnOnce()) {
    if panic::catch_unwind(AssertUnwindSafe(foreign)).is_err() {
        tracing::error!("a task's waker, or the owner of a stdin buffer, panicked");
    }
}

#[cfg(test)]
#[path = "wakes_test.rs"]
mod tests;
