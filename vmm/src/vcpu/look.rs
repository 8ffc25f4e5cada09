//! Asking a running vCPU what it is doing.
//!
//! Only a vCPU's own thread may read its state, and only outside the guest. So the question is left
//! here, the thread is kicked, and it answers before it goes back in. A guest that halted with
//! interrupts off never exits again: this is the only way to find it.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kvm_bindings::{KVM_MP_STATE_HALTED, KVM_MP_STATE_UNINITIALIZED};
use kvm_ioctls::VcpuFd;

use super::registers::RFLAGS_INTERRUPTS;

/// What a vCPU was doing at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct VcpuView {
    /// It executes instructions, waits for an interrupt, or was never started.
    pub activity: Activity,
    /// Whether it takes interrupts. Halted without means halted for good.
    pub interrupts: bool,
    /// Instruction pointer.
    pub rip: u64,
}

impl VcpuView {
    /// Nothing but an interrupt that it does not take could make it go on.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        match self.activity {
            Activity::Running => false,
            Activity::Halted => !self.interrupts,
            Activity::NotStarted => true,
        }
    }
}

/// See [`VcpuView::activity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Executing instructions.
    Running,
    /// Halted, until an interrupt comes.
    Halted,
    /// Waiting to be started by another vCPU.
    NotStarted,
}

/// One vCPU's question and answer.
#[derive(Debug, Default)]
pub(crate) struct LookSlot {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: bool,
    view: Option<VcpuView>,
}

impl LookSlot {
    /// Leaves the question; the thread must be kicked afterwards.
    pub(crate) fn ask(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State {
            asked: true,
            view: None,
        };
    }

    /// Waits for the answer until `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> Option<VcpuView> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.view.is_some() {
                return state.view;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return None;
            }
            state = self
                .answered
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Called by the vCPU's thread outside the guest: answers if there is a question.
    pub(crate) fn answer(&self, vcpu: &VcpuFd) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.asked {
            return;
        }
        state.asked = false;
        state.view = view(vcpu);
        self.answered.notify_all();
    }
}

fn view(vcpu: &VcpuFd) -> Option<VcpuView> {
    let activity = match vcpu.get_mp_state().ok()?.mp_state {
        KVM_MP_STATE_HALTED => Activity::Halted,
        KVM_MP_STATE_UNINITIALIZED => Activity::NotStarted,
        _ => Activity::Running,
    };
    let registers = vcpu.get_regs().ok()?;
    Some(VcpuView {
        activity,
        interrupts: registers.rflags & RFLAGS_INTERRUPTS != 0,
        rip: registers.rip,
    })
}
