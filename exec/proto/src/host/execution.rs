//! One execution as the host sees it: four halves that end by themselves.
//!
//! ```text
//!  request   Sending(parts) ──► Sent
//!  stdin     Open ──close──► Closing(bytes still pending) ──► Closed      Broken at any time
//!  output    Keep ──discard──► Discard          per stream; both share one window
//!  end       Running ──Exited│Failed│Lost──► Ended, once; a rule broken: Condemned ──► Ended
//! ```

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::{Buf, Bytes};
use core::time::Duration;
use minicbor::{Decode, Encode};

use super::deadline::Deadline;
use super::leave::Leaving;
use super::stall::Meter;
use crate::credit::{Receiver, Sender};
use crate::frame::{CHUNK_CHARGE, Stream};
use crate::limits::Limits;
use crate::message::{ExitStatus, Failure, StdinError};

/// How an execution ended, once and for all.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Terminal {
    /// The command ran and ended.
    #[n(0)]
    Exited(#[n(0)] ExitStatus),
    /// The command never ran, or the guest broke the protocol of this execution.
    #[n(1)]
    Failed(#[n(0)] Failure),
    /// The connection or the VM ended first; whether the command ended is not known.
    #[n(2)]
    Lost(#[n(0)] String),
    /// The command ran, its time was over, and SIGKILL ended it.
    #[n(3)]
    TimedOut {
        /// How it ended.
        #[n(0)]
        status: ExitStatus,
        /// How long it was allowed, from its admission.
        #[n(1)]
        limit: Duration,
    },
}

/// A retained chunk of output. Its bytes are an allocation of their own size, never a slice of
/// a larger buffer; those of one that is read in part, at least half of it.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Place in the order in which both streams' chunks arrived.
    pub(super) seq: u64,
    pub(super) data: Bytes,
    /// Size of the allocation that `data` keeps.
    room: usize,
}

impl Chunk {
    /// `data` is an allocation of its own size.
    pub(super) fn new(seq: u64, data: Bytes) -> Self {
        let room = data.len();
        Self { seq, data, room }
    }

    /// Copies bytes from the front into `buf`; gives how many.
    fn read(&mut self, buf: &mut [u8]) -> usize {
        let n = self.data.len().min(buf.len());
        if let Some(buf) = buf.get_mut(..n) {
            self.data.copy_to_slice(buf);
        }
        self.fit();
        n
    }

    /// Passes over at most `most` bytes at the front; gives how many.
    pub(super) fn skip(&mut self, most: u64) -> u64 {
        let n = usize::try_from(most).map_or(self.data.len(), |most| most.min(self.data.len()));
        self.data.advance(n);
        self.fit();
        n as u64
    }

    /// What was released must not stay allocated for as long as the rest is unread, so a rest of
    /// less than half of its allocation moves to one of its own size. At least as many bytes were
    /// read before as are moved.
    fn fit(&mut self) {
        if self.data.len() < self.room.div_ceil(2) {
            self.data = Bytes::copy_from_slice(&self.data);
            self.room = self.data.len();
        }
    }
}

/// What happens to a stream's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Keep,
    Discard,
}

/// One output stream's receive side.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) keep: Keep,
    /// Held for a reader. Changed by [`push`](Self::push), [`pop`](Self::pop) and
    /// [`read`](Self::read) alone.
    pub(super) chunks: VecDeque<Chunk>,
    /// Bytes in `chunks`, counted so that a look at many chunks is as short as one at few.
    pub(super) held: u64,
    /// Bytes of this stream that were accepted since the start, kept or not.
    pub(super) received: u64,
    /// What a relay has passed on and its own reader has not consumed, should that reader go.
    pub(super) passed: VecDeque<Chunk>,
    /// Bytes in `passed`.
    pub(super) passed_bytes: u64,
}

impl Output {
    pub(super) fn new() -> Self {
        Self {
            keep: Keep::Keep,
            received: 0,
            chunks: VecDeque::new(),
            held: 0,
            passed: VecDeque::new(),
            passed_bytes: 0,
        }
    }

    /// Bytes that a reader is known to have taken, here or behind a relay, or that were thrown away.
    pub(super) fn consumed(&self) -> u64 {
        let kept = self.held.saturating_add(self.passed_bytes);
        self.received.saturating_sub(kept)
    }

    /// Puts a chunk behind those that are held.
    pub(super) fn push(&mut self, chunk: Chunk) {
        self.held = self.held.saturating_add(chunk.data.len() as u64);
        self.chunks.push_back(chunk);
    }

