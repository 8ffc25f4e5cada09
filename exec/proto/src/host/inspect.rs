//! A look at the state of a connection, for people and for tests, and the same as a message: a
//! client of a relay may ask to see the VM's connection behind it.
//!
//! The message travels in pages of sixteen executions, one asked for at a time, so that a
//! question costs its answerer a bounded piece of work and of memory whatever there is to see.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use minicbor::decode::{Decoder, Error};
use minicbor::{Decode, Encode};

use super::execution::{Exec, InputState, Phase};
use super::stall::{Party, Stalls};
use super::{Conn, ControlError, Frame, State};
use crate::frame::{Header, OPTIONAL, ToGuest};
use crate::id::ExecId;
use crate::message::decode;

/// Executions in one page: with all their fields at their largest it fits the
/// room that any event may take.
pub(super) const PAGE: usize = 16;

/// One of [`NAMES`]. An alias, since the decoder's derive takes a lifetime that it sees for one
/// that it has to borrow for.
type Name = &'static str;

/// A connection at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct View {
    /// `waiting`, `greeting`, `ready` or `closed`.
    #[cbor(n(0), decode_with = "decode_name")]
    pub state: Name,
    /// Connections begun so far.
    #[n(1)]
    pub connection: u64,
    /// Executions that hold a slot.
    #[n(2)]
    pub active: u32,
    /// Controls in line.
    #[n(3)]
    pub controls: usize,
    /// Rules that the guest broke.
    #[n(4)]
    pub faults: u64,
    /// Frames of kinds that a newer agent knows, which may be skipped and were.
    #[n(5)]
    pub skipped: u64,
    /// Whether the agent keeps the limits; not so is a legacy guest, which keeps none.
    #[n(6)]
    pub bounded: bool,
    /// Every execution that is still known, in the order of their ids.
    #[n(7)]
    pub executions: Vec<ExecView>,
}

/// An execution at one moment. Counts are units of credit since its start: bytes, and for output
/// [`CHUNK_CHARGE`](crate::CHUNK_CHARGE) per chunk on top.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ExecView {
    /// Its id.
    #[cbor(n(0), encode_with = "encode_id", decode_with = "decode_id")]
    pub id: ExecId,
    /// The last part of its program's name, at most 64 bytes of it.
    #[n(1)]
    pub program: String,
    /// The program's process id in the guest, once it runs.
    #[n(2)]
    pub pid: Option<u32>,
    /// `requesting`, `starting`, `started`, `condemned` or `ended`.
    #[cbor(n(3), decode_with = "decode_name")]
    pub phase: Name,
    /// Whether it counts against `max_executions`.
    #[n(4)]
    pub admitted: bool,
    /// Output units received.
    #[n(5)]
    pub output_received: u64,
    /// Output units released.
    #[n(6)]
    pub output_released: u64,
    /// Output units released as far as the guest was told.
    #[n(7)]
    pub output_acked: u64,
    /// Output units that may still arrive before something is released.
    #[n(8)]
    pub output_window: u64,
    /// Payload bytes held for the application.
    #[n(9)]
    pub output_held: usize,
    /// Output units that a relay has passed on and its own reader has not consumed.
    #[n(10)]
    pub output_forwarded: u64,
    /// Chunks held for the application.
    #[n(11)]
    pub chunks_held: usize,
    /// Whom output waits for now: `application`, `link`, `command`, or `nobody` when it is over.
    #[cbor(n(12), decode_with = "decode_name")]
    pub output_waits_for: Name,
    /// How long output has waited for each.
    #[n(13)]
    pub output_stalls: Stalls,
    /// Stdin bytes sent.
    #[n(14)]
    pub stdin_sent: u64,
    /// Stdin bytes that the guest acknowledged.
    #[n(15)]
    pub stdin_acked: u64,
    /// Stdin bytes that may be sent now. A legacy guest has no such bound.
    #[n(16)]
    pub stdin_window: u64,
    /// Bytes of the write under way that are not sent yet.
    #[n(17)]
    pub stdin_pending: usize,
    /// `open`, `closing`, `closed` or `broken`.
    #[cbor(n(18), decode_with = "decode_name")]
    pub stdin: Name,
    /// Whom stdin waits for now, as with output.
    #[cbor(n(19), decode_with = "decode_name")]
    pub stdin_waits_for: Name,
    /// How long stdin has waited for each.
    #[n(20)]
    pub stdin_stalls: Stalls,
    /// Nobody holds it, and whoever asks for it by its id may. Said by whoever keeps the handles: a
    /// connection knows of none.
    #[n(21)]
    pub adoptable: bool,
}

/// One page of a look at the connection behind a relay.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Inspection {
    /// The connection, with the executions of this page.
    #[n(0)]
    pub view: View,
    /// There are executions with higher ids: ask again, after the highest of these.
    #[n(1)]
    pub more: bool,
}

/// The one look at the relay's VM that may be under way.
#[derive(Debug, Default)]
pub(super) enum Look {
    #[default]
    None,
    /// To be asked for: executions with ids above this.
    Due(u64),
    Asked,
    Answered(Box<Inspection>),
}

impl Conn {
    /// Describes the connection as it is now.
    #[must_use]
    pub fn inspect(&self) -> View {
        self.view(self.execs.iter())
    }

    /// The page of [`inspect`](Self::inspect) that begins above the id `after`.
    #[must_use]
    pub fn inspection(&self, after: u64) -> Inspection {
        let from = ExecId::new(after).map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.execs.range((from, Bound::Unbounded));
        Inspection {
            view: self.view(rest.by_ref().take(PAGE)),
            more: rest.next().is_some(),
        }
    }

