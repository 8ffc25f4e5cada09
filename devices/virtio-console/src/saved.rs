//! The device in a snapshot, and the way back.
//!
//! Saved is what neither guest memory nor the transport's registers say: where each ring stands,
//! what the control queue has still to say, whether the agent's port is open, the frame that is
//! partly placed, and the counters. Whether frames may go to the guest follows from the channel;
//! who serves the ring, how fast it was kicked and what was left over are found out anew.
//!
//! The bytes are input like any other, and the rules are those that a live device keeps whenever
//! nobody is at work in it.

use std::sync::Arc;

use bytes::Bytes;
use forebay_virtio::saved::{self, must};
use forebay_virtio::{Activation, RestoreError, SavedQueueV1, Virtqueue};

use crate::agent_from_guest::{Channel, FromGuestCounters};
use crate::agent_to_guest::{AgentToGuest, Link, Placing, Telling, ToGuestCounters};
use crate::console_port::ConsolePort;
use crate::control::{Control, Outbox};
use crate::device::{Console, lock};
use crate::gate::{FRAME_MAX, HEADER_LEN, Outgoing};
use crate::hold::Held;
use crate::queues::QueueIndex;
use crate::saved_format::{
    ChannelV1, ConsolePortV1, ConsoleV1, ControlV1, FromGuestV1, PlacingV1, ToGuestV1,
};

const WHAT: &str = "console device";

/// The version of the saved form that this library writes, and the only one that it reads.
const VERSION: u32 = 1;

/// No counter that counts gets here.
const COUNTER_MAX: u64 = u64::MAX / 2;

type Rule = &'static str;

/// The device at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedConsole(ConsoleV1);

impl SavedConsole {
    /// Whether a connection is up on port 1: whether the gate, saved at the same moment, has one.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.0.channel == ChannelV1::Open
    }

    /// The bytes for the state file: some hundreds, and one frame of at most 32 KiB.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        saved::encode(VERSION, &self.0)
    }

    /// Reads what [`encode`](Self::encode) wrote. Checks the form alone; the rules are checked by
    /// [`Console::restore`].
    ///
    /// # Errors
    /// [`RestoreError::Version`] or [`RestoreError::Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RestoreError> {
        saved::decode(WHAT, VERSION, bytes).map(Self)
    }
}

impl Held {
    /// The device as it stands. Whoever stands behind the gate is saved at the same hold: every
    /// frame that the gate gave is placed, or here, or was lost with its connection.
    #[must_use]
    pub fn save(&self) -> SavedConsole {
        let device = self.console();
        let control = lock(&device.control);
        let console = lock(&device.console);
        let from_guest = lock(&device.from_guest);
        let to_guest = lock(&device.to_guest);
        SavedConsole(ConsoleV1 {
            console: ConsolePortV1::from(&*console),
            control: ControlV1::from(&*control),
            channel: from_guest.channel.into(),
            from_guest: FromGuestV1::from(&*from_guest),
            to_guest: ToGuestV1::from(&*to_guest),
        })
    }
}

impl Console {
    /// Gives a device that was just made, and never activated, the state that another one had, and
    /// holds it still. `activation` is what
    /// [`MmioTransport::restore`](forebay_virtio::MmioTransport::restore) found in its registers.
    ///
    /// The gate is not told of a connection that [was up](SavedConsole::is_connected): it is one
    /// that was restored itself, and has that connection. It may be called as soon as the device is
    /// let go.
    ///
    /// # Errors
    /// [`RestoreError::Rule`] names the rule that a live device could not have broken. The device is
    /// as it was.
    pub fn restore(
        self: &Arc<Self>,
        saved: &SavedConsole,
        activation: Option<Activation>,
    ) -> Result<Held, RestoreError> {
        let held = self.hold();
        let parts = Parts::from_saved(&saved.0, activation)
            .map_err(|rule| RestoreError::Rule { what: WHAT, rule })?;
        *lock(&self.console) = parts.console;
        *lock(&self.control) = parts.control;
        {
            let mut port = lock(&self.from_guest);
            port.queue = parts.agent_from_guest;
            port.channel = parts.channel;
            port.counters = parts.counters;
        }
        *lock(&self.to_guest) = parts.to_guest;
        Ok(held)
    }
}

/// What a saved state comes to, judged.
struct Parts {
    console: ConsolePort,
    control: Control,
    channel: Channel,
    agent_from_guest: Option<Virtqueue>,
    counters: FromGuestCounters,
    to_guest: AgentToGuest,
}

