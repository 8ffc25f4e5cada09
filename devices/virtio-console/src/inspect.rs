//! The device's state as a value, for a person who debugs.
//!
//! Locks are taken one after another, so the parts may be of slightly different moments. Taking
//! it disturbs nothing.

use forebay_virtio::{QueueView, Virtqueue};
use serde::Serialize;

use crate::agent_from_guest::{AgentFromGuest, Channel, FromGuestCounters, Owner};
use crate::agent_to_guest::{AgentToGuest, ToGuestCounters};
use crate::device::{Console, lock};

/// The whole device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// Port 0.
    pub console: ConsoleView,
    /// The control queues.
    pub control: ControlView,
    /// Port 1.
    pub agent: AgentPortView,
}

/// Port 0. Counters run from the device's making, over resets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConsoleView {
    /// The output queue, once the driver enabled it.
    pub from_guest: Option<QueueView>,
    /// Chains taken.
    pub chains: u64,
    /// Bytes given to the sink.
    pub bytes: u64,
    /// Chains whose bytes were dropped because they were malformed or absurdly long.
    pub dropped_chains: u64,
}

/// The control queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ControlView {
    /// The queue from the guest, once the driver enabled it.
    pub from_guest: Option<QueueView>,
    /// The queue to the guest, likewise.
    pub to_guest: Option<QueueView>,
    /// Messages from the guest.
    pub received: u64,
    /// Those that meant nothing.
    pub ignored: u64,
    /// Messages to the guest.
    pub placed: u64,
    /// Whether a message waits for a buffer of the guest.
    pub due: bool,
}

/// Port 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AgentPortView {
    /// `closed`, `open`, or `broken` until the guest opens the port again.
    pub channel: &'static str,
    /// Who serves the queue from the guest at its next kick: `vcpu` or `event_loop`.
    pub owner: &'static str,
    /// The queue from the guest, once the driver enabled it.
    pub from_guest: Option<QueueView>,
    /// The queue to the guest, likewise.
    pub to_guest: Option<QueueView>,
    /// Whether a frame to the guest waits for buffers, partly placed.
    pub placing: bool,
    /// Chains taken.
    pub chains_from_guest: u64,
    /// Chains dropped unread: the port was not open, or they were malformed.
    pub dropped_chains: u64,
    /// Frames judged.
    pub frames_from_guest: u64,
    /// Payload bytes delivered to the gate.
    pub bytes_from_guest: u64,
    /// Frames the gate had discarded.
    pub discarded_frames: u64,
    /// Their payload bytes.
    pub discarded_bytes: u64,
    /// Times the ring went from a vCPU thread to the event loop.
    pub handovers: u64,
    /// Frames placed whole.
    pub frames_to_guest: u64,
    /// Bytes placed, headers included.
    pub bytes_to_guest: u64,
    /// Guest buffers filled.
    pub buffers_to_guest: u64,
    /// Times the guest's buffers ran out.
    pub ran_dry: u64,
}

impl Console {
    /// The device's state: cursors, flags and counters.
    #[must_use]
    pub fn inspect(&self) -> Inspection {
        let control = {
            let control = lock(&self.control);
            ControlView {
                from_guest: view(&control.from_guest),
                to_guest: view(&control.to_guest),
                received: control.received,
                ignored: control.ignored,
                placed: control.placed,
                due: control.is_due(),
            }
        };
        let console = {
            let port = lock(&self.console);
            ConsoleView {
                from_guest: view(&port.from_guest),
                chains: port.chains,
                bytes: port.bytes,
                dropped_chains: port.dropped_chains,
            }
        };
        let agent = agent_view(&lock(&self.from_guest), &lock(&self.to_guest));
        Inspection {
            console,
            control,
            agent,
        }
    }
}

fn agent_view(from_guest: &AgentFromGuest, to_guest: &AgentToGuest) -> AgentPortView {
    let FromGuestCounters {
        chains,
        dropped_chains,
        frames,
        payload_bytes,
        discarded_frames,
        discarded_bytes,
        handovers,
    } = from_guest.counters;
    let ToGuestCounters {
        buffers,
        frames: frames_to_guest,
        bytes,
        ran_dry,
    } = to_guest.counters;
    AgentPortView {
        channel: match from_guest.channel {
            Channel::Closed => "closed",
            Channel::Open => "open",
            Channel::Broken => "broken",
        },
        owner: match from_guest.owner {
            Owner::Vcpu => "vcpu",
            Owner::EventLoop => "event_loop",
        },
        from_guest: view(&from_guest.queue),
        to_guest: view(&to_guest.queue),
        placing: to_guest.is_placing(),
        chains_from_guest: chains,
        dropped_chains,
        frames_from_guest: frames,
        bytes_from_guest: payload_bytes,
        discarded_frames,
        discarded_bytes,
        handovers,
        frames_to_guest,
        bytes_to_guest: bytes,
        buffers_to_guest: buffers,
        ran_dry,
    }
}

fn view(queue: &Option<Virtqueue>) -> Option<QueueView> {
    queue.as_ref().map(Virtqueue::view)
}
