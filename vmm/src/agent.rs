//! The host's end of the agent port: who may stand there, and what the machine tells them.
//!
//! The device asks a [`Gate`]; the machine has a few more things to say: the VM is over, some time
//! has passed. Both together are an [`AgentSide`]. A [`Vm`](crate::Vm) puts the executions' hub
//! there ([`HubSide`](crate::hub_side::HubSide)); a machine that is only booted has [`NoAgent`], or a
//! gate of the caller's ([`GateAlone`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_exec::Link;
use forebay_virtio_console::{Closed, Console, Gate, HEADER_LEN, Outgoing, Verdict};

use crate::boot_report::{BootClock, Moment};
use crate::deadline::{Deadline, Deadlines};
use crate::error::HostError;
use crate::stop::{Lifecycle, StopReason};
use crate::threads;

/// How long the end of the VM may take to follow the reset of the console device that precedes it.
const RESET_GRACE: Duration = Duration::from_millis(500);

/// The host's end of the agent port.
///
/// All calls come from the VM's threads and must not block.
pub(crate) trait AgentSide: Gate {
    /// The VM is over: its vCPUs have stopped and all they sent has been judged. Called once, before
    /// any waiter for the VM's end learns of it.
    fn vm_stopped(&self, reason: &StopReason);

    /// The device was reset a while ago, and the VM has not ended since. See [`Threshold`].
    fn reset_stands(&self) {}

    /// The time asked for has passed. Called first soon after the guest opened its port.
    fn tick(&self) -> Tick {
        Tick::Never
    }

    /// Executions may have had their time, or readers are to be told of output. Gives when to ask
    /// again; what comes earlier is told by [`Link::expire_at`].
    fn expire(&self) -> Option<Instant> {
        None
    }

    /// The VM stands still: time does until [`release_time`](Self::release_time), and neither
    /// [`expire`](Self::expire) nor [`tick`](Self::tick) is called. Of a machine that is restored it
    /// stands from the beginning, without a call.
    fn hold_time(&self) {}

    /// The VM is about to go on. What was to be called before is called that much later by itself.
    fn release_time(&self) {}

    /// Whether there is a connection on this side, for a machine that is restored; `None` if that is
    /// of no interest.
    fn expects_connection(&self) -> Option<bool> {
        None
    }

    /// Whether the agent takes commands. Asked when the boot deadline is over.
    fn is_ready(&self) -> bool {
        false
    }
}

/// What an [`AgentSide`] wants of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tick {
    /// Call [`AgentSide::tick`] again after this.
    Again(Duration),
    /// The same, but the agent is silent: see whether the guest has halted for good.
    Silent(Duration),
    /// The agent is lost, for this reason: end the VM.
    Lost(String),
    /// Do not call again.
    Never,
}

/// Lets what an [`AgentSide`] has for the guest out, and has the VM's own thread keep its
/// deadlines. Keeps the device's memory, not the VM's threads: drop it with the machine.
#[derive(Debug, Clone)]
pub(crate) struct Transmitter {
    console: Arc<Console>,
    lifecycle: Arc<Lifecycle>,
    deadlines: Arc<Deadlines>,
}

impl Transmitter {
    pub(crate) fn new(
        console: Arc<Console>,
        lifecycle: Arc<Lifecycle>,
        deadlines: Arc<Deadlines>,
    ) -> Self {
        Self {
            console,
            lifecycle,
            deadlines,
        }
    }
}

impl Link for Transmitter {
    /// A panic in here ends the VM, as one on the VM's own threads does, and goes no further: the
    /// caller is an application, perhaps inside the drop of a handle, and learns of it as of any
    /// other end.
    fn transmit(&self) {
        if let Err(message) = threads::catch(|| self.console.transmit()) {
            let thread = std::thread::current();
            self.lifecycle.stop(StopReason::Internal {
                thread: thread.name().unwrap_or("of the host program").to_owned(),
                message,
            });
        }
    }

    /// Without a timer nobody would keep the deadline, which ends the VM as it does on the loop.
    fn expire_at(&self, at: Instant) {
        if let Err(e) = self.deadlines.bring_forward(Deadline::Executions, at) {
            self.lifecycle.stop(StopReason::Host {
                error: HostError::new("timerfd_settime", e).to_string(),
            });
        }
    }
}

/// Nobody: frames from the guest are thrown away, and none are sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoAgent;

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

/// A gate that needs to know nothing else.
pub(crate) struct GateAlone(pub(crate) Arc<dyn Gate>);

impl Gate for GateAlone {
    fn judge(&self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        self.0.judge(head, rest)
    }

    fn room_for(&self, len: usize) -> Vec<u8> {
        self.0.room_for(len)
    }

    fn deliver(&self, payload: Vec<u8>) -> Result<(), &'static str> {
        self.0.deliver(payload)
    }

    fn next_to_guest(&self) -> Option<Outgoing> {
        self.0.next_to_guest()
    }

    fn opened(&self) {
        self.0.opened();
    }

    fn closed(&self, why: Closed) {
        self.0.closed(why);
    }

    fn settle(&self) {
        self.0.settle();
    }
}

impl AgentSide for GateAlone {
    fn vm_stopped(&self, _reason: &StopReason) {}
}

/// Passes everything on, and sees the agent come and go: it notes when the port was first opened,
/// and starts the agent's clock.
///
/// A guest's kernel that shuts down resets its devices first and ends the VM a moment later. So that
/// an end can be told by its true reason, the agent side may keep a [`Closed::Reset`] to itself until
/// it hears of the VM's end, or that there was none.
pub(crate) struct Threshold {
    inner: Arc<dyn AgentSide>,
    /// The agent's clock runs.
    ticking: AtomicBool,
    clock: Arc<BootClock>,
    deadlines: Arc<Deadlines>,
}

impl Threshold {
    pub(crate) fn new(
        inner: Arc<dyn AgentSide>,
        clock: Arc<BootClock>,
        deadlines: Arc<Deadlines>,
    ) -> Self {
        Self {
            inner,
            ticking: AtomicBool::new(false),
            clock,
            deadlines,
        }
    }

    /// There is an agent to keep an eye on, until the VM ends: an agent side that has begun says
    /// itself when it wants to be called again. Should the timer fail, the boot deadline or the
    /// application's own patience is left.
    pub(crate) fn keep_an_eye(&self) {
        if self.ticking.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err(error) = self.deadlines.set(Deadline::Agent, Some(Instant::now())) {
            tracing::warn!(%error, "no timer for the agent");
        }
    }
}

impl Gate for Threshold {
    fn judge(&self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        self.inner.judge(head, rest)
    }

    fn room_for(&self, len: usize) -> Vec<u8> {
        self.inner.room_for(len)
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
        self.keep_an_eye();
    }

    fn closed(&self, why: Closed) {
        let reset = matches!(why, Closed::Reset);
        self.inner.closed(why);
        if reset {
            let at = Instant::now() + RESET_GRACE;
            if let Err(error) = self.deadlines.set(Deadline::Reset, Some(at)) {
                // Then it is told with the next opening, or with the VM's end.
                tracing::warn!(%error, "no timer for the device's reset");
            }
        }
    }

    fn settle(&self) {
        self.inner.settle();
    }
}

#[cfg(test)]
#[path = "agent_test.rs"]
mod tests;