    /// Asks the relay at the other end for a page of a look at its VM's connection: the
    /// executions with ids above `after`, zero for the first page. A relay that does not know the
    /// question never answers.
    ///
    /// # Errors
    /// [`ControlError::Full`] while a question is not answered or its answer not taken,
    /// [`ControlError::Closed`] without a connection to a relay.
    pub fn ask_inspection(&mut self, after: u64) -> Result<(), ControlError> {
        if !self.relayed || !self.is_ready() {
            return Err(ControlError::Closed);
        }
        if !matches!(self.look, Look::None) {
            return Err(ControlError::Full);
        }
        self.look = Look::Due(after);
        Ok(())
    }

    /// The answer to [`ask_inspection`](Self::ask_inspection), once.
    pub fn take_inspection(&mut self) -> Option<Inspection> {
        match core::mem::take(&mut self.look) {
            Look::Answered(page) => Some(*page),
            other => {
                self.look = other;
                None
            }
        }
    }

    /// The question, if one is due. Its kind may be skipped by a relay that does not know it.
    pub(super) fn build_inspect(&mut self) -> Option<Frame> {
        let Look::Due(after) = self.look else {
            return None;
        };
        self.look = Look::Asked;
        let body = Vec::from(after.to_le_bytes());
        let head = Header::new(ToGuest::Inspect.to_wire(), None, body.len());
        Some(Frame {
            head: head.with_flags(OPTIONAL).encode(),
            body: body.into(),
            can_wait: false,
        })
    }

    pub(super) fn take_page(&mut self, payload: &[u8]) -> Result<(), &'static str> {
        let page = decode(payload).ok_or("an inspection cannot be decoded")?;
        self.look = Look::Answered(Box::new(page));
        self.looked = true;
        Ok(())
    }

    fn view<'e>(&self, executions: impl Iterator<Item = (&'e ExecId, &'e Exec)>) -> View {
        let now = self.time.now();
        View {
            state: match self.state {
                State::Waiting => "waiting",
                State::Greeting => "greeting",
                State::Ready => "ready",
                State::Closed(_) => "closed",
            },
            connection: self.connection,
            active: self.active,
            controls: self.schedule.controls(),
            faults: self.faults,
            skipped: self.skipped,
            bounded: !self.legacy,
            executions: executions.map(|(id, exec)| exec.view(*id, now)).collect(),
        }
    }
}

impl Exec {
    fn view(&self, id: ExecId, now: core::time::Duration) -> ExecView {
        debug_assert_eq!(self.output_meter.party(), self.output_waits_for());
        debug_assert_eq!(self.stdin_meter.party(), self.stdin_waits_for());
        let held = self.stdout.held.saturating_add(self.stderr.held);
        let chunks = [&self.stdout, &self.stderr].map(|output| output.chunks.len());
        let name = |party: Option<Party>| party.map_or("nobody", Party::name);
        ExecView {
            id,
            program: self.program.clone().into(),
            pid: self.pid,
            phase: match self.phase {
                Phase::Ended => "ended",
                _ if self.condemned => "condemned",
                Phase::Requesting { .. } => "requesting",
                Phase::Starting => "starting",
                Phase::Started => "started",
            },
            admitted: self.admitted,
            output_received: self.window.received(),
            output_released: self.window.released(),
            output_acked: self.window.said(),
            output_window: self.window.available(),
            output_held: usize::try_from(held).unwrap_or(usize::MAX),
            output_forwarded: self.forwarded,
            chunks_held: chunks.into_iter().fold(0, usize::saturating_add),
            output_waits_for: name(self.output_meter.party()),
            output_stalls: self.output_meter.read(now),
            stdin_sent: self.input.credit.sent(),
            stdin_acked: self.input.credit.acked(),
            stdin_window: self.input.credit.available(),
            stdin_pending: self.input.pending.len(),
            stdin: match self.input.state {
                InputState::Open => "open",
                InputState::Closing => "closing",
                InputState::Closed => "closed",
                InputState::Broken(_) => "broken",
            },
            stdin_waits_for: name(self.stdin_meter.party()),
            stdin_stalls: self.stdin_meter.read(now),
            adoptable: false,
        }
    }
}

/// Every name in a [`View`].
const NAMES: [Name; 17] = [
    "waiting",
    "greeting",
    "ready",
    "closed",
    "requesting",
    "starting",
    "started",
    "condemned",
    "ended",
    "open",
    "closing",
    "broken",
    "application",
    "link",
    "command",
    "nobody",
    "unknown",
];

/// Reads one of [`NAMES`]; one that only a newer peer knows is `unknown`.
fn decode_name<C>(d: &mut Decoder<'_>, _ctx: &mut C) -> Result<Name, Error> {
    let name = d.str()?;
    let known = NAMES.iter().find(|known| **known == name);
    Ok(known.copied().unwrap_or("unknown"))
}

fn encode_id<C, W: minicbor::encode::Write>(
    id: &ExecId,
    e: &mut minicbor::Encoder<W>,
    _ctx: &mut C,
) -> Result<(), minicbor::encode::Error<W::Error>> {
    e.u64(id.get())?;
    Ok(())
}

fn decode_id<C>(d: &mut Decoder<'_>, _ctx: &mut C) -> Result<ExecId, Error> {
    ExecId::new(d.u64()?).ok_or_else(|| Error::message("an execution id of zero"))
}
