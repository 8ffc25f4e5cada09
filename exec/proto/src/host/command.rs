//! What an application asks for: start, write, close, signal, kill, let go.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bytes::Bytes;

use super::deadline::{Deadline, is_limit};
use super::execution::{Exec, InputState, Keep, Peer, Phase};
use super::{Conn, Control, State};
use crate::frame::Stream;
use crate::id::ExecId;
use crate::limits::Limits;
use crate::message::{Request, StdinError, StdinMode, TerminalSize, cut_to, encode};
use crate::{CONTROL_QUEUE, REQUEST_MAX, WORD_CHARGE};

/// Where a command's stdin comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stdin {
    /// Nowhere: end of file at once.
    #[default]
    Null,
    /// From [`Conn::write_stdin`] until [`Conn::close_stdin`].
    Pipe,
    /// These bytes, then end of file. Sent without anybody polling.
    Bytes(Bytes),
}

/// A request made ready to be sent, and where its stdin comes from.
///
/// Made apart from [`Conn::start`] because encoding takes time in proportion to its size, which
/// must not be spent under whatever lock guards the connection.
#[derive(Debug, Clone)]
pub struct Start {
    request: Bytes,
    stdin: Stdin,
    /// For people who look at the connection.
    program: Box<str>,
    on_terminal: bool,
    bounded: bool,
    timeout: Option<Duration>,
}

impl Start {
    /// Encodes `request`, whose stdin mode is set from `stdin`.
    ///
    /// # Errors
    /// [`StartError::TooLarge`], found out before anything is copied where that is possible.
    pub fn new(mut request: Request, stdin: Stdin) -> Result<Self, StartError> {
        request.stdin = match stdin {
            Stdin::Null => StdinMode::Null,
            Stdin::Pipe | Stdin::Bytes(_) => StdinMode::Pipe,
        };
        let program = program(&request);
        let argv = request.argv.iter().map(|word| word.len());
        let env = request
            .env
            .iter()
            .map(|var| var.key.len().saturating_add(var.value.len()));
        let cwd = request.cwd.iter().map(|cwd| cwd.len());
        let words = request.argv.len().saturating_add(request.env.len());
        let charge = words.saturating_mul(WORD_CHARGE);
        let least = argv
            .chain(env)
            .chain(cwd)
            .fold(charge, usize::saturating_add);
        let too_large = |size| StartError::TooLarge {
            size,
            limit: REQUEST_MAX,
        };
        if least > REQUEST_MAX {
            return Err(too_large(least));
        }
        let encoded: Vec<u8> = encode(&request);
        let size = encoded.len().saturating_add(charge);
        if size > REQUEST_MAX {
            return Err(too_large(size));
        }
        Ok(Self {
            request: Bytes::from(encoded),
            stdin,
            program,
            on_terminal: request.terminal.is_some(),
            bounded: false,
            timeout: None,
        })
    }

    /// Bytes that its request takes: held until the last of them has left.
    #[must_use]
    pub fn request_len(&self) -> usize {
        self.request.len()
    }

    /// The same, to be refused by a [legacy guest](Conn#legacy-guests) with
    /// [`StartError::Unbounded`].
    #[must_use]
    pub fn demanding_bounds(self) -> Self {
        Self {
            bounded: true,
            ..self
        }
    }

    /// The same, to be killed when this time has passed since its admission; see
    /// [`Conn::expire`].
    ///
    /// # Errors
    /// [`StartError::Timeout`]: zero, or more than [`TIMEOUT_MAX`](super::TIMEOUT_MAX).
    pub fn with_timeout(self, limit: Duration) -> Result<Self, StartError> {
        if !is_limit(limit) {
            return Err(StartError::Timeout { limit });
        }
        Ok(Self {
            timeout: Some(limit),
            ..self
        })
    }
}

/// An execution that was not admitted. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartError {
    /// `max_executions` are active. Never queued: try again when one has ended and was read.
    AtCapacity {
        /// The limit.
        limit: u32,
        /// Executions that hold a slot now.
        active: u32,
    },
    /// The encoded request is larger than [`REQUEST_MAX`]. Only [`Start::new`] says this.
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The largest size accepted.
        limit: usize,
    },
    /// Its timeout is zero, or beyond [`TIMEOUT_MAX`](super::TIMEOUT_MAX) or the end of the clock.
    Timeout {
        /// The timeout.
        limit: Duration,
    },
    /// It demands bounds, and the agent keeps none.
    Unbounded,
    /// The agent has not said Ready yet.
    NotReady,
    /// The connection ended, with the reason.
    Closed(String),
}

