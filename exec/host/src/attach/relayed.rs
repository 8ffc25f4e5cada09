//! One execution of a client: between the client's connection and the VM's.
//!
//! ```text
//!  the client's guest::Conn            here                    the VM's host::Conn
//!  stdin ring, not yet acked ── copies ≤ one chunk ──► write_stdin
//!  stdin_written            ◄── totals ──────────────  stdin_acked
//!  output_read              ◄── whole chunks ────────  take_forwarded (releases nothing)
//!  poll_acked               ── totals ───────────────► release_forwarded
//!  exited, failed           ◄── when nothing is held ─ terminal
//!  adopted                  ◄── where it stands ─────  Inner::adopt, standing
//!  left                     ◄── its id ──────────────  Lease::leave
//!  stdin ring, not yet given ── all of it, then ─────► append_stdin
//! ```
//!
//! It holds counters and no bytes: output that the client has not acknowledged is kept by the VM's
//! connection, should the client leave the execution. Both sides' totals are of the same units, since
//! a chunk of the VM is a chunk for the client; so the client's window is never smaller than what the
//! VM's connection holds, and a chunk that was taken can always be sent.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use forebay_exec_proto::guest::{self, Acked};
use forebay_exec_proto::host::{ControlError, Start, Terminal, WriteError};
use forebay_exec_proto::{
    Adopted, CHUNK_CHARGE, ExecId, HEADER_LEN, Leave, StdinError, Stream, TerminalSize,
};

use super::bell::Ringer;
use super::refusal;
use crate::error::{AdoptError, ExecError};
use crate::hub::Hub;
use crate::lease::Lease;
use crate::sync;
use crate::waiting::Half;

/// One relayed execution. Dropping it kills the command unless it has ended, throws its output
/// away and leaves the slot to be freed by the guest's confirmation; one that was left is not
/// touched.
#[derive(Debug)]
pub(super) struct Relayed {
    lease: sync::Arc<Lease>,
    /// A part of its request has not left towards the guest.
    requesting: bool,
    /// It was killed, which once is enough.
    killed: bool,
    /// Puts the execution on the server's list; see [`Relayed::service`].
    waker: Waker,
    started: bool,
    /// Stdin bytes that others had written before the client adopted it.
    stdin_base: u64,
    /// Stdin bytes that the VM's connection was given.
    submitted: u64,
    /// Stdin bytes that the command has taken, as far as the client's end was told.
    written: u64,
    /// The client has ended stdin.
    eof: bool,
    /// The end of stdin went to the VM; what the command takes is still told.
    eof_passed: bool,
    /// The command reads no more.
    stdin_broken: bool,
    /// Output units passed on.
    forwarded: u64,
    /// Output units that the client has consumed.
    released: u64,
    /// The end was told to the client's connection.
    ended: bool,
    /// The client asked to leave it, and waits for the answer: what happens from now on is told to
    /// whoever adopts it.
    leaving: bool,
    /// A signal or size waits for room in the VM's control queue.
    leave_held: bool,
    /// It is not this client's any more.
    left: bool,
}

/// What the VM's connection has to say of an execution.
#[derive(Debug)]
struct News {
    requesting: bool,
    pid: Option<u32>,
    stdin_error: Option<StdinError>,
    stdin_acked: u64,
    output: [bool; 2],
    terminal: Option<Terminal>,
}

impl Relayed {
    /// Asks the VM to admit the execution. To be followed by [`service`](Self::service).
    ///
    /// # Errors
    /// It was refused, and why.
    pub(super) fn start(
        hub: &Arc<Hub>,
        start: &Start,
        ringer: Arc<Ringer>,
    ) -> Result<Self, ExecError> {
        // The client was promised the limits in the preamble.
        let start = start.clone().demanding_bounds();
        let id = hub.step(|inner| inner.start(start))?;
        Ok(Self {
            requesting: true,
            ..Self::new(Lease::new(Arc::clone(hub), id), ringer)
        })
    }

