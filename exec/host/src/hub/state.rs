//! What the hub's lock guards: the connection, and who waits for what of it. Each method is one
//! change; whom it concerns is collected here and woken by the hub, outside the lock.

use std::collections::HashMap;
use std::mem;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use forebay_exec_proto::frame::ToGuest;
use forebay_exec_proto::host::{
    Conn, ControlError, Frame, Notice, Start, StartError, WriteError, what,
};
use forebay_exec_proto::{ExecId, Header, Ready};

use super::quiesce::{Question, Waits};
use super::wakes::{Due, Wakes};
use crate::error::{AdoptError, ExecError};
use crate::waiting::{Half, SinkState, Waiting};

/// What the hub's lock guards.
pub(crate) struct Inner {
    pub(crate) conn: Conn,
    /// One entry per execution that has a handle.
    pub(super) waiting: HashMap<ExecId, Waiting>,
    /// Who waits for the guest as a whole.
    pub(super) waits: Waits,
    /// The agent's Ready of this connection.
    ready: Option<Ready>,
    /// Why there is no connection, if there was one.
    closed: Option<String>,
    /// The VM is gone for good: no connection will come.
    gone: bool,
    last_pong: Option<u64>,
    /// It was warned of an agent that keeps no limits.
    warned: bool,
    /// The link was told to transmit, or pulls of its own accord, and has not come to the end
    /// since.
    kicked: bool,
    /// When the link was last told to have the deadlines looked at, if it still has to.
    alarm: Option<Duration>,
    /// Whom the changes concern of which nobody was told yet. Holds each registered waker once
    /// at most: a task registers anew only in a step, which takes all that is here.
    wakes: Wakes,
    /// Keeps the buffer of the stdin frame that the device was given last.
    lent: Option<Bytes>,
    /// Buffers that were lent and came back, to be dropped outside the lock.
    returned: Vec<Bytes>,
}

impl Inner {
    pub(super) fn around(conn: Conn) -> Self {
        Self {
            conn,
            waiting: HashMap::new(),
            waits: Waits::default(),
            ready: None,
            closed: None,
            gone: false,
            last_pong: None,
            warned: false,
            kicked: false,
            alarm: None,
            wakes: Wakes::default(),
            lent: None,
            returned: Vec::new(),
        }
    }

    /// A connection begins, unless the VM is gone.
    pub(super) fn opened(&mut self) {
        self.take_back();
        if self.gone {
            return;
        }
        self.kicked = false;
        self.conn.handle_opened();
        // A port that opens while it is open ends the old connection first, and that end must
        // not be taken for the new one's.
        self.collect();
        self.closed = None;
    }

    /// The connection ended.
    pub(super) fn closed(&mut self, reason: &str) {
        self.take_back();
        self.conn.handle_closed(reason);
    }

    /// The VM is gone for good. Whether this says so first; the first reason stays.
    pub(super) fn vm_gone(&mut self, reason: &str) -> bool {
        // Whoever says so is not the device, which may be placing the frame that it was lent.
        self.conn.handle_closed(reason);
        self.ready = None;
        let first = !mem::replace(&mut self.gone, true);
        if first {
            self.closed = Some(reason.to_owned());
        }
        first
    }

    /// The next frame for the guest.
    pub(super) fn next_to_guest(&mut self) -> Option<Frame> {
        self.take_back();
        let frame = self.conn.poll_transmit();
        self.lent = frame.as_ref().and_then(stdin_of);
        // Whoever was given one comes for the next, and is told again only after the last.
        self.kicked = frame.is_some();
        frame
    }

    /// What the agent's bootstrap came to; `None` while its answer is out.
    pub(super) fn ready(&self) -> Option<Result<Ready, ExecError>> {
        match (&self.ready, &self.closed) {
            (Some(ready), _) => Some(Ok(ready.clone())),
            (None, Some(reason)) => Some(Err(ExecError::VmGone {
                reason: reason.clone(),
            })),
            (None, None) => None,
        }
    }

    pub(super) fn last_pong(&self) -> Option<u64> {
        self.last_pong
    }

    /// Admits an execution and makes room for those who will wait for it.
    pub(crate) fn start(&mut self, start: Start) -> Result<ExecId, ExecError> {
        if self.gone {
            return Err(ExecError::VmGone {
                reason: self.gone_reason(),
            });
        }
        let id = self.conn.start(start).map_err(|error| match error {
            StartError::AtCapacity { limit, active } => ExecError::AtCapacity {
                limit,
                active,
                left: self.left(),
            },
            other => other.into(),
        })?;
        self.waiting.insert(id, Waiting::default());
        Ok(id)
    }

    /// Asks the relay for an execution, and makes room for the one who waits for the answer.
    pub(crate) fn ask_adoption(&mut self, of: ExecId) -> Result<ExecId, AdoptError> {
        if self.gone {
            let reason = self.gone_reason();
            return Err(AdoptError::VmGone { reason });
        }
        let id = self.conn.adopt(of)?;
        self.waiting.insert(id, Waiting::default());
        Ok(id)
    }

    /// Nobody holds the execution from now on, and somebody may. Gives whether that is so already,
    /// which it is not where a relay has to be asked, and then who waited.
    pub(crate) fn leave(&mut self, id: ExecId) -> Result<(bool, Option<Waiting>), ControlError> {
        self.conn.leave(id)?;
        if self.conn.faces_relay() {
            return Ok((false, None));
        }
        Ok((true, self.waiting.remove(&id)))
    }

    /// The last handle is gone.
    pub(crate) fn release(&mut self, id: ExecId, kill: bool) -> Option<Waiting> {
        if kill {
            // Refused only when it has ended, which is what was wanted.
            let _ = self.conn.kill(id);
        }
        self.conn.forget(id);
        self.waiting.remove(&id)
    }