/// A write or close that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteError {
    /// Another write of this execution is under way.
    Busy,
    /// Stdin was closed before, or is no pipe.
    Closed,
    /// The command no longer reads its stdin.
    Broken(StdinError),
    /// The execution has ended.
    Ended,
}

/// A control that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlError {
    /// [`CONTROL_QUEUE`] controls wait; a [`ControlRoom`](super::Notice::ControlRoom) notice
    /// tells when to try again.
    Full,
    /// The execution has ended; there is no process that the control could reach.
    Ended,
    /// The request has not left yet; a signal must not overtake it.
    NotStarted,
    /// The connection is not up.
    Closed,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtCapacity { limit, active } => {
                write!(
                    f,
                    "{active} executions are active, max_executions is {limit}"
                )
            }
            Self::TooLarge { size, limit } => {
                write!(
                    f,
                    "the request takes {size} bytes, at most {limit} are accepted"
                )
            }
            Self::Timeout { limit } => write!(
                f,
                "a timeout of {limit:?} cannot be kept; more than zero and at most 292 000 years can"
            ),
            Self::Unbounded => f.write_str("the agent in the guest keeps no limits"),
            Self::NotReady => f.write_str("the agent in the guest is not ready yet"),
            Self::Closed(reason) => write!(f, "the connection to the guest ended: {reason}"),
        }
    }
}

impl core::error::Error for StartError {}

impl Conn {
    /// Admits an execution and queues its request. The admission is this call: whoever holds
    /// the lock around the connection makes it atomic over all clients.
    ///
    /// # Errors
    /// See [`StartError`]; nothing was admitted and no id is used up.
    pub fn start(&mut self, start: Start) -> Result<ExecId, StartError> {
        match &self.state {
            State::Closed(reason) => return Err(StartError::Closed(reason.clone())),
            State::Waiting | State::Greeting => return Err(StartError::NotReady),
            State::Ready => {}
        }
        if start.bounded && self.legacy {
            return Err(StartError::Unbounded);
        }
        let now = self.time.now();
        let deadline = match start.timeout {
            None => None,
            Some(limit) => Some(Deadline::begin(limit, now).ok_or(StartError::Timeout { limit })?),
        };
        let id = self.admit(|limits, peer| {
            let mut exec = Exec::new(limits, start.request, start.program, peer);
            exec.on_terminal = start.on_terminal;
            match start.stdin {
                Stdin::Null => {}
                Stdin::Pipe => exec.input.state = InputState::Open,
                Stdin::Bytes(bytes) => {
                    exec.input.pending = bytes;
                    exec.input.state = InputState::Closing;
                }
            }
            exec.deadline = deadline;
            exec
        })?;
        self.deadlines
            .extend(deadline.and_then(|deadline| Some((deadline.next()?, id))));
        Ok(id)
    }

    /// Gives an execution a slot and an id, and puts its request in line.
    pub(super) fn admit(
        &mut self,
        make: impl FnOnce(&Limits, Peer) -> Exec,
    ) -> Result<ExecId, StartError> {
        let limit = self.config.limits.max_executions;
        if self.active >= limit {
            return Err(StartError::AtCapacity {
                limit,
                active: self.active,
            });
        }
        let id = self.ids.next().map_err(|_| {
            StartError::Closed(String::from("all execution ids of this VM are used"))
        })?;
        let mut exec = make(&self.config.limits, self.peer());
        exec.observe(self.time);
        self.execs.insert(id, exec);
        self.active = self.active.saturating_add(1);
        self.requests.push_back(id);
        self.schedule_request();
        Ok(id)
    }

    /// Whether a part of the request has not left yet; [`what::REQUESTED`](super::what::REQUESTED)
    /// tells when it has.
    #[must_use]
    pub fn is_requesting(&self, id: ExecId) -> bool {
        self.execs.get(&id).is_some_and(Exec::requesting)
    }

