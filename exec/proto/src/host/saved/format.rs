//! What stands in a state file, version 1.
//!
//! Only what nothing else says: flags that follow from a list, counts of entries and the order of
//! requests are worked out at the restore, so that they cannot contradict each other. Everything
//! is in arrays, by position. Bodies of messages are as on the wire.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use minicbor::{Decode, Encode};

use crate::credit::{SavedReceiver, SavedSender};
use crate::frame::Stream;
use crate::host::execution::{InputState, Terminal};
use crate::id::ExecId;
use crate::message::{Bootstrap, Ready, TerminalSize, decode_names};
use crate::schedule::Order;

/// A connection after Ready.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) struct ConnV1 {
    /// What the connection began with.
    #[n(0)]
    pub(super) bootstrap: Bootstrap,
    #[n(1)]
    pub(super) ready: Ready,
    /// The last execution id that was handed out, zero for none.
    #[n(2)]
    pub(super) last_id: u64,
    /// In rising order of their ids.
    #[n(3)]
    pub(super) execs: Vec<ExecV1>,
    #[n(4)]
    pub(super) order: Order,
    #[n(5)]
    pub(super) controls: Vec<ControlV1>,
    /// A ping that has not left.
    #[n(6)]
    pub(super) ping_due: Option<u64>,
    /// Pings that left and were not answered.
    #[n(7)]
    pub(super) pings: u64,
    #[n(8)]
    pub(super) power_off: Option<PowerOffV1>,
    /// Rules that the guest broke so far.
    #[n(9)]
    pub(super) faults: u64,
    /// Frames of unknown kinds that were skipped so far.
    #[n(10)]
    pub(super) skipped: u64,
    /// The number of the last quiesce or renewal.
    #[n(11)]
    pub(super) asked: u64,
    /// Every execution is frozen, until a renewal.
    #[n(12)]
    pub(super) frozen: bool,
    /// Capabilities of the agent that the host may have used. Whoever goes on must know them all.
    #[n(13)]
    #[cbor(decode_with = "decode_names")]
    pub(super) relies_on: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) enum ControlV1 {
    #[n(0)]
    Signal {
        #[n(0)]
        id: ExecId,
        #[n(1)]
        signal: u32,
    },
    #[n(1)]
    Resize {
        #[n(0)]
        id: ExecId,
        #[n(1)]
        size: TerminalSize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(super) struct PowerOffV1 {
    #[n(0)]
    pub(super) reboot: bool,
    #[n(1)]
    pub(super) grace_ms: u32,
    /// It has not left on this connection.
    #[n(2)]
    pub(super) due: bool,
}

/// An execution that is still known.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) struct ExecV1 {
    #[n(0)]
    pub(super) id: ExecId,
    #[n(1)]
    pub(super) phase: PhaseV1,
    #[n(2)]
    pub(super) condemned: bool,
    #[n(3)]
    pub(super) stdin: StdinV1,
    #[n(4)]
    pub(super) window: SavedReceiver,
    #[n(5)]
    pub(super) stdout: OutputV1,
    #[n(6)]
    pub(super) stderr: OutputV1,
    /// What was not delivered, in the order in which it came.
    #[n(7)]
    pub(super) unread: Vec<UnreadV1>,
    /// Set as soon as it has started.
    #[n(8)]
    pub(super) pid: Option<u32>,
    /// Nobody was told yet that it started.
    #[n(9)]
    pub(super) started_unread: bool,
    #[n(10)]
    pub(super) terminal: Option<Terminal>,
    /// Its reader was told the end.
    #[n(11)]
    pub(super) terminal_read: bool,
    #[n(12)]
    pub(super) forgotten: bool,
    #[n(13)]
    pub(super) kill: KillV1,
    /// For people.
    #[n(14)]
    pub(super) program: String,
    /// Until it has ended.
    #[n(15)]
    pub(super) deadline: Option<DeadlineV1>,
    #[n(16)]
    pub(super) on_terminal: bool,
}

/// A deadline. Times are what is left, since the clock stays behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(super) struct DeadlineV1 {
    /// What the execution was given.
    #[n(0)]
    pub(super) limit: Duration,
    #[n(1)]
    pub(super) stage: StageV1,
    /// What was left of it at its start.
    #[n(2)]
    pub(super) left: Option<Duration>,
    /// It was being killed for another reason when it expired.
    #[n(3)]
    pub(super) killed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(super) enum StageV1 {
    #[n(0)]
    Running {
        #[n(0)]
        left: Duration,
    },
    /// It has expired, and the end may still be confirmed in time.
    #[n(1)]
    Expired {
        #[n(0)]
        left: Duration,
        /// How long output has waited for the application since that was set.
        #[n(1)]
        waited: Duration,
        /// Bytes of output that have come since it expired.
        #[n(2)]
        received: u64,
    },
    #[n(2)]
    Unconfirmed,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) enum PhaseV1 {
    #[n(0)]
    Requesting {
        #[n(0)]
        #[cbor(with = "payload")]
        rest: Bytes,
        #[n(1)]
        begun: bool,
    },
    #[n(1)]
    Starting,
    #[n(2)]
    Started,
    #[n(3)]
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) struct StdinV1 {
    #[n(0)]
    pub(super) credit: SavedSender,
    #[n(1)]
    #[cbor(with = "payload")]
    pub(super) pending: Bytes,
    #[n(2)]
    pub(super) state: InputState,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) struct OutputV1 {
    /// Bytes accepted since the start.
    #[n(0)]
    pub(super) received: u64,
    #[n(1)]
    pub(super) discard: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) enum UnreadV1 {
    /// A chunk, or the rest of one that was read in part.
    #[n(0)]
    Stdout(
        #[n(0)]
        #[cbor(with = "payload")]
        Bytes,
    ),
    #[n(1)]
    Stderr(
        #[n(0)]
        #[cbor(with = "payload")]
        Bytes,
    ),
    /// The report of what the state of stdin says.
    #[n(2)]
    StdinError,
}

impl UnreadV1 {
    pub(super) fn chunk(stream: Stream, data: Bytes) -> Self {
        match stream {
            Stream::Stdout => Self::Stdout(data),
            Stream::Stderr => Self::Stderr(data),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(super) enum KillV1 {
    #[n(0)]
    No,
    #[n(1)]
    Due,
    #[n(2)]
    Sent,
}

/// Byte strings. Decoding copies each into an allocation of its own size.
mod payload {
    use bytes::Bytes;
    use minicbor::decode::{Decoder, Error as DecodeError};
    use minicbor::encode::{Encoder, Error as EncodeError, Write};

    pub(super) fn encode<Ctx, W: Write>(
        data: &Bytes,
        encoder: &mut Encoder<W>,
        _: &mut Ctx,
    ) -> Result<(), EncodeError<W::Error>> {
        encoder.bytes(data)?;
        Ok(())
    }

    pub(super) fn decode<Ctx>(
        decoder: &mut Decoder<'_>,
        _: &mut Ctx,
    ) -> Result<Bytes, DecodeError> {
        decoder.bytes().map(Bytes::copy_from_slice)
    }
}
