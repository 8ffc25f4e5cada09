//! Who stands behind the agent port, as the machine knows it.
//!
//! The device asks a [`Gate`]; the machine has a few more things to say: the VM is over, a deadline
//! has come. Both together are an [`AgentSide`]. The executions' hub is one; [`NoAgent`] is the one
//! for a machine that is only booted.

use std::sync::Arc;
use std::time::Duration;

use forebay_virtio_console::{Closed, Gate, HEADER_LEN, Outgoing, Verdict};

use crate::boot_report::{BootClock, Moment};
use crate::stop::StopReason;

/// The host's end of the agent port.
///
/// All calls come from the VM's threads and must not block.
pub trait AgentSide: Gate {
    /// The VM is over: its vCPUs have stopped and all they sent has been judged. Called once, before
    /// any waiter for the VM's end learns of it.
    fn vm_stopped(&self, reason: &StopReason);

    /// The time asked for has passed; the answer is the time to the next call, `None` for never.
    /// Called first when the guest opens its port.
    fn tick(&self) -> Tick {
        Tick::default()
    }
}

/// What an [`AgentSide`] wants of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tick {
    /// Call [`AgentSide::tick`] again after this.
    pub again: Option<Duration>,
    /// The agent is lost, for this reason: end the VM.
    pub lost: Option<String>,
}

/// Nobody: frames from the guest are thrown away, and none are sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAgent;

impl Gate for NoAgent {
    fn judge(&self, _head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        Verdict::Discard(rest)
    }

    fn deliver(&self, _payload: Vec<u8>) -> Result<(), &'static str> {
        Ok(())
    }

    fn next_to_guest(&self) -> Option<Outgoing> {
        None
    }

    fn opened(&self) {}

    fn closed(&self, _why: Closed) {}
}

impl AgentSide for NoAgent {
    fn vm_stopped(&self, _reason: &StopReason) {}
}

/// Passes everything on and notes when the port was first opened.
pub(crate) struct TimedGate {
    pub(crate) inner: Arc<dyn AgentSide>,
    pub(crate) clock: Arc<BootClock>,
}

impl Gate for TimedGate {
    fn judge(&self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        self.inner.judge(head, rest)
    }

    fn deliver(&self, payload: Vec<u8>) -> Result<(), &'static str> {
        self.inner.deliver(payload)
    }

    fn next_to_guest(&self) -> Option<Outgoing> {
        self.inner.next_to_guest()
    }

    fn opened(&self) {
        self.clock.note(Moment::PortOpened);
        self.inner.opened();
    }

    fn closed(&self, why: Closed) {
        self.inner.closed(why);
    }
}