    /// Whether the guest has not heard of the execution: no byte of its request has left.
    #[must_use]
    pub fn is_unheard_of(&self, id: ExecId) -> bool {
        let phase = self.execs.get(&id).map(|exec| &exec.phase);
        matches!(phase, Some(Phase::Requesting { begun: false, .. }))
    }

    /// Submits one write. The bytes are not copied: frames are cut from them as allowance
    /// permits. [`pending_stdin`](Self::pending_stdin) reaching zero means that every byte was
    /// handed to the channel, not that the command read it. Empty `data` does nothing.
    ///
    /// # Errors
    /// See [`WriteError`]; nothing was taken.
    pub fn write_stdin(&mut self, id: ExecId, data: Bytes) -> Result<(), WriteError> {
        let exec = self.execs.get_mut(&id).ok_or(WriteError::Ended)?;
        writable(exec)?;
        if !exec.input.pending.is_empty() {
            return Err(WriteError::Busy);
        }
        exec.input.pending = data;
        self.schedule_slot(id);
        Ok(())
    }

    /// Bytes of the write under way that were not handed to the channel yet.
    #[must_use]
    pub fn pending_stdin(&self, id: ExecId) -> usize {
        self.execs
            .get(&id)
            .map_or(0, |exec| exec.input.pending.len())
    }

    /// Takes back what of the write under way was not handed over. It was never charged; what
    /// was handed over stays charged until the guest acknowledges it.
    pub fn cancel_write(&mut self, id: ExecId) {
        if let Some(exec) = self.execs.get_mut(&id)
            && exec.input.state == InputState::Open
        {
            exec.drop_pending(&mut self.dropped);
            exec.observe(self.time);
        }
    }

    /// Commits the end of stdin, after everything submitted before. Doing it again is fine.
    ///
    /// # Errors
    /// [`WriteError::Broken`] or [`WriteError::Ended`]: there is nothing left to close.
    pub fn close_stdin(&mut self, id: ExecId) -> Result<(), WriteError> {
        let exec = self.execs.get_mut(&id).ok_or(WriteError::Ended)?;
        match writable(exec) {
            Ok(()) => exec.input.state = InputState::Closing,
            Err(WriteError::Closed) => return Ok(()),
            Err(other) => return Err(other),
        }
        self.schedule_slot(id);
        Ok(())
    }