    /// Wakes `waker` when something of `half` changes. Leaves a waker for the caller to drop.
    pub(crate) fn register(&mut self, id: ExecId, half: Half, waker: &mut Option<Waker>) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.register(half, waker);
        }
    }

    /// How far the callers of an execution's sink are. `None` once its last handle is gone.
    pub(crate) fn sink(&mut self, id: ExecId) -> Option<&mut SinkState> {
        Some(&mut self.waiting.get_mut(&id)?.sink)
    }

    /// Why the VM is gone for good, if it is.
    pub(super) fn gone(&self) -> Option<String> {
        self.gone.then(|| self.gone_reason())
    }

    /// Why there is no connection.
    pub(crate) fn gone_reason(&self) -> String {
        match &self.closed {
            Some(reason) => reason.clone(),
            None => "the agent's connection is not up".to_owned(),
        }
    }

    /// Whether the link must be kicked now, which marks it as kicked.
    pub(super) fn due_kick(&mut self) -> bool {
        self.conn.wants_transmit() && !mem::replace(&mut self.kicked, true)
    }

    /// When the link must have the deadlines looked at, if that is earlier than it was told.
    pub(super) fn due_alarm(&mut self) -> Option<Duration> {
        let next = self.next_deadline()?;
        if self.alarm.is_some_and(|alarm| alarm <= next) {
            return None;
        }
        self.alarm = Some(next);
        Some(next)
    }

    /// The guest goes on.
    pub(super) fn release_time(&mut self) {
        self.conn.release_time();
        // What the link was told before is a time of the past, and it was told nothing since.
        self.alarm = None;
    }

    /// Looks at the deadlines; gives when they have to be looked at next, which whoever called
    /// sees to.
    pub(super) fn expire(&mut self, now: Duration) -> Option<Duration> {
        self.conn.expire(now);
        self.wakes.rest |= self.waits.expire(self.conn.time().at(now));
        self.alarm = self.next_deadline();
        self.alarm
    }

    fn next_deadline(&self) -> Option<Duration> {
        let waits = self.waits.next_deadline();
        let waits = waits.and_then(|at| self.conn.time().on_clock(at));
        [self.conn.next_deadline(), waits]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes what has to be done outside the lock, if there is something.
    pub(super) fn take_due(&mut self) -> Option<Due> {
        let mut dropped = self.conn.take_dropped();
        if dropped.is_empty() && self.returned.is_empty() && self.wakes.is_empty() {
            return None;
        }
        dropped.append(&mut self.returned);
        Some(Due {
            wakes: mem::take(&mut self.wakes),
            dropped,
        })
    }

    /// The device has let go of the frame that it was given last.
    fn take_back(&mut self) {
        self.returned.extend(self.lent.take());
    }

    /// Drains the connection's notices into `wakes`.
    pub(super) fn collect(&mut self) {
        if !self.conn.has_notices() {
            debug_assert_eq!(self.conn.poll_notice(), None);
            return;
        }
        let wakes = &mut self.wakes;
        while let Some(notice) = self.conn.poll_notice() {
            match notice {
                Notice::Exec { id, what: bits } => {
                    if let Some(waiting) = self.waiting.get_mut(&id) {
                        // Asked in the step in which it happened: an end or error that follows
                        // must not turn a write that was handed over into one that was not.
                        if bits & what::WRITABLE != 0
                            && self.conn.pending_stdin(id) == 0
                            && handed_over(&self.conn, id)
                        {
                            waiting.sink.handed_over = true;
                        }
                        waiting.collect(bits, &mut wakes.tasks);
                    }
                    // A signal that waits for room may be meant for it.
                    wakes.control |= bits & what::TERMINAL != 0;
                }
                Notice::ControlRoom => wakes.control = true,
                Notice::Looked => wakes.looked = true,
                Notice::Ready(ready) => {
                    wakes.agent = Some(ready.version.clone());
                    if ready.exec_limits.is_none() && !mem::replace(&mut self.warned, true) {
                        let name = self.conn.hostname().unwrap_or("without a hostname");
                        wakes.legacy = Some(name.to_owned());
                    }
                    self.ready = Some(ready);
                    wakes.ready = true;
                }
                Notice::Pong(seq) => self.last_pong = Some(seq),
                Notice::Quiesced { seq, error } => {
                    self.waits.answered(Question::Quiesce, seq, error);
                    wakes.rest = true;
                }
                Notice::Renewed { seq, error } => {
                    if !self.waits.answered(Question::Renew, seq, error.clone()) {
                        wakes.frozen = error;
                    }
                    wakes.rest = true;
                }
                Notice::Closed(reason) => {
                    wakes.ended = Some(reason.clone());
                    self.waits.lost();
                    wakes.rest = true;
                    self.ready = None;
                    self.closed = Some(reason);
                    wakes.ready = true;
                    wakes.control = true;
                    wakes.looked = true;
                }
            }
        }
    }
}

/// The body of a stdin frame: a piece of a buffer that the application owns.
fn stdin_of(frame: &Frame) -> Option<Bytes> {
    let stdin = Header::decode(&frame.head).kind == ToGuest::Stdin.to_wire();
    stdin.then(|| frame.body.clone())
}

/// Whether a write of which nothing is pending went to the channel. The core drops a pending
/// write only when stdin broke or the execution ended, and says so in its stdin's state.
fn handed_over(conn: &Conn, id: ExecId) -> bool {
    matches!(conn.stdin_state(id), Ok(()) | Err(WriteError::Closed))
}
