//! Leaving an execution for somebody else, and taking one over.
//!
//! ```text
//!  the VM's connection      leave ──► nobody holds it, nothing is lost ──► take_up
//!  a client of a relay      leave ─ Leave ─► relay ─ Left, the id in the VM ─► left
//!                           adopt ─ Adopt ─► relay ─ Adopted, where it stands ─►
//! ```
//!
//! What is left goes on within its allowances as one that nobody reads: its output waits, and with it
//! the command once the window is full. It keeps its slot also after its end, until somebody
//! takes it over, so that no more of them can be than `max_executions`.
//!
//! A client counts each execution anew when it adopts one, but for positions in its streams: those
//! are of the VM.

use core::mem;

use bytes::Bytes;

use super::command::writable;
use super::deadline::{Deadline, Stage, is_limit};
use super::execution::{Exec, InputState, Output, Phase};
use super::{Conn, Control, ControlError, StartError, State, Terminal, WriteError, what};
use crate::frame::{CHUNK_CHARGE, Stream};
use crate::id::ExecId;
use crate::message::{Adopted, Leave, Timeout, decode, decode_u64};
use crate::schedule::Scheduler;

/// How far a client's wish to leave an execution has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Leaving {
    #[default]
    No,
    /// It waits for what goes before it: the request, a write of stdin, an acknowledgement.
    Due,
    /// The relay was asked. What is consumed from now on is not acknowledged.
    Sent,
    /// It goes on under this id.
    Done(ExecId),
}

impl Conn {
    /// Whether the other end is a relay.
    #[must_use]
    pub fn faces_relay(&self) -> bool {
        self.relayed
    }

    /// Lets go of an execution without ending anything of it, for whoever [takes it
    /// up](Self::take_up) or adopts it: output that was not read, or was passed on and not
    /// acknowledged, is there for that one.
    ///
    /// Facing a relay this is a question: [`left`](Self::left) says what came of it, unless the
    /// execution [is not being left](Self::is_leaving) any more, with which everything is as before.
    /// It is asked when what was written to stdin, signals and sizes have left, and from then on the
    /// relay keeps the deadline.
    ///
    /// # Errors
    /// [`ControlError::Ended`]: it holds no slot any more, or, facing a relay, has ended or is being
    /// killed.
    pub fn leave(&mut self, id: ExecId) -> Result<(), ControlError> {
        let exec = self.execs.get_mut(&id).ok_or(ControlError::Ended)?;
        if exec.forgotten || !exec.admitted {
            return Err(ControlError::Ended);
        }
        if !self.relayed {
            exec.take_back();
            exec.left = true;
            exec.observe(self.time);
            return Ok(());
        }
        if exec.terminal.is_some() || exec.killed() {
            return Err(ControlError::Ended);
        }
        if exec.leaving == Leaving::No {
            exec.leaving = Leaving::Due;
            self.schedule_ack(id);
        }
        Ok(())
    }

    /// Whether a relay is to be asked, or was, to let it go on, and has not answered. It is over
    /// when an end comes first, or a [kill](what::KILLED) before the question has left.
    #[must_use]
    pub fn is_leaving(&self, id: ExecId) -> bool {
        let exec = self.execs.get(&id);
        exec.is_some_and(|exec| matches!(exec.leaving, Leaving::Due | Leaving::Sent))
    }

    /// Whether a relay cannot be asked as long as nobody reads output: of stdin more waits than may
    /// be on its way, and of what the command writes there is no room for a chunk.
    #[must_use]
    pub fn leave_waits_for_reader(&self, id: ExecId) -> bool {
        let limits = &self.config.limits;
        let chunk = limits.output_chunk_size.saturating_add(CHUNK_CHARGE);
        let most = limits.output_limit.saturating_sub(chunk);
        self.execs.get(&id).is_some_and(|exec| {
            exec.leaving == Leaving::Due
                && exec.input.pending.len() as u64 > exec.input.credit.available()
                && exec.window.outstanding() > u64::from(most)
        })
    }

    /// A relay that was not asked yet is not asked any more.
    pub fn stay(&mut self, id: ExecId) {
        if let Some(exec) = self.execs.get_mut(&id)
            && exec.leaving == Leaving::Due
        {
            exec.leaving = Leaving::No;
        }
    }

    /// The id by which an execution that was [left](Self::leave) can be adopted; `None` as long as
    /// it is held.
    #[must_use]
    pub fn left(&self, id: ExecId) -> Option<ExecId> {
        let exec = self.execs.get(&id)?;
        match exec.leaving {
            Leaving::Done(of) => Some(of),
            _ => exec.left.then_some(id),
        }
    }