    /// Why stdin cannot be written any more, or `Ok` while it can.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn stdin_state(&self, id: ExecId) -> Result<(), WriteError> {
        self.execs.get(&id).map_or(Err(WriteError::Ended), writable)
    }

    /// Queues a signal for the execution's process group.
    ///
    /// # Errors
    /// See [`ControlError`]; nothing was queued.
    pub fn signal(&mut self, id: ExecId, signal: u32) -> Result<(), ControlError> {
        self.controllable(id)?;
        self.push_control(Control::Signal { id, signal })
    }

    /// Queues a new size for the execution's terminal. One without a terminal ignores it.
    ///
    /// # Errors
    /// See [`ControlError`]; nothing was queued.
    pub fn resize(&mut self, id: ExecId, size: TerminalSize) -> Result<(), ControlError> {
        self.controllable(id)?;
        self.push_control(Control::Resize { id, size })
    }

    /// Kills everything in the execution. A mark, not a queued control: it cannot be refused
    /// for lack of room, and before `Started` the guest keeps it until there is a process.
    ///
    /// # Errors
    /// [`ControlError::Ended`]: there is nothing left to kill.
    pub fn kill(&mut self, id: ExecId) -> Result<(), ControlError> {
        let exec = self.execs.get_mut(&id).ok_or(ControlError::Ended)?;
        if exec.ended() {
            return Err(ControlError::Ended);
        }
        if matches!(exec.phase, Phase::Requesting { begun: false, .. }) {
            // Not one byte of the request was sent, so the guest never hears of it.
            let failure = crate::message::Failure {
                kind: crate::message::FailureKind::Other,
                errno: None,
                stage: String::from("start"),
                message: String::from("killed before it was sent to the guest"),
            };
            self.finish(id, super::Terminal::Failed(failure));
            return Ok(());
        }
        if !exec.kill_sent {
            self.mark_killed(id);
        }
        Ok(())
    }

    /// [Kills](Self::kill) every execution of which the last handle is gone.
    pub fn kill_forgotten(&mut self) {
        let forgotten = self.execs.iter().filter(|(_, exec)| exec.forgotten);
        let ids: Vec<ExecId> = forgotten.map(|(id, _)| *id).collect();
        for id in ids {
            // One that has ended is as it should be.
            let _ = self.kill(id);
        }
    }

    /// Asks the guest for a sign of life. A mark, not a queued control: whether a guest counts as
    /// alive must not depend on how many signals somebody has queued. At most [`CONTROL_QUEUE`]
    /// may be unanswered, since the guest owes a reply to each, and one unsent.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn ping(&mut self, seq: u64) -> Result<(), ControlError> {
        if !self.is_ready() {
            return Err(ControlError::Closed);
        }
        if self.ping_due.is_some() || self.pings >= CONTROL_QUEUE {
            return Err(ControlError::Full);
        }
        self.ping_due = Some(seq);
        Ok(())
    }

    /// Asks the guest to end: SIGTERM to everything, SIGKILL after `grace_ms` milliseconds,
    /// sync, then power-off or reboot. Goes before everything else; the last call wins. Without a
    /// connection it waits for one, and since a connection may end before the guest has read it,
    /// every later one begins with it too.
    pub fn power_off(&mut self, reboot: bool, grace_ms: u32) {
        self.power_off = Some((reboot, grace_ms));
        self.power_off_due = true;
    }

    /// Throws away a stream's output, what is held and what will come, and gives the credit
    /// back, so that the command never waits for a reader that is gone. Cannot be undone.
    pub fn discard(&mut self, id: ExecId, stream: Stream) {
        if let Some(exec) = self.execs.get_mut(&id) {
            exec.output(stream).keep = Keep::Discard;
            exec.drop_queued(stream);
            self.schedule_ack(id);
            self.settle(id);
        }
    }

    /// The last handle is gone: output is discarded, stdin gets its end, and the entry goes
    /// when the guest has confirmed the end. Does not kill; see [`kill`](Self::kill).
    pub fn forget(&mut self, id: ExecId) {
        for stream in Stream::ALL {
            self.discard(id, stream);
        }
        // An execution that has ended has no stdin to close, which is as good.
        let _: Result<(), WriteError> = self.close_stdin(id);
        if let Some(exec) = self.execs.get_mut(&id) {
            // Nothing, unless the counters differ, which must not hold the slot for ever.
            exec.release_passed(u64::MAX);
            exec.forgotten = true;
            exec.left = false;
            exec.stdin_event = None;
            self.settle(id);
        }
    }

    /// Whether a control may be queued for an execution.
    fn controllable(&self, id: ExecId) -> Result<(), ControlError> {
        let exec = self.execs.get(&id).ok_or(ControlError::Ended)?;
        if exec.ended() || exec.terminal.is_some() {
            return Err(ControlError::Ended);
        }
        if exec.requesting() {
            return Err(ControlError::NotStarted);
        }
        Ok(())
    }

    fn push_control(&mut self, control: Control) -> Result<(), ControlError> {
        if !self.is_ready() {
            return Err(ControlError::Closed);
        }
        self.schedule
            .push_control(control)
            .map_err(|_| ControlError::Full)
    }
}

/// Longest name of a program that is kept for people, in bytes.
pub(super) const PROGRAM_MAX: usize = 64;

/// The last part of the program's name, as far as it is kept.
fn program(request: &Request) -> Box<str> {
    let word = request.argv.first().map_or(&[][..], |word| word.as_slice());
    let name = word.rsplit(|byte| *byte == b'/').next().unwrap_or(word);
    let name = name.get(..PROGRAM_MAX).unwrap_or(name);
    let mut name = String::from_utf8_lossy(name).into_owned();
    // A byte that is no text becomes a sign of three.
    cut_to(&mut name, PROGRAM_MAX);
    name.into()
}

pub(super) fn writable(exec: &Exec) -> Result<(), WriteError> {
    if exec.ended() || exec.terminal.is_some() {
        return Err(WriteError::Ended);
    }
    match &exec.input.state {
        InputState::Open => Ok(()),
        InputState::Closing | InputState::Closed => Err(WriteError::Closed),
        InputState::Broken(error) => Err(WriteError::Broken(error.clone())),
    }
}