    /// Takes over an execution of the VM that nobody holds, and gives how it stands. To be followed
    /// by [`service`](Self::service).
    ///
    /// # Errors
    /// It cannot be had, and why.
    pub(super) fn adopt(
        hub: &Arc<Hub>,
        id: ExecId,
        ringer: Arc<Ringer>,
    ) -> Result<(Self, Adopted), AdoptError> {
        let adopted = hub.step(|inner| {
            inner.adopt(id)?;
            inner.conn.standing(id).ok_or(AdoptError::Unknown { id })
        })?;
        let relayed = Self {
            started: adopted.pid.is_some(),
            stdin_base: adopted.stdin_accepted,
            eof_passed: !adopted.stdin_open,
            stdin_broken: adopted.stdin_error.is_some(),
            ..Self::new(Lease::new(Arc::clone(hub), id), ringer)
        };
        Ok((relayed, adopted))
    }

    fn new(lease: sync::Arc<Lease>, ringer: Arc<Ringer>) -> Self {
        Self {
            lease,
            requesting: false,
            killed: false,
            waker: Waker::from(ringer),
            started: false,
            stdin_base: 0,
            submitted: 0,
            written: 0,
            eof: false,
            eof_passed: false,
            stdin_broken: false,
            forwarded: 0,
            released: 0,
            ended: false,
            leaving: false,
            leave_held: false,
            left: false,
        }
    }

    /// Its id in the VM.
    pub(super) fn vm_id(&self) -> ExecId {
        self.lease.id()
    }

    /// Whether the client was told, or is about to be, that the program runs.
    pub(super) fn has_started(&self) -> bool {
        self.started
    }

    /// Whether a part of its request waits for the guest to read.
    pub(super) fn is_requesting(&self) -> bool {
        self.requesting
    }

    /// Whether the client knows of its end and has consumed everything, or has left it: it can be
    /// dropped.
    pub(super) fn is_over(&self) -> bool {
        self.left || (self.ended && self.released == self.forwarded)
    }

    /// Passes on in both directions what is new, except output, for which the client's
    /// connection asks when there is room. To be called when the waker was woken, and when the
    /// client has sent stdin or its end; asks to be woken again.
    pub(super) fn service(&mut self, id: ExecId, guest: &mut guest::Conn) {
        if self.ended || self.left {
            return;
        }
        if self.leaving && self.let_go(id, guest) {
            return;
        }
        let news = self.look();
        self.requesting = news.requesting;
        if let Some(pid) = news.pid
            && !self.started
        {
            self.started = true;
            guest.started(id, pid);
        }
        if !self.stdin_broken {
            let written = news.stdin_acked.saturating_sub(self.stdin_base);
            let new = written.saturating_sub(self.written);
            self.written = written;
            if new > 0 {
                guest.stdin_written(id, usize::try_from(new).unwrap_or(usize::MAX));
            }
        }
        if let Some(error) = news.stdin_error {
            self.stdin_broken = true;
            guest.stdin_error(id, error);
        }
        for (stream, held) in Stream::ALL.into_iter().zip(news.output) {
            if held {
                guest.stream_ready(id, stream, true);
            }
        }
        if !self.leaving && news.terminal.is_none() {
            self.feed(id, guest);
        }
        if let Some(terminal) = news.terminal
            && news.output == [false; 2]
        {
            self.end(id, guest, terminal);
        }
    }

    /// The client leaves it; takes effect at the next service, or when what it had to say by stdin,
    /// signals and sizes has its place at the VM. Its deadline is kept there from now on. One that the
    /// client has killed goes on to its end instead.
    pub(super) fn leave(&mut self, leave: Leave) {
        if self.killed || self.left || self.ended {
            return;
        }
        self.leaving = true;
        if let Some(timeout) = leave.timeout {
            self.lease
                .step(|inner, id| inner.conn.keep_deadline(id, timeout));
        }
    }

    /// Whether the client has asked to leave it, and has not left.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// It is not left while a signal or size of it waits for room.
    pub(super) fn hold_leave(&mut self, hold: bool) {
        self.leave_held = hold;
    }

    /// Makes it whoever's who adopts it, if nothing stands in the way; whether it is. If nothing is
    /// left of it but its end, that is the client's.
    fn let_go(&mut self, id: ExecId, guest: &mut guest::Conn) -> bool {
        // To one that its deadline kills there is nothing more to say.
        let dies = self.lease.step(|inner, id| inner.conn.is_killed(id));
        if !dies && (self.leave_held || !self.hand_over(id, guest)) {
            return false;
        }
        if self.lease.leave().is_ok() {
            self.left = true;
            guest.left(id, self.lease.id());
        } else {
            self.leaving = false;
        }
        self.left
    }