impl Parts {
    fn from_saved(saved: &ConsoleV1, activation: Option<Activation>) -> Result<Self, Rule> {
        let ConsoleV1 {
            console,
            control,
            channel,
            from_guest,
            to_guest,
        } = saved;
        let mut built = activation.map_or_else(Vec::new, |activation| activation.queues);
        let mut queue = |index: QueueIndex, saved: Option<SavedQueueV1>| match (
            index.take(&mut built),
            saved,
        ) {
            (None, None) => Ok(None),
            (Some(mut queue), Some(saved)) => queue.restore(saved).map(|()| Some(queue)),
            (Some(_), None) | (None, Some(_)) => {
                Err("the device and its transport have different queues")
            }
        };
        let console_from_guest = queue(QueueIndex::ConsoleFromGuest, console.from_guest)?;
        let control_to_guest = queue(QueueIndex::ControlToGuest, control.to_guest)?;
        let control_from_guest = queue(QueueIndex::ControlFromGuest, control.from_guest)?;
        let agent_to_guest = queue(QueueIndex::AgentToGuest, to_guest.queue)?;
        let agent_from_guest = queue(QueueIndex::AgentFromGuest, from_guest.queue)?;
        let heard = control_from_guest.is_some();

        let outbox = Outbox::restore(control.due, control.sent)
            .ok_or("the host's control messages are due or sent in no order that there is")?;
        must(
            heard || (control.due == 0 && control.sent == 0),
            "control messages are due and nobody could have asked for them",
        )?;
        must(
            control.sent == 0 || control_to_guest.is_some(),
            "control messages were sent and there is no queue for them",
        )?;

        let (channel, link) = match channel {
            ChannelV1::Closed => (Channel::Closed, Link::Closed),
            ChannelV1::Open => (Channel::Open, Link::Open),
            ChannelV1::Broken => (Channel::Broken, Link::Closed),
        };
        must(
            heard || channel == Channel::Closed,
            "the agent's port is open and nobody could have opened it",
        )?;
        let alive = |queue: &Option<Virtqueue>| {
            let queue = queue.as_ref();
            queue.is_some_and(|queue| queue.fault().is_none())
        };
        must(
            link != Link::Open || (alive(&agent_from_guest) && alive(&agent_to_guest)),
            "the agent's port is open and a queue of it is missing or dead",
        )?;
        must(
            link == Link::Open || to_guest.placing.is_none(),
            "a frame is on its way through a port that is not open",
        )?;
        check_counters(saved)?;

        Ok(Self {
            console: ConsolePort {
                from_guest: console_from_guest,
                chains: console.chains,
                bytes: console.bytes,
                dropped_chains: console.dropped_chains,
            },
            control: Control {
                from_guest: control_from_guest,
                to_guest: control_to_guest,
                outbox,
                received: control.received,
                ignored: control.ignored,
                placed: control.placed,
            },
            channel,
            agent_from_guest,
            counters: FromGuestCounters {
                chains: from_guest.chains,
                dropped_chains: from_guest.dropped_chains,
                frames: from_guest.frames,
                payload_bytes: from_guest.payload_bytes,
                discarded_frames: from_guest.discarded_frames,
                discarded_bytes: from_guest.discarded_bytes,
                handovers: from_guest.handovers,
            },
            to_guest: AgentToGuest {
                queue: agent_to_guest,
                link,
                placing: to_guest.placing.as_ref().map(restore_placing).transpose()?,
                dry: false,
                telling: Telling::default(),
                counters: ToGuestCounters {
                    buffers: to_guest.buffers,
                    frames: to_guest.frames,
                    bytes: to_guest.bytes,
                    ran_dry: to_guest.ran_dry,
                },
            },
        })
    }
}

fn restore_placing(saved: &PlacingV1) -> Result<Placing, Rule> {
    let whole = HEADER_LEN.saturating_add(saved.body.len());
    let done = saved.done as usize;
    must(
        whole <= FRAME_MAX,
        "the frame on its way is longer than any frame",
    )?;
    must(
        done < whole,
        "the frame on its way has arrived and is still on its way",
    )?;
    Ok(Placing {
        frame: Outgoing {
            head: saved.head,
            body: Bytes::copy_from_slice(&saved.body),
            can_wait: false,
        },
        done,
    })
}

/// Counters that could not have been counted would overflow one day, or mislead whoever reads them.
fn check_counters(saved: &ConsoleV1) -> Result<(), Rule> {
    let ConsoleV1 {
        console,
        control,
        channel: _,
        from_guest,
        to_guest,
    } = saved;
    let counters = [
        console.chains,
        console.bytes,
        control.received,
        control.placed,
        from_guest.chains,
        from_guest.frames,
        from_guest.payload_bytes,
        from_guest.discarded_bytes,
        from_guest.handovers,
        to_guest.buffers,
        to_guest.frames,
        to_guest.bytes,
        to_guest.ran_dry,
    ];
    must(
        counters.iter().all(|counter| *counter <= COUNTER_MAX),
        "a counter stands where nobody can have counted to",
    )?;
    must(
        console.dropped_chains <= console.chains
            && control.ignored <= control.received
            && from_guest.dropped_chains <= from_guest.chains
            && from_guest.discarded_frames <= from_guest.frames,
        "more was dropped than came",
    )
}

#[cfg(test)]
#[path = "saved_test.rs"]
mod tests;

#[cfg(test)]
#[path = "saved_rules_test.rs"]
mod rules_tests;
