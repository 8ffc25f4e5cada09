//! The executions' hub at the host's end of the agent port.
//!
//! Translates between the device's words and the hub's, and watches whether the agent is alive.
//!
//! # When an agent counts as lost
//! From when it has first been ready it is pinged every two seconds. After two pings in a row without
//! an answer the vCPUs are looked at: a guest that has halted with interrupts off is over. After 30
//! without an answer (a minute in which the guest was running) the agent is lost. The count is of
//! pings, not of time, so that a host that was suspended, or a process that was stopped, blames
//! nobody. An agent that opens its port again begins anew.
//!
//! # When the device is reset
//! The hub is told a little later, unless the VM ends: its end is then what everybody learns.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use forebay_exec::{Hub, Verdict as Judgement};
use forebay_virtio_console::{Closed, Gate, HEADER_LEN, Outgoing, Verdict};

use crate::agent::{AgentSide, Tick};
use crate::stop::StopReason;

/// The device saves a frame that is partly placed, and takes none back that is longer than any.
const _: () = assert!(forebay_exec::FRAME_MAX == forebay_virtio_console::FRAME_MAX);

const PING_EVERY: Duration = Duration::from_secs(2);
/// Unanswered pings after which the guest is looked at.
const SILENT_AFTER: u32 = 2;
/// Unanswered pings after which the agent is lost.
const LOST_AFTER: u32 = 30;

/// See the module's description.
pub(crate) struct HubSide {
    hub: Arc<Hub>,
    pulse: Mutex<Pulse>,
    /// The device was reset, and the hub does not know. Locked while it is told, so that an opening
    /// cannot overtake.
    reset: Mutex<Option<Closed>>,
}

/// What is known of the agent's life.
#[derive(Debug, Default)]
struct Pulse {
    /// It has been ready once: before, the boot deadline watches over it.
    begun: bool,
    /// Number of the last ping sent.
    sent: u64,
    /// The answer seen last.
    answered: Option<u64>,
    /// Pings sent since an answer was seen.
    unanswered: u32,
}

impl HubSide {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        Self {
            hub,
            pulse: Mutex::default(),
            reset: Mutex::default(),
        }
    }

    fn pulse(&self) -> MutexGuard<'_, Pulse> {
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reset(&self) -> MutexGuard<'_, Option<Closed>> {
        self.reset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the hub of a reset that was kept back.
    fn tell_reset(&self, reset: &mut Option<Closed>) {
        if let Some(why) = reset.take() {
            self.hub.closed(&why.to_string());
        }
    }
}

impl Pulse {
    /// Takes note of the last answer, if it is a new one, and of a ping about to be sent.
    fn beat(&mut self, answered: Option<u64>) -> Tick {
        if answered != self.answered {
            self.answered = answered;
            self.unanswered = 0;
        }
        let unanswered = self.unanswered;
        self.sent += 1;
        self.unanswered += 1;
        if unanswered >= LOST_AFTER {
            Tick::Lost(format!(
                "{unanswered} pings, {PING_EVERY:?} apart, were not answered"
            ))
        } else if unanswered >= SILENT_AFTER {
            Tick::Silent(PING_EVERY)
        } else {
            Tick::Again(PING_EVERY)
        }
    }
}

impl Gate for HubSide {
    fn judge(&self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        match self.hub.judge(head, rest) {
            Judgement::Accept(len) => Verdict::Accept(len),
            Judgement::Discard(len) => Verdict::Discard(len),
            Judgement::Close(why) => Verdict::Close(why),
        }
    }

    fn room_for(&self, len: usize) -> Vec<u8> {
        self.hub.room_for(len)
    }

    fn deliver(&self, payload: Vec<u8>) -> Result<(), &'static str> {
        self.hub.deliver(payload)
    }

    fn next_to_guest(&self) -> Option<Outgoing> {
        let frame = self.hub.next_to_guest()?;
        Some(Outgoing {
            head: frame.head,
            body: frame.body,
            can_wait: frame.can_wait,
        })
    }

    fn opened(&self) {
        self.pulse().unanswered = 0;
        let mut reset = self.reset();
        self.tell_reset(&mut reset);
        self.hub.opened();
    }

    fn closed(&self, why: Closed) {
        let mut reset = self.reset();
        if matches!(why, Closed::Reset) {
            *reset = Some(why);
        } else {
            self.hub.closed(&why.to_string());
        }
    }

    fn settle(&self) {
        self.hub.settle();
    }
}

impl AgentSide for HubSide {
    fn vm_stopped(&self, reason: &StopReason) {
        self.hub.vm_gone(&reason.to_string());
    }

    fn reset_stands(&self) {
        self.tell_reset(&mut self.reset());
        self.hub.settle();
    }

    fn tick(&self) -> Tick {
        let ready = self.is_ready();
        let mut pulse = self.pulse();
        pulse.begun |= ready;
        if !pulse.begun {
            return Tick::Again(PING_EVERY);
        }
        let tick = pulse.beat(self.hub.last_pong());
        let ping = pulse.sent;
        drop(pulse);
        // Refused when there is no connection or no room: then it counts as unanswered.
        self.hub.ping(ping);
        tick
    }

    fn expire(&self) -> Option<Instant> {
        self.hub.expire()
    }

    fn expects_connection(&self) -> Option<bool> {
        Some(self.is_ready())
    }

    fn hold_time(&self) {
        self.hub.hold_time();
    }

    fn release_time(&self) {
        self.hub.release_time();
    }

    fn is_ready(&self) -> bool {
        let ready = pin!(self.hub.ready());
        let mut once = Context::from_waker(Waker::noop());
        matches!(ready.poll(&mut once), Poll::Ready(Ok(_)))
    }
}

#[cfg(test)]
#[path = "hub_side_test.rs"]
mod tests;