    /// Leaves the VM all that the client has sent of stdin, and its end; `false` while there is too
    /// much of that already. It is at most the allowance, which the client was promised.
    fn hand_over(&mut self, id: ExecId, guest: &guest::Conn) -> bool {
        let most = usize::try_from(guest.limits().input_limit).unwrap_or(usize::MAX);
        while !self.eof_passed && !self.stdin_broken {
            let rest = self.unsubmitted(id, guest, most);
            let len = rest.len() as u64;
            let end = rest.is_empty();
            if end && self.eof {
                self.eof_passed = true;
                self.close_stdin();
            }
            if end {
                break;
            }
            let taken = self
                .lease
                .step(|inner, id| inner.conn.append_stdin(id, &rest));
            match taken {
                Ok(()) => self.submitted = self.submitted.saturating_add(len),
                Err(WriteError::Busy) => return false,
                // There is nobody to read it.
                Err(_) => break,
            }
        }
        true
    }

    /// The client has ended stdin; takes effect behind the bytes before, at the next service.
    pub(super) fn end_stdin(&mut self) {
        self.eof = true;
    }

    /// Kills the command. Doing it again costs nothing, not even the VM's lock.
    pub(super) fn kill(&mut self) {
        if !std::mem::replace(&mut self.killed, true) {
            self.leaving = false;
            self.lease.kill();
        }
    }

    /// Puts a signal in line for the VM; `false` while there is no room. One for an execution
    /// that has ended reaches nobody, as everywhere.
    pub(super) fn signal(&self, signal: u32) -> bool {
        let sent = self.lease.step(|inner, id| inner.conn.signal(id, signal));
        sent != Err(ControlError::Full)
    }

    /// Puts its terminal's new size in line, likewise; without a terminal there is nothing to do.
    pub(super) fn resize(&self, size: TerminalSize) -> bool {
        if !self.lease.on_terminal() {
            return true;
        }
        let sent = self.lease.step(|inner, id| inner.conn.resize(id, size));
        sent != Err(ControlError::Full)
    }

