//! The host's end of a connection, for the life of a VM.
//!
//! How to drive it, in five verbs:
//!
//! * **inputs** from the channel: [`Conn::handle_opened`], [`Conn::judge`] then
//!   [`Conn::deliver`] for every frame, [`Conn::handle_closed`];
//! * **outputs** to the channel: [`Conn::poll_transmit`] whenever it has room, as long as
//!   [`Conn::wants_transmit`];
//! * **commands** of the application: [`Conn::start`], [`Conn::write_stdin`],
//!   [`Conn::close_stdin`], [`Conn::signal`], [`Conn::kill`], [`Conn::discard`],
//!   [`Conn::forget`], [`Conn::leave`], and the readers [`Conn::next_event`], [`Conn::read`],
//!   [`Conn::take_chunk`]; of the guest as a whole [`Conn::quiesce`], [`Conn::renew`],
//!   [`Conn::thaw`];
//! * **time**: [`Conn::expire`], when the [`Conn::next_deadline`] is reached; [`Conn::hold_time`]
//!   while the guest stands still;
//! * **notices**: after any of the above, drain [`Conn::poll_notice`] and wake whoever waits.
//!
//! Nothing blocks, and nothing waits for time by itself: the clock is read where an execution with a
//! deadline is admitted and starts, where a notice is first held back, and for the account that
//! [`Conn::inspect`] shows. All memory is bounded: per execution by its limits, per connection by
//! `max_executions` and [`CONTROL_QUEUE`](crate::CONTROL_QUEUE). An execution that has ended and was
//! read is a small entry until its handle is forgotten.
//!
//! An application's buffers are not dropped in here, since that may run the application's code
//! and whoever drives the connection usually holds a lock: they wait in
//! [`Conn::take_dropped`].

mod coalesce;
mod command;
mod config;
mod deadline;
mod due;
mod execution;
mod forward;
mod inspect;
mod leave;
mod quiesce;
mod read;
mod receive;
pub mod saved;
mod stall;
mod time;
mod transmit;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::mem;
use core::time::Duration;

use crate::frame::HEADER_LEN;
use crate::id::{ExecId, IdSource};
use crate::limits::Limits;
use crate::message::{Ready, TerminalSize};
use crate::schedule::Scheduler;

pub use coalesce::WITHIN as COALESCED_WITHIN;
pub use command::{ControlError, Start, StartError, Stdin, WriteError};
pub use config::{Clock, Config, ConfigError};
pub use deadline::{CONFIRM_WITHIN, TIMEOUT_MAX, TIMEOUT_STAGE};
pub use execution::Terminal;
pub use inspect::{ExecView, Inspection, View};
pub use quiesce::QuiesceError;
pub use read::{Event, Read};
pub use saved::{Progress, RestoreError, RestoreOptions, SaveError, SavedConn};
pub use stall::Stalls;
pub use time::Time;

use coalesce::Coalesced;
use execution::{Exec, Peer};
use inspect::Look;
use quiesce::Rest;

/// What to do with a frame whose header was just read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Copy this many payload bytes and hand them to [`Conn::deliver`].
    Accept(usize),
    /// Skip this many payload bytes.
    Discard(usize),
    /// Framing is broken: end the connection. The text says which rule.
    Close(&'static str),
}

/// A frame for the channel, in two parts so that a payload is never copied to be framed.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The encoded header.
    pub head: [u8; HEADER_LEN],
    /// The payload.
    pub body: Bytes,
    /// The agent looks for it by itself while it streams, and need not be interrupted for it then: an
    /// acknowledgement that comes long before it is needed.
    pub can_wait: bool,
}

/// Bits of [`Notice::Exec`].
pub mod what {
    /// Stdout has bytes.
    pub const STDOUT: u16 = 1;
    /// Stderr has bytes.
    pub const STDERR: u16 = 16;
    /// The command closed its stdin.
    pub const STDIN_ERROR: u16 = 32;
    /// The pending stdin write was handed over, or stdin ended.
    pub const WRITABLE: u16 = 2;
    /// The program runs, or it is known that it will not.
    pub const STARTED: u16 = 4;
    /// The execution ended.
    pub const TERMINAL: u16 = 8;
    /// The guest acknowledged stdin bytes.
    pub const STDIN_ACKED: u16 = 64;
    /// The request has left whole.
    pub const REQUESTED: u16 = 128;
    /// Its time is over, and the guest has not confirmed its end.
    pub const UNCONFIRMED: u16 = 256;
    /// It is to be killed.
    pub const KILLED: u16 = 512;
}