    /// Copies bytes of the front chunk into `buf`; gives how many, and whether they were its last,
    /// which takes it. `None` without a chunk.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> Option<(usize, bool)> {
        let chunk = self.chunks.front_mut()?;
        let n = chunk.read(buf);
        let whole = chunk.data.is_empty();
        self.held = self.held.saturating_sub(n as u64);
        if whole {
            self.pop();
        }
        Some((n, whole))
    }

    /// Takes the front chunk. The list gives memory back as it shrinks: what is retained for an
    /// empty window must not come on top of the next full one.
    pub(super) fn pop(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front()?;
        self.held = self.held.saturating_sub(chunk.data.len() as u64);
        let used = self.chunks.len();
        if self.chunks.capacity() / 4 >= used.max(8) {
            self.chunks.shrink_to(used.saturating_mul(2));
        }
        Some(chunk)
    }
}

/// Stdin's way from the application to the channel.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) credit: Sender,
    /// The one write under way: what of it was not yet handed to the channel.
    pub(super) pending: Bytes,
    pub(super) state: InputState,
}

#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(super) enum InputState {
    #[n(0)]
    Open,
    /// EOF is committed; it leaves when nothing is pending.
    #[n(1)]
    Closing,
    /// EOF was sent, or stdin never was a pipe.
    #[n(2)]
    Closed,
    #[n(3)]
    Broken(#[n(0)] StdinError),
}

/// Who is at the other end, as far as credit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Agent,
    /// Must hear of every release.
    Relay,
    /// An agent without credit in either direction.
    Legacy,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Request parts not yet sent.
    Requesting {
        rest: Bytes,
        /// A part was sent: the guest has heard of it.
        begun: bool,
    },
    /// Request sent, `Started` not seen.
    Starting,
    Started,
    Ended,
}

#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each marks membership in one list"
)]
pub(super) struct Exec {
    pub(super) phase: Phase,
    /// It broke a rule: the application has its terminal, and only the guest's confirmation of the
    /// end is still of interest.
    pub(super) condemned: bool,
    /// The last part of its program's name, for people.
    pub(super) program: Box<str>,
    /// Its streams are those of a terminal.
    pub(super) on_terminal: bool,
    pub(super) input: Input,
    pub(super) window: Receiver,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    /// Units of output that a relay has passed on and its own reader has not consumed.
    pub(super) forwarded: u64,
    /// Bytes of stdin that others had written before it was adopted.
    pub(super) stdin_base: u64,
    /// Next `seq` of an event.
    pub(super) seq: u64,
    pub(super) output_meter: Meter,
    pub(super) stdin_meter: Meter,
    pub(super) pid: Option<u32>,
    pub(super) started_event: bool,
    pub(super) stdin_event: Option<(u64, StdinError)>,
    pub(super) terminal: Option<Terminal>,
    pub(super) terminal_event: bool,
    /// Counts against `max_executions`.
    pub(super) admitted: bool,
    /// No handle is left; the entry goes with the guest's confirmation.
    pub(super) forgotten: bool,
    /// Nobody holds it and somebody may: it keeps its slot.
    pub(super) left: bool,
    /// A relay is asked to let it go on.
    pub(super) leaving: Leaving,
    /// It is asked for, and what stands for a request is its id in the relay's VM.
    pub(super) adopting: bool,
    pub(super) kill_due: bool,
    pub(super) kill_sent: bool,
    /// Until it has ended.
    pub(super) deadline: Option<Deadline>,
    /// Its request has waited for the acknowledgements that a relay must see first.
    pub(super) behind_acks: bool,
    pub(super) in_acks: bool,
    pub(super) in_slots: bool,
    pub(super) notice: u16,
    /// Bits of `notice` that wait for more output.
    pub(super) held_back: u16,
}

