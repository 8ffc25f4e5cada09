//! The guest's end of a connection: the agent's side.
//!
//! How to drive it:
//!
//! * **input**: [`Conn::handle_bytes`] with whatever the port gave, in any pieces; then drain
//!   [`Conn::poll_event`];
//! * **output**: whenever the port can be written, fill one buffer with
//!   [`Conn::poll_transmit`]. Output is *pulled*: [`Transmit::Read`] asks the agent to read a
//!   command's pipe now, straight into that buffer, and [`Conn::output_read`] frames it there.
//!   So the guest holds no output beyond the one buffer on its way to the port;
//! * **reports**: [`Conn::started`], [`Conn::stream_ready`], [`Conn::stdin_written`],
//!   [`Conn::exited`] and so on, as things happen to the processes.
//!
//! Undelivered stdin lives in one byte ring per execution, so a one-byte frame costs one byte.

mod decode;
mod execution;
mod quiesce;
mod relay;
mod transmit;

use alloc::collections::{BTreeMap, VecDeque};

use crate::id::ExecId;
use crate::limits::Limits;
use crate::message::{
    Answer, Bootstrap, ExitStatus, Failure, Leave, Quiesce, Ready, Renew, Request, StdinError,
    TerminalSize, cut,
};
use crate::schedule::{Scheduler, Slot};
use crate::{PeerFault, Stream};

use decode::Decoder;
use execution::{Exec, Terminal};
use quiesce::Rest;
use relay::Accounts;

pub use relay::Acked;

/// What the host asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// First event of a connection; answer with [`Conn::ready`].
    Bootstrap(Bootstrap),
    /// Run a command; answer with [`Conn::started`] or [`Conn::failed`].
    Start {
        /// The execution's id.
        id: ExecId,
        /// What to run.
        request: Request,
    },
    /// Hand an execution of the VM over; answer with [`Conn::adopted`] or [`Conn::failed`]. Only
    /// clients of a relay ask.
    Adopt {
        /// The execution's id from now on.
        id: ExecId,
        /// Its id in the VM.
        of: ExecId,
    },
    /// Let the execution go on for whoever adopts it; answer with [`Conn::left`]. Only clients of a
    /// relay ask.
    Leave {
        /// The execution.
        id: ExecId,
        /// What has to go on of it.
        leave: Leave,
    },
    /// [`Conn::stdin_pending`] has more bytes.
    StdinData(ExecId),
    /// Stdin ends behind the pending bytes.
    StdinEof(ExecId),
    /// Send a signal to the execution's process group.
    Signal {
        /// The execution.
        id: ExecId,
        /// Signal number.
        signal: u32,
    },
    /// Give the execution's terminal another size.
    Resize {
        /// The execution.
        id: ExecId,
        /// The new size.
        size: TerminalSize,
    },
    /// Kill everything in the execution, now or as soon as it has started.
    Kill(ExecId),
    /// Freeze every execution; answer with [`Conn::quiesced`], now or later.
    Quiesce(Quiesce),
    /// Do what it says and let go on what is frozen; answer with [`Conn::renewed`]. A quiesce that
    /// is under way is answered first: it has failed.
    Renew(Renew),
    /// End the guest.
    PowerOff {
        /// Reboot instead of powering off.
        reboot: bool,
        /// Milliseconds between SIGTERM and SIGKILL.
        grace_ms: u32,
    },
}

/// What to put into the write buffer next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transmit {
    /// A whole frame was written at the buffer's start; this is its length.
    Frame(usize),
    /// Read at most `max` bytes of this stream to offset
    /// [`HEADER_LEN`](crate::HEADER_LEN) of the buffer and call [`Conn::output_read`]; if there
    /// is nothing, call [`Conn::stream_ready`] with `false` or [`Conn::stream_ended`].
    Read {
        /// The execution.
        id: ExecId,
        /// Which of its streams.
        stream: Stream,
        /// Bytes that fit its allowance, the chunk size and the buffer.
        max: usize,
    },
    /// The next frame needs more room than the buffer has: write what is in it first.
    Full,
    /// Nothing to send.
    Idle,
}