/// Something changed that somebody may wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// An execution; the bits are those of [`what`].
    Exec {
        /// Which one.
        id: ExecId,
        /// What changed.
        what: u16,
    },
    /// The control queue has room again.
    ControlRoom,
    /// The agent is ready; executions may start.
    Ready(Ready),
    /// The guest answered a ping.
    Pong(u64),
    /// The [`quiesce`](Conn::quiesce) of this number is over.
    Quiesced {
        /// What `quiesce` gave.
        seq: u64,
        /// Why nothing is frozen; `None` if everything is.
        error: Option<String>,
    },
    /// The [`renew`](Conn::renew) or [`thaw`](Conn::thaw) of this number is over.
    Renewed {
        /// What `renew` or `thaw` gave.
        seq: u64,
        /// Why nothing changed; `None` if everything goes on.
        error: Option<String>,
    },
    /// There is an answer to [`ask_inspection`](Conn::ask_inspection).
    Looked,
    /// The connection ended, with the reason.
    Closed(String),
}

/// Where the connection stands.
#[derive(Debug)]
enum State {
    /// The guest has not opened its port yet.
    Waiting,
    /// Bootstrap is due or sent, Ready is awaited.
    Greeting,
    Ready,
    /// This connection ended; a re-opened port begins the next.
    Closed(String),
}

/// The frame whose header was accepted and whose payload is being copied.
#[derive(Debug, Clone, Copy)]
struct Incoming {
    kind: crate::frame::FromGuest,
    exec: Option<ExecId>,
    len: usize,
}

/// Controls in line towards the guest.
#[derive(Debug, Clone, Copy)]
enum Control {
    Signal { id: ExecId, signal: u32 },
    Resize { id: ExecId, size: TerminalSize },
}

impl Control {
    fn id(&self) -> ExecId {
        match self {
            Self::Signal { id, .. } | Self::Resize { id, .. } => *id,
        }
    }
}

/// Largest payload of data from and to a legacy guest, in bytes.
const LEGACY_CHUNK: u32 = 4096;

/// The host's end; see the [module](self) for how to drive it.
///
/// # Legacy guests
/// A guest whose Ready names no `exec_limits` knows no flow control. With
/// [`Config::allow_legacy_guest`] it is taken all the same, and then
///
/// * data goes in chunks of at most 4 KiB both ways;
/// * stdin is sent as the channel takes it: how much of it lies in the guest is the guest's
///   affair, and `input_limit` bounds nothing;
/// * nobody is told what was read, so a slow reader does not slow its command. The host still
///   holds no more than `output_limit`: an execution of which more is unread fails, with stage
///   `protocol`, and is killed. `max_executions` holds as ever;
/// * an execution that [demands bounds](Start::demanding_bounds) is refused.
#[derive(Debug)]
pub struct Conn {
    config: Config,
    time: Time,
    /// The other end is a relay; see [`Conn::facing_relay`].
    relayed: bool,
    /// The agent of this connection keeps no limits.
    legacy: bool,
    state: State,
    /// The agent's Ready of the last connection that got there.
    agent: Option<Ready>,
    /// Connections begun in this VM's life; the guest repeats the number in its Ready.
    connection: u64,
    ids: IdSource,
    execs: BTreeMap<ExecId, Exec>,
    /// When which execution has to be looked at for its deadline: those that have one and have
    /// not ended.
    deadlines: BTreeSet<(Duration, ExecId)>,
    active: u32,
    schedule: Scheduler<Control>,
    bootstrap_due: bool,
    /// What was asked of the guest's end, for this connection and those that follow.
    power_off: Option<(bool, u32)>,
    /// It has not left on this connection.
    power_off_due: bool,
    /// Executions whose request has not left whole, in call order. Only the first is in the
    /// round-robin: the guest assembles one request at a time and sees ids in rising order.
    requests: VecDeque<ExecId>,
    incoming: Option<Incoming>,
    /// A ping that has not left yet.
    ping_due: Option<u64>,
    /// Pings that the guest has not answered.
    pings: usize,
    /// The application's buffers that nobody needs any more.
    dropped: Vec<Bytes>,
    /// Executions with notice bits set, each once.
    noticed: VecDeque<ExecId>,
    /// Notices of output that wait for more of it.
    coalesced: Coalesced,
    control_room: bool,
    ready_notice: Option<Ready>,
    pong_notice: Option<u64>,
    closed_notice: Option<String>,
    faults: u64,
    /// Frames of unknown kinds that were skipped, over all connections.
    skipped: u64,
    look: Look,
    /// Its answer has come, of which nobody was told.
    looked: bool,
    /// Whether the executions stand still.
    rest: Rest,
}