impl Exec {
    pub(super) fn new(limits: &Limits, request: Bytes, program: Box<str>, peer: Peer) -> Self {
        let credit = match peer {
            Peer::Agent | Peer::Relay => Sender::new(limits.input_limit),
            Peer::Legacy => Sender::unbounded(),
        };
        let window = match peer {
            Peer::Agent => Receiver::new(limits.output_limit, CHUNK_CHARGE.saturating_add(1)),
            Peer::Relay => Receiver::telling_all(limits.output_limit),
            Peer::Legacy => Receiver::telling_nothing(limits.output_limit),
        };
        Self {
            phase: Phase::Requesting {
                rest: request,
                begun: false,
            },
            condemned: false,
            program,
            on_terminal: false,
            input: Input {
                credit,
                pending: Bytes::new(),
                state: InputState::Closed,
            },
            window,
            stdout: Output::new(),
            stderr: Output::new(),
            forwarded: 0,
            stdin_base: 0,
            seq: 0,
            output_meter: Meter::default(),
            stdin_meter: Meter::default(),
            pid: None,
            started_event: false,
            stdin_event: None,
            terminal: None,
            terminal_event: false,
            admitted: true,
            forgotten: false,
            left: false,
            leaving: Leaving::No,
            adopting: false,
            kill_due: false,
            kill_sent: false,
            deadline: None,
            behind_acks: false,
            in_acks: false,
            in_slots: false,
            notice: 0,
            held_back: 0,
        }
    }

    pub(super) fn output(&mut self, stream: Stream) -> &mut Output {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Gives up the write under way. Its buffer is the application's: see
    /// [`Conn::take_dropped`](super::Conn::take_dropped).
    pub(super) fn drop_pending(&mut self, dropped: &mut Vec<Bytes>) {
        if !self.input.pending.is_empty() {
            dropped.push(core::mem::take(&mut self.input.pending));
        }
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        let seq = self.seq;
        self.seq = self.seq.saturating_add(1);
        seq
    }

    /// Whether a part of its request has not left yet.
    pub(super) fn requesting(&self) -> bool {
        matches!(self.phase, Phase::Requesting { .. })
    }

    /// Whether the guest said, or can no longer say, that this execution is over.
    pub(super) fn ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    /// Whether a kill is wanted and may leave: one that overtook the request would name an
    /// execution that the guest does not know yet.
    pub(super) fn kill_ready(&self) -> bool {
        self.kill_due && !self.requesting()
    }

    /// Whether a kill is wanted, or has left.
    pub(super) fn killed(&self) -> bool {
        self.kill_due || self.kill_sent
    }

    /// Whether its own messages have something that could leave now. A request also has to be
    /// the first in line.
    pub(super) fn slot_ready(&self) -> bool {
        match &self.phase {
            Phase::Requesting { .. } => true,
            Phase::Started if self.condemned => false,
            Phase::Started => match self.input.state {
                InputState::Open => {
                    !self.input.pending.is_empty() && self.input.credit.available() > 0
                }
                InputState::Closing => {
                    self.input.pending.is_empty() || self.input.credit.available() > 0
                }
                InputState::Closed | InputState::Broken(_) => false,
            },
            Phase::Starting | Phase::Ended => false,
        }
    }

    /// Throws away what is queued of `stream`, and kept of what was passed on, and gives its credit
    /// back.
    pub(super) fn drop_queued(&mut self, stream: Stream) {
        let units = self.output(stream).drop_passed(u64::MAX);
        self.release_passed(units);
        while let Some(chunk) = self.output(stream).pop() {
            self.consume(chunk.data.len(), true);
        }
    }

    /// Books `n` bytes as consumed; `whole` when that empties a chunk. A condemned execution's
    /// credit went back when it was condemned.
    pub(super) fn consume(&mut self, n: usize, whole: bool) {
        let charge = if whole { u64::from(CHUNK_CHARGE) } else { 0 };
        self.release((n as u64).saturating_add(charge));
    }

    /// Gives `units` of what was passed on back: at most all of it.
    pub(super) fn release_passed(&mut self, units: u64) {
        let units = units.min(self.forwarded);
        self.forwarded = self.forwarded.saturating_sub(units);
        self.release(units);
    }

    /// Gives `units` of credit back.
    pub(super) fn release(&mut self, units: u64) {
        if self.condemned {
            return;
        }
        // Only chunks that were charged on arrival get here, so this cannot exceed what is
        // outstanding; a refusal would keep credit back, never grant it.
        let released = self.window.release(units);
        debug_assert!(released.is_ok(), "released more than was outstanding");
    }

    /// Gives all outstanding credit back: whatever the application still has to read, the guest
    /// must be able to say what is left and confirm the end.
    pub(super) fn release_all(&mut self) {
        let outstanding = self.window.outstanding();
        let released = self.window.release(outstanding);
        debug_assert!(released.is_ok(), "what is outstanding can be released");
    }

    /// Whether no output is left that somebody has still to consume.
    pub(super) fn drained(&self) -> bool {
        self.stdout.chunks.is_empty() && self.stderr.chunks.is_empty() && self.forwarded == 0
    }
}
