//! One execution as the guest's end sees it.

use alloc::collections::VecDeque;

use crate::CHUNK_CHARGE;
use crate::credit::{Receiver, Sender};
use crate::frame::Stream;
use crate::id::ExecId;
use crate::limits::Limits;
use crate::message::{Adopted, ExitStatus, Failure, StdinError, TimedOut};

/// The last frame of an execution.
#[derive(Debug, Clone)]
pub(super) enum Terminal {
    Exited(ExitStatus),
    Failed(Failure),
    /// It ended by a deadline that is kept behind a relay.
    TimedOut(TimedOut),
    /// It goes on behind the relay, under this id.
    Left(ExecId),
}

/// A stream's way from the command to the channel. It holds no bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Output {
    pub(super) readable: bool,
    pub(super) ended: bool,
}

impl Output {
    pub(super) fn can_be_read(&self) -> bool {
        self.readable && !self.ended
    }
}

#[derive(Debug, Clone)]
pub(super) struct Exec {
    pub(super) stdin: VecDeque<u8>,
    pub(super) stdin_credit: Receiver,
    pub(super) stdin_eof: bool,
    /// The command reads no more: what arrives is released at once.
    pub(super) stdin_done: bool,
    pub(super) window: Sender,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    /// The stream whose turn it is, so that neither starves the other.
    pub(super) turn: Stream,
    /// The answer to an adoption, which comes first.
    pub(super) adopted_due: Option<Adopted>,
    pub(super) started_due: Option<u32>,
    pub(super) started: bool,
    pub(super) stdin_error_due: Option<StdinError>,
    pub(super) terminal: Option<Terminal>,
    pub(super) in_acks: bool,
    pub(super) in_slots: bool,
}

impl Exec {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            stdin: VecDeque::new(),
            stdin_credit: Receiver::new(limits.input_limit, 1),
            stdin_eof: false,
            stdin_done: false,
            window: Sender::new(limits.output_limit),
            stdout: Output::default(),
            stderr: Output::default(),
            turn: Stream::Stdout,
            adopted_due: None,
            started_due: None,
            started: false,
            stdin_error_due: None,
            terminal: None,
            in_acks: false,
            in_slots: false,
        }
    }

    pub(super) fn output(&mut self, stream: Stream) -> &mut Output {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Keeps the first end that is reported.
    pub(super) fn end(&mut self, terminal: Terminal) {
        if self.terminal.is_none() {
            self.terminal = Some(terminal);
        }
    }

    /// The stream to read next, if the allowance lets any byte through.
    pub(super) fn next_stream(&self) -> Option<Stream> {
        if !self.started || self.window.available() <= u64::from(CHUNK_CHARGE) {
            return None;
        }
        let (first, second) = match self.turn {
            Stream::Stdout => (Stream::Stdout, Stream::Stderr),
            Stream::Stderr => (Stream::Stderr, Stream::Stdout),
        };
        [first, second].into_iter().find(|stream| match stream {
            Stream::Stdout => self.stdout.can_be_read(),
            Stream::Stderr => self.stderr.can_be_read(),
        })
    }

    /// Whether the terminal may leave: both streams ended, and nothing else is owed.
    pub(super) fn terminal_due(&self) -> bool {
        self.terminal.is_some() && self.stdout.ended && self.stderr.ended
    }

    pub(super) fn slot_ready(&self) -> bool {
        self.adopted_due.is_some()
            || self.started_due.is_some()
            || (self.started && self.stdin_error_due.is_some())
            || self.next_stream().is_some()
            || self.terminal_due()
    }
}