impl Conn {
    /// A connection that waits for the guest to open its port.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            time: Time::by(config.clock),
            config,
            relayed: false,
            legacy: false,
            state: State::Waiting,
            agent: None,
            connection: 0,
            ids: IdSource::new(),
            execs: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            active: 0,
            schedule: Scheduler::new(),
            bootstrap_due: false,
            power_off: None,
            power_off_due: false,
            requests: VecDeque::new(),
            incoming: None,
            ping_due: None,
            pings: 0,
            dropped: Vec::new(),
            noticed: VecDeque::new(),
            coalesced: Coalesced::default(),
            control_room: false,
            ready_notice: None,
            pong_notice: None,
            closed_notice: None,
            faults: 0,
            skipped: 0,
            look: Look::None,
            looked: false,
            rest: Rest::default(),
        }
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// The hostname that the guest was given.
    #[must_use]
    pub fn hostname(&self) -> Option<&str> {
        self.config.hostname.as_deref()
    }

    /// Executions that hold a slot of `max_executions`.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.active
    }

    /// Whether the agent answered the bootstrap and executions may start.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// The guest opened its port: a new connection begins with our bootstrap.
    pub fn handle_opened(&mut self) {
        if matches!(self.state, State::Greeting | State::Ready) {
            self.handle_closed("the guest opened its agent port again");
        }
        self.state = State::Greeting;
        self.legacy = false;
        self.forget_chain();
        self.connection = self.connection.saturating_add(1);
        self.bootstrap_due = true;
        self.power_off_due = self.power_off.is_some();
    }

    /// The channel is gone: every execution that has not ended is lost, with `reason`.
    pub fn handle_closed(&mut self, reason: &str) {
        if matches!(self.state, State::Closed(_)) {
            return;
        }
        self.state = State::Closed(String::from(reason));
        self.schedule.clear();
        self.bootstrap_due = false;
        self.requests.clear();
        self.incoming = None;
        self.ping_due = None;
        self.pings = 0;
        self.look = Look::None;
        self.rest.end();
        self.closed_notice = Some(String::from(reason));
        self.control_room = true;
        let ids: Vec<ExecId> = self.execs.keys().copied().collect();
        for id in ids {
            if let Some(exec) = self.execs.get_mut(&id) {
                exec.in_acks = false;
                exec.in_slots = false;
                exec.kill_due = false;
                // What is read from here on concerns nobody at the other end, nor a next one.
                exec.window.hush();
                if exec.ended() {
                    // It may have stayed for an acknowledgement that cannot leave any more.
                    self.settle(id);
                } else {
                    self.finish(id, Terminal::Lost(String::from(reason)));
                }
            }
        }
    }

    /// Whether [`poll_notice`](Self::poll_notice) may have something: most frames change nothing that
    /// anybody is told.
    #[must_use]
    pub fn has_notices(&self) -> bool {
        !self.noticed.is_empty()
            || self.ready_notice.is_some()
            || self.pong_notice.is_some()
            || self.rest.has_notice()
            || self.control_room
            || self.looked
            || self.closed_notice.is_some()
    }

    /// Takes the next notice. Each execution stands in line at most once, with all its bits.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        if let Some(ready) = self.ready_notice.take() {
            return Some(Notice::Ready(ready));
        }
        if let Some(seq) = self.pong_notice.take() {
            return Some(Notice::Pong(seq));
        }
        if let Some(notice) = self.rest.take_notice() {
            return Some(notice);
        }
        if mem::take(&mut self.control_room) {
            return Some(Notice::ControlRoom);
        }
        if mem::take(&mut self.looked) {
            return Some(Notice::Looked);
        }
        while let Some(id) = self.noticed.pop_front() {
            if let Some(exec) = self.execs.get_mut(&id) {
                let what = mem::take(&mut exec.notice);
                if what != 0 {
                    return Some(Notice::Exec { id, what });
                }
            }
        }
        self.closed_notice.take().map(Notice::Closed)
    }

    /// Buffers of the application that are done with. Drop them where its code may run: dropping
    /// the last reference to a buffer runs whatever its owner does then.
    #[must_use]
    pub fn take_dropped(&mut self) -> Vec<Bytes> {
        mem::take(&mut self.dropped)
    }

    /// Who is at the other end, as far as credit goes.
    fn peer(&self) -> Peer {
        match (self.relayed, self.legacy) {
            (true, _) => Peer::Relay,
            (false, true) => Peer::Legacy,
            (false, false) => Peer::Agent,
        }
    }

    /// The largest payload of data in one frame, when the limits say `advertised`.
    fn chunk(&self, advertised: u32) -> u32 {
        if self.legacy {
            LEGACY_CHUNK
        } else {
            advertised
        }
    }

    fn notice(&mut self, id: ExecId, bits: u16) {
        if let Some(exec) = self.execs.get_mut(&id) {
            if exec.notice == 0 {
                self.noticed.push_back(id);
            }
            exec.notice |= bits | mem::take(&mut exec.held_back);
        }
    }
}

#[cfg(test)]
mod tests;