    /// Puts `data` behind the write under way, which nobody waits for any more: what is left of the
    /// stdin of somebody who goes. Of so much that was not handed over no more than `input_limit` is
    /// taken.
    ///
    /// # Errors
    /// See [`WriteError`]; nothing was taken. [`WriteError::Busy`]: it is too much, until the command
    /// has read of it.
    pub fn append_stdin(&mut self, id: ExecId, data: &[u8]) -> Result<(), WriteError> {
        let most = self.config.limits.input_limit as usize;
        let exec = self.execs.get_mut(&id).ok_or(WriteError::Ended)?;
        writable(exec)?;
        let pending = &mut exec.input.pending;
        if pending.len().saturating_add(data.len()) > most {
            return Err(WriteError::Busy);
        }
        let joined = Bytes::from([pending, data].concat());
        self.dropped.push(mem::replace(pending, joined));
        self.schedule_slot(id);
        Ok(())
    }

    /// Whether this execution goes on with nobody who could ever hold it again.
    #[must_use]
    pub fn is_forgotten(&self, id: ExecId) -> bool {
        self.execs.get(&id).is_some_and(|exec| exec.forgotten)
    }

    /// Somebody holds the execution from now on.
    pub fn take_up(&mut self, id: ExecId) {
        if let Some(exec) = self.execs.get_mut(&id) {
            exec.left = false;
            self.settle(id);
        }
    }

    /// Keeps the deadline of an execution that a client has left.
    pub fn keep_deadline(&mut self, id: ExecId, timeout: Timeout) {
        let Timeout {
            limit,
            left,
            at_start,
        } = timeout;
        let at_start = at_start.min(limit);
        let left = left.min(at_start);
        let at = self.time.now().checked_add(left);
        let (true, Some(at)) = (is_limit(limit), at) else {
            return;
        };
        self.stop_deadline(id);
        let Some(exec) = self.execs.get_mut(&id).filter(|exec| {
            // Of one that is over it would mean nothing.
            exec.terminal.is_none() && !exec.ended()
        }) else {
            return;
        };
        exec.deadline = Some(Deadline {
            limit,
            stage: Stage::Running { at },
            left: exec.pid.map(|_| at_start),
            killed: false,
        });
        self.deadlines.insert((at, id));
    }

    /// Asks the relay for an execution of its VM that nobody holds. It stands in line as a request
    /// does. [`is_adopting`](Self::is_adopting) until the answer comes; a refusal is its failure.
    ///
    /// # Errors
    /// As [`start`](Self::start), and [`StartError::NotReady`] for an end that faces no relay.
    pub fn adopt(&mut self, of: ExecId) -> Result<ExecId, StartError> {
        match &self.state {
            State::Closed(reason) => return Err(StartError::Closed(reason.clone())),
            State::Ready if self.relayed => {}
            _ => return Err(StartError::NotReady),
        }
        let body = Bytes::copy_from_slice(&of.get().to_le_bytes());
        let id = self.admit(|limits, peer| Exec {
            adopting: true,
            ..Exec::new(limits, body, "".into(), peer)
        })?;
        Ok(id)
    }

    /// Whether the relay has not yet answered an adoption.
    #[must_use]
    pub fn is_adopting(&self, id: ExecId) -> bool {
        self.execs.get(&id).is_some_and(|exec| exec.adopting)
    }

    /// What a client that takes this execution over has to know. What nobody was told yet is left
    /// to be told.
    #[must_use]
    pub fn standing(&self, id: ExecId) -> Option<Adopted> {
        let exec = self.execs.get(&id)?;
        let progress = self.progress(id)?;
        let (stdin_open, stdin_error) = match &exec.input.state {
            InputState::Open => (true, None),
            InputState::Closing | InputState::Closed => (false, None),
            InputState::Broken(_) if exec.stdin_event.is_some() => (true, None),
            InputState::Broken(error) => (true, Some(error.clone())),
        };
        Some(Adopted {
            pid: exec.pid.filter(|_| !exec.started_event),
            on_terminal: exec.on_terminal,
            stdin_open,
            stdin_error,
            stdin_accepted: progress.stdin_accepted,
            stdout_consumed: progress.stdout_consumed,
            stderr_consumed: progress.stderr_consumed,
        })
    }