/// Frames that one read of a pipe may fill: two writes of two frames of the usual size, which is what a
/// pipe holds. See [`Conn::further_read`].
pub const FRAMES_PER_READ: usize = 4;

/// Where the connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    AwaitBootstrap,
    /// The host's bootstrap was seen; Ready is owed.
    Greeted {
        connection: u64,
    },
    Ready,
}

/// Replies that belong to no execution.
#[derive(Debug, Clone)]
enum Reply {
    Ready(Ready),
    Pong(u64),
    Quiesced(Answer),
    Renewed(Answer),
}

/// Replies that may wait for the port: as many as the host may have pings unanswered, and Ready.
/// Beside them one answer to a quiesce and one to a renewal.
const REPLY_QUEUE: usize = crate::CONTROL_QUEUE + 1;

/// Ring memory that an execution keeps while it has no stdin pending, in bytes.
const STDIN_RING_KEPT: usize = 4096;

/// The guest's end; see the [module](self) for how to drive it.
#[derive(Debug, Clone)]
pub struct Conn {
    state: State,
    limits: Limits,
    decoder: Decoder,
    execs: BTreeMap<ExecId, Exec>,
    /// Highest id seen: one at or below it that is not in the table has ended.
    last_id: u64,
    events: VecDeque<Event>,
    schedule: Scheduler<core::convert::Infallible>,
    replies: VecDeque<Reply>,
    reply_slot_queued: bool,
    /// Output left the allowance of an execution less than half full.
    credit_sought: bool,
    rest: Rest,
    /// What a relay keeps beside this; `None` in an agent.
    accounts: Option<Accounts>,
}

impl Default for Conn {
    fn default() -> Self {
        Self::new()
    }
}