    /// Moves the next chunk of `stream` into `buf`, as a frame of the client's connection, and
    /// gives the frame's length; zero if there is none. `max` is what the connection allows.
    ///
    /// # Errors
    /// Both sides do not agree on what is outstanding, which only a fault in here can bring
    /// about.
    pub(super) fn take(
        &mut self,
        id: ExecId,
        stream: Stream,
        max: usize,
        guest: &mut guest::Conn,
        buf: &mut [u8],
    ) -> Result<usize, &'static str> {
        const OUT_OF_STEP: &str = "internal error: the windows of VM and client differ";
        let (chunk, more) = self.lease.step(|inner, vm_id| {
            let chunk = inner.conn.take_forwarded(vm_id, stream);
            (chunk, inner.conn.has_output(vm_id, stream))
        });
        guest.stream_ready(id, stream, more);
        let mut len = 0;
        if let Some(chunk) = chunk {
            let room = buf
                .get_mut(HEADER_LEN..)
                .and_then(|room| room.get_mut(..chunk.len()))
                .filter(|room| room.len() <= max)
                .ok_or(OUT_OF_STEP)?;
            room.copy_from_slice(&chunk);
            len = guest.output_read(id, stream, chunk.len(), buf);
            if len == 0 {
                return Err(OUT_OF_STEP);
            }
            let units = (chunk.len() as u64).saturating_add(u64::from(CHUNK_CHARGE));
            self.forwarded = self.forwarded.saturating_add(units);
        }
        if !more {
            // The end may have waited for this chunk.
            self.service(id, guest);
        }
        Ok(len)
    }

    /// The client has consumed so much: that capacity is the guest's again.
    ///
    /// # Errors
    /// The client's totals are not those of what it was sent.
    pub(super) fn acked(&mut self, acked: Acked) -> Result<(), &'static str> {
        if self.left {
            return Ok(());
        }
        let units = acked.total.saturating_sub(self.released);
        self.released = acked.total;
        let released = self
            .lease
            .step(|inner, id| inner.conn.release_forwarded(id, acked.consumed));
        if released != Ok(units) {
            return Err("an ack whose totals do not agree with what was sent");
        }
        Ok(())
    }

    /// Looks at the VM's connection and asks to be woken by what changes from now on. Both in
    /// one step, so that nothing is missed in between.
    fn look(&self) -> News {
        // What they replace is dropped out here, too.
        let mut wakers = [(); 3].map(|()| Some(self.waker.clone()));
        // What a client that leaves is told, whoever adopts it would never hear.
        let tell = !self.leaving;
        self.lease.step(|inner, id| {
            let news = News {
                requesting: inner.conn.is_requesting(id),
                pid: tell.then(|| inner.conn.take_started(id)).flatten(),
                stdin_error: tell.then(|| inner.conn.take_stdin_error(id)).flatten(),
                stdin_acked: inner.conn.stdin_acked(id),
                output: Stream::ALL.map(|stream| inner.conn.has_output(id, stream)),
                terminal: inner.conn.terminal(id).cloned(),
            };
            if news.terminal.is_none() {
                let halves = [Half::Events, Half::Stdin, Half::Relay];
                for (half, waker) in halves.into_iter().zip(&mut wakers) {
                    inner.register(id, half, waker);
                }
            }
            news
        })
    }

    /// Gives the VM what the client has sent of stdin, a chunk at a time, as far as its
    /// connection takes it.
    fn feed(&mut self, id: ExecId, guest: &guest::Conn) {
        let most = usize::try_from(guest.limits().stdin_chunk_size).unwrap_or(usize::MAX);
        while self.started && !self.eof_passed && !self.stdin_broken {
            let piece = self.unsubmitted(id, guest, most);
            if piece.is_empty() {
                if self.eof {
                    self.eof_passed = true;
                    self.close_stdin();
                }
                break;
            }
            let len = piece.len() as u64;
            let taken = self
                .lease
                .step(|inner, id| inner.conn.write_stdin(id, piece));
            match taken {
                Ok(()) => self.submitted = self.submitted.saturating_add(len),
                // The one before has not left yet, or there is nobody to read it any more:
                // either is told by another wake-up.
                Err(_) => break,
            }
        }
    }

    /// A copy of the next bytes of stdin that the VM was not given, at most `most`.
    fn unsubmitted(&self, id: ExecId, guest: &guest::Conn, most: usize) -> Bytes {
        // What was submitted stays in the ring until the command has taken it.
        let ahead = self.submitted.saturating_sub(self.written);
        let ahead = usize::try_from(ahead).unwrap_or(usize::MAX);
        guest
            .stdin_pending(id)
            .map(|ring| piece(ring, ahead, most))
            .unwrap_or_default()
    }

    fn close_stdin(&self) {
        // Refused only when there is no stdin left to close.
        let _ = self.lease.step(|inner, id| inner.conn.close_stdin(id));
    }

    /// All output has been passed on: tells the end.
    fn end(&mut self, id: ExecId, guest: &mut guest::Conn, terminal: Terminal) {
        self.ended = true;
        match terminal {
            // Deadlines are kept at the client's end, but for those of what it adopted.
            Terminal::TimedOut { status, limit } => guest.timed_out(id, limit, status),
            Terminal::Exited(status) => {
                for stream in Stream::ALL {
                    guest.stream_ended(id, stream);
                }
                guest.exited(id, status);
            }
            Terminal::Failed(failure) => guest.failed(id, failure),
            Terminal::Lost(reason) => guest.failed(id, refusal::lost(&reason)),
        }
    }
}

/// A copy of at most `most` bytes of a ring's two runs, from `at` on.
fn piece((first, second): (&[u8], &[u8]), at: usize, most: usize) -> Bytes {
    let from = match first.get(at..) {
        Some(rest) if !rest.is_empty() => rest,
        _ => second
            .get(at.saturating_sub(first.len())..)
            .unwrap_or_default(),
    };
    Bytes::copy_from_slice(from.get(..most).unwrap_or(from))
}

#[cfg(test)]
#[path = "relayed_test.rs"]
mod tests;
