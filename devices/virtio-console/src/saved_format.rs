//! What stands in a state file of the console device, version 1. Everything is in arrays, by
//! position.
//!
//! Live structs are taken apart field by field, so that one with a new field compiles again when it
//! was decided whether that belongs into a snapshot.

use forebay_virtio::{SavedQueueV1, Virtqueue};
use minicbor::{Decode, Encode};

use crate::agent_from_guest::{AgentFromGuest, Channel, FromGuestCounters};
use crate::agent_to_guest::{AgentToGuest, ToGuestCounters};
use crate::console_port::ConsolePort;
use crate::control::{Control, Outbox};
use crate::gate::HEADER_LEN;

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ConsoleV1 {
    #[n(0)]
    pub(crate) console: ConsolePortV1,
    #[n(1)]
    pub(crate) control: ControlV1,
    #[n(2)]
    pub(crate) channel: ChannelV1,
    #[n(3)]
    pub(crate) from_guest: FromGuestV1,
    #[n(4)]
    pub(crate) to_guest: ToGuestV1,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ConsolePortV1 {
    #[n(0)]
    pub(crate) from_guest: Option<SavedQueueV1>,
    #[n(1)]
    pub(crate) chains: u64,
    #[n(2)]
    pub(crate) bytes: u64,
    #[n(3)]
    pub(crate) dropped_chains: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ControlV1 {
    #[n(0)]
    pub(crate) from_guest: Option<SavedQueueV1>,
    #[n(1)]
    pub(crate) to_guest: Option<SavedQueueV1>,
    /// Bits of the host's messages, in the order of sending.
    #[n(2)]
    pub(crate) due: u8,
    #[n(3)]
    pub(crate) sent: u8,
    #[n(4)]
    pub(crate) received: u64,
    #[n(5)]
    pub(crate) ignored: u64,
    #[n(6)]
    pub(crate) placed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub(crate) enum ChannelV1 {
    #[n(0)]
    Closed,
    #[n(1)]
    Open,
    #[n(2)]
    Broken,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct FromGuestV1 {
    #[n(0)]
    pub(crate) queue: Option<SavedQueueV1>,
    #[n(1)]
    pub(crate) chains: u64,
    #[n(2)]
    pub(crate) dropped_chains: u64,
    #[n(3)]
    pub(crate) frames: u64,
    #[n(4)]
    pub(crate) payload_bytes: u64,
    #[n(5)]
    pub(crate) discarded_frames: u64,
    #[n(6)]
    pub(crate) discarded_bytes: u64,
    #[n(7)]
    pub(crate) handovers: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ToGuestV1 {
    #[n(0)]
    pub(crate) queue: Option<SavedQueueV1>,
    #[n(1)]
    pub(crate) placing: Option<PlacingV1>,
    #[n(2)]
    pub(crate) buffers: u64,
    #[n(3)]
    pub(crate) frames: u64,
    #[n(4)]
    pub(crate) bytes: u64,
    #[n(5)]
    pub(crate) ran_dry: u64,
}

/// A frame that the gate counts as sent and of which the guest has the first bytes.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct PlacingV1 {
    #[cbor(n(0), with = "minicbor::bytes")]
    pub(crate) head: [u8; HEADER_LEN],
    #[cbor(n(1), with = "minicbor::bytes")]
    pub(crate) body: Vec<u8>,
    #[n(2)]
    pub(crate) done: u32,
}

impl From<Channel> for ChannelV1 {
    fn from(live: Channel) -> Self {
        match live {
            Channel::Closed => Self::Closed,
            Channel::Open => Self::Open,
            Channel::Broken => Self::Broken,
        }
    }
}

impl From<&ConsolePort> for ConsolePortV1 {
    fn from(live: &ConsolePort) -> Self {
        let ConsolePort {
            from_guest,
            chains,
            bytes,
            dropped_chains,
        } = live;
        Self {
            from_guest: from_guest.as_ref().map(Virtqueue::save),
            chains: *chains,
            bytes: *bytes,
            dropped_chains: *dropped_chains,
        }
    }
}

impl From<&Control> for ControlV1 {
    fn from(live: &Control) -> Self {
        let Control {
            from_guest,
            to_guest,
            outbox: Outbox { due, sent },
            received,
            ignored,
            placed,
        } = live;
        Self {
            from_guest: from_guest.as_ref().map(Virtqueue::save),
            to_guest: to_guest.as_ref().map(Virtqueue::save),
            due: *due,
            sent: *sent,
            received: *received,
            ignored: *ignored,
            placed: *placed,
        }
    }
}

impl From<&AgentFromGuest> for FromGuestV1 {
    fn from(live: &AgentFromGuest) -> Self {
        let AgentFromGuest {
            queue,
            channel: _,
            owner: _,
            cadence: _,
            counters:
                FromGuestCounters {
                    chains,
                    dropped_chains,
                    frames,
                    payload_bytes,
                    discarded_frames,
                    discarded_bytes,
                    handovers,
                },
        } = live;
        Self {
            queue: queue.as_ref().map(Virtqueue::save),
            chains: *chains,
            dropped_chains: *dropped_chains,
            frames: *frames,
            payload_bytes: *payload_bytes,
            discarded_frames: *discarded_frames,
            discarded_bytes: *discarded_bytes,
            handovers: *handovers,
        }
    }
}

impl From<&AgentToGuest> for ToGuestV1 {
    fn from(live: &AgentToGuest) -> Self {
        let AgentToGuest {
            queue,
            link: _,
            placing,
            dry: _,
            telling: _,
            counters:
                ToGuestCounters {
                    buffers,
                    frames,
                    bytes,
                    ran_dry,
                },
        } = live;
        Self {
            queue: queue.as_ref().map(Virtqueue::save),
            placing: placing.as_ref().map(|placing| PlacingV1 {
                head: placing.frame.head,
                body: placing.frame.body.to_vec(),
                // Below the length of a frame.
                done: placing.done as u32,
            }),
            buffers: *buffers,
            frames: *frames,
            bytes: *bytes,
            ran_dry: *ran_dry,
        }
    }
}