impl Conn {
    /// A connection that waits for the host's bootstrap.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: State::AwaitBootstrap,
            limits: Limits::default(),
            decoder: Decoder::new(),
            execs: BTreeMap::new(),
            last_id: 0,
            events: VecDeque::new(),
            schedule: Scheduler::new(),
            replies: VecDeque::new(),
            reply_slot_queued: false,
            credit_sought: false,
            rest: Rest::default(),
            accounts: None,
        }
    }

    /// The limits that the host advertised.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes the next event. Drain it after every [`handle_bytes`](Self::handle_bytes): the
    /// events of one call are at most one per 16 bytes given.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Answers the bootstrap. Generation, connection and limits are filled in here.
    pub fn ready(&mut self, mut ready: Ready) {
        if let State::Greeted { connection } = self.state {
            ready.generation = crate::GENERATION;
            ready.connection = connection;
            ready.exec_limits = Some(self.limits);
            self.state = State::Ready;
            // The queue is empty: nothing is owed before the bootstrap.
            let queued = self.reply(Reply::Ready(ready));
            debug_assert!(queued.is_ok(), "Ready is the first reply of a connection");
        }
    }

    /// The program runs.
    pub fn started(&mut self, id: ExecId, pid: u32) {
        self.update(id, |exec| exec.started_due = Some(pid));
    }

    /// The program never ran. Terminal.
    pub fn failed(&mut self, id: ExecId, mut failure: Failure) {
        cut(&mut failure.stage);
        cut(&mut failure.message);
        self.end(id, Terminal::Failed(failure));
    }

    /// The command ended. Terminal; it leaves when both streams have ended, too.
    pub fn exited(&mut self, id: ExecId, status: ExitStatus) {
        self.update(id, |exec| exec.end(Terminal::Exited(status)));
    }

    /// A stream can be read without blocking, or can no longer.
    pub fn stream_ready(&mut self, id: ExecId, stream: Stream, readable: bool) {
        self.update(id, |exec| exec.output(stream).readable = readable);
    }

    /// Everything that this stream will ever give was read.
    pub fn stream_ended(&mut self, id: ExecId, stream: Stream) {
        self.update(id, |exec| exec.output(stream).ended = true);
    }

    /// Stdin bytes not yet written to the command, as the ring's two runs; `None` when the
    /// execution is not known or has no more use for stdin.
    #[must_use]
    pub fn stdin_pending(&self, id: ExecId) -> Option<(&[u8], &[u8])> {
        let exec = self.execs.get(&id)?;
        (!exec.stdin_done).then_some(exec.stdin.as_slices())
    }

    /// The command's stdin took `n` of the pending bytes: their credit goes back.
    pub fn stdin_written(&mut self, id: ExecId, n: usize) {
        self.release_stdin(id, n);
    }

    /// The command no longer reads its stdin. Said once; pending bytes are thrown away and
    /// their credit released, and so is what still arrives.
    pub fn stdin_error(&mut self, id: ExecId, mut error: StdinError) {
        cut(&mut error.name);
        cut(&mut error.message);
        self.update(id, |exec| {
            if !exec.stdin_done {
                exec.stdin_done = true;
                exec.stdin_error_due = Some(error);
            }
        });
        self.drop_stdin(id);
    }

    /// Executions whose terminal event has not left yet.
    #[must_use]
    pub fn executions(&self) -> usize {
        self.execs.len()
    }

    /// Whether output has left an execution less than half of its allowance since the last call. The
    /// host does not interrupt a guest that streams for an acknowledgement that comes early
    /// (`host::Frame::can_wait`): it may lie in the port, so read that before more is sent.
    pub fn take_credit_sought(&mut self) -> bool {
        core::mem::take(&mut self.credit_sought)
    }

    fn update(&mut self, id: ExecId, change: impl FnOnce(&mut Exec)) {
        if let Some(exec) = self.execs.get_mut(&id) {
            change(exec);
            self.schedule_slot(id);
        }
    }

    /// The last thing of an execution, of whose streams nothing more comes.
    fn end(&mut self, id: ExecId, terminal: Terminal) {
        self.update(id, |exec| {
            exec.stdout.ended = true;
            exec.stderr.ended = true;
            exec.end(terminal);
        });
    }

    fn schedule_slot(&mut self, id: ExecId) {
        if let Some(exec) = self.execs.get_mut(&id)
            && !exec.in_slots
            && exec.slot_ready()
        {
            exec.in_slots = true;
            self.schedule.push_slot(Slot::Exec(id));
        }
    }

    fn release_stdin(&mut self, id: ExecId, n: usize) {
        if let Some(exec) = self.execs.get_mut(&id) {
            // The ring holds what was charged and not released, so both refuse the same.
            if n > exec.stdin.len() || exec.stdin_credit.release(n as u64).is_err() {
                debug_assert!(false, "released more stdin than was pending");
                return;
            }
            exec.stdin.drain(..n);
            if exec.stdin.is_empty() && exec.stdin.capacity() > STDIN_RING_KEPT {
                exec.stdin = VecDeque::new();
            }
        }
        self.schedule_ack(id);
    }

    fn schedule_ack(&mut self, id: ExecId) {
        if let Some(exec) = self.execs.get_mut(&id)
            && exec.stdin_credit.due()
            && !exec.in_acks
        {
            exec.in_acks = true;
            self.schedule.push_ack(id);
        }
    }

    fn drop_stdin(&mut self, id: ExecId) {
        let pending = self.execs.get(&id).map_or(0, |exec| exec.stdin.len());
        self.release_stdin(id, pending);
    }

    fn reply(&mut self, reply: Reply) -> Result<(), PeerFault> {
        let answers = |reply: &&Reply| matches!(reply, Reply::Quiesced(_) | Reply::Renewed(_));
        let answers = self.replies.iter().filter(answers).count();
        if self.replies.len().saturating_sub(answers) >= REPLY_QUEUE {
            return Err(PeerFault(
                "more replies are outstanding than the agent slot holds",
            ));
        }
        self.replies.push_back(reply);
        self.schedule_replies();
        Ok(())
    }

    /// Puts the agent slot in the round-robin if it is not there yet.
    fn schedule_replies(&mut self) {
        if !core::mem::replace(&mut self.reply_slot_queued, true) {
            self.schedule.push_slot(Slot::Agent);
        }
    }
}
