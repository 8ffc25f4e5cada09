//! What a vCPU is doing.

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

/// Looks at a vCPU, on its own thread.
pub(crate) fn view(vcpu: &VcpuFd) -> Option<VcpuView> {
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