    /// The relay handed an execution over.
    pub(super) fn take_adopted(&mut self, id: ExecId, payload: &[u8]) -> Result<(), &'static str> {
        let adopted: Adopted = decode(payload).ok_or("Adopted cannot be decoded")?;
        let Some(exec) = self.execs.get_mut(&id) else {
            return Ok(());
        };
        exec.adopting = false;
        exec.on_terminal = adopted.on_terminal;
        exec.stdin_base = adopted.stdin_accepted;
        exec.stdout.received = adopted.stdout_consumed;
        exec.stderr.received = adopted.stderr_consumed;
        exec.input.state = match adopted.stdin_error {
            Some(error) => InputState::Broken(error),
            None if adopted.stdin_open => InputState::Open,
            None => InputState::Closed,
        };
        if let Some(pid) = adopted.pid {
            exec.pid = Some(pid);
            exec.phase = Phase::Started;
        }
        self.notice(id, what::STARTED);
        self.schedule_slot(id);
        self.schedule_ack(id);
        Ok(())
    }

    /// The relay let an execution go on.
    pub(super) fn take_left(&mut self, id: ExecId, payload: &[u8]) -> Result<(), &'static str> {
        let of = decode_u64(payload).and_then(ExecId::new);
        let of = of.ok_or("Left without an id")?;
        let Some(exec) = self.execs.get_mut(&id) else {
            return Ok(());
        };
        exec.leaving = Leaving::Done(of);
        // What was not acknowledged is whoever's who adopts it.
        exec.window.hush();
        for stream in Stream::ALL {
            let output = exec.output(stream);
            while output.pop().is_some() {}
        }
        let reason = alloc::format!("it was left to go on as execution {of} of the VM");
        self.finish(id, Terminal::Lost(reason));
        Ok(())
    }

    /// What the relay has to know of an execution that is being left.
    pub(super) fn leave_body(&self, id: ExecId) -> Leave {
        let deadline = self.execs.get(&id).and_then(|exec| exec.deadline);
        let now = self.time.now();
        let timeout = deadline.map(|deadline| Timeout {
            limit: deadline.limit,
            left: match deadline.stage {
                Stage::Running { at } => at.saturating_sub(now),
                Stage::Expired { .. } | Stage::Unconfirmed => core::time::Duration::ZERO,
            },
            at_start: deadline.left.unwrap_or(deadline.limit),
        });
        Leave { timeout }
    }
}

impl Exec {
    /// Whether the relay may be asked to let it go on under its `id`: nothing has to go before that,
    /// controls that stand in line included.
    pub(super) fn may_leave(&self, id: ExecId, schedule: &Scheduler<Control>) -> bool {
        self.leaving == Leaving::Due
            && !self.requesting()
            && self.input.pending.is_empty()
            && self.input.state != InputState::Closing
            && !schedule.control_waits(|control| control.id() == id)
    }

    /// Whether a total of consumed output is to be told.
    pub(super) fn ack_due(&self) -> bool {
        self.window.due() && self.leaving != Leaving::Sent
    }

    /// Puts what was passed on and not acknowledged before what is held.
    fn take_back(&mut self) {
        self.forwarded = 0;
        for stream in Stream::ALL {
            self.output(stream).take_back();
        }
    }
}

impl Output {
    /// Takes the front chunk to pass it on; a part of it stays here until that was consumed.
    pub(super) fn pass(&mut self) -> Option<Bytes> {
        let chunk = self.pop()?;
        let data = chunk.data.clone();
        self.passed_bytes = self.passed_bytes.saturating_add(data.len() as u64);
        self.passed.push_back(chunk);
        Some(data)
    }

    /// Bytes of what was passed on that the reader behind a relay has consumed when it has consumed
    /// this stream up to `position`; `None` if that goes back, or beyond what was passed on.
    pub(super) fn newly_consumed(&self, position: u64) -> Option<u64> {
        let bytes = position.checked_sub(self.consumed())?;
        (bytes <= self.passed_bytes).then_some(bytes)
    }

    /// Lets go of so many bytes of what was passed on, or of all if it is less. Gives the units that
    /// this releases.
    pub(super) fn drop_passed(&mut self, bytes: u64) -> u64 {
        let mut left = bytes.min(self.passed_bytes);
        self.passed_bytes = self.passed_bytes.saturating_sub(left);
        let mut units = left;
        while let Some(chunk) = self.passed.front_mut()
            && left > 0
        {
            let n = chunk.skip(left);
            left = left.saturating_sub(n);
            if chunk.data.is_empty() {
                self.passed.pop_front();
                units = units.saturating_add(u64::from(CHUNK_CHARGE));
            }
        }
        units
    }

    fn take_back(&mut self) {
        let mut passed = mem::take(&mut self.passed);
        self.held = self.held.saturating_add(mem::take(&mut self.passed_bytes));
        passed.append(&mut self.chunks);
        self.chunks = passed;
    }
}

#[cfg(test)]
#[path = "leave_test.rs"]
mod tests;
