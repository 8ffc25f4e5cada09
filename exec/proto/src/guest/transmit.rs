//! Filling the write buffer with the next frames for the host.

use alloc::vec::Vec;

use super::execution::Terminal;
use super::{Conn, Reply, Transmit};
use crate::frame::{CHUNK_CHARGE, FromGuest, HEADER_LEN, Header, Stream};
use crate::id::ExecId;
use crate::message::encode;
use crate::schedule::{Slot, Turn};

/// Room that any frame other than output may need: an event with both its texts at their limit.
/// A buffer with less left is written first, so that no frame has to be put back in line.
const FRAME_ROOM: usize = HEADER_LEN + 2 * crate::TEXT_MAX + 512;

impl Conn {
    /// Whether [`poll_transmit`](Self::poll_transmit) may have something.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        !self.schedule.is_idle()
    }

    /// Puts the next whole frame at the start of `buf`, or says what to do. Call it again with
    /// the rest of the buffer to put several frames into one write.
    pub fn poll_transmit(&mut self, buf: &mut [u8]) -> Transmit {
        if self.schedule.is_idle() {
            return Transmit::Idle;
        }
        if buf.len() < FRAME_ROOM {
            return Transmit::Full;
        }
        while let Some(turn) = self.schedule.next_turn() {
            let sent = match turn {
                Turn::Ack(id) => self.put_ack(id, buf),
                Turn::Control(never) => match never {},
                Turn::Slot(Slot::Agent) => self.put_reply(buf),
                Turn::Slot(Slot::Exec(id)) => self.put_slot(id, buf),
            };
            if let Some(sent) = sent {
                return sent;
            }
        }
        Transmit::Idle
    }

    /// Frames `n` bytes that were read to `buf[HEADER_LEN..]`, charges them, and gives the
    /// frame's length. `n` is at most the `max` of the [`Transmit::Read`] before it.
    pub fn output_read(&mut self, id: ExecId, stream: Stream, n: usize, buf: &mut [u8]) -> usize {
        let Some(exec) = self.execs.get_mut(&id) else {
            return 0;
        };
        let charge = (n as u64).saturating_add(u64::from(CHUNK_CHARGE));
        if n == 0 || exec.window.charge(charge).is_err() {
            return 0;
        }
        self.credit_sought |= exec.window.outstanding() > exec.window.available();
        exec.turn = match stream {
            Stream::Stdout => Stream::Stderr,
            Stream::Stderr => Stream::Stdout,
        };
        self.schedule_slot(id);
        let header = Header::new(FromGuest::output(stream).to_wire(), Some(id), n);
        match buf.first_chunk_mut::<HEADER_LEN>() {
            Some(head) => *head = header.encode(),
            None => return 0,
        }
        HEADER_LEN.saturating_add(n)
    }

    /// How much more of the stream of a [`Transmit::Read`] may be read by the same call: what the
    /// frame behind those that are `planned` will take, whose payloads these are. 0 when another's
    /// frame comes next, so that reading on changes nothing in the order of frames, and where `room`,
    /// the length of the buffer behind them, is not enough for any frame: then the next buffer's may
    /// be.
    ///
    /// These bytes go to offset [`HEADER_LEN`] behind the frames before. When those were filled and
    /// there are some, another [`output_read`](Self::output_read) there frames them.
    #[must_use]
    pub fn further_read(
        &self,
        id: ExecId,
        stream: Stream,
        planned: &[usize],
        room: usize,
    ) -> usize {
        let Some(exec) = self.execs.get(&id) else {
            return 0;
        };
        let other = match stream {
            Stream::Stdout => &exec.stderr,
            Stream::Stderr => &exec.stdout,
        };
        if !self.schedule.is_idle() || other.can_be_read() || room < FRAME_ROOM {
            return 0;
        }
        let charge = |payload: &usize| (*payload as u64).saturating_add(u64::from(CHUNK_CHARGE));
        let units = planned.iter().map(charge).fold(0, u64::saturating_add);
        self.read_size(exec.window.available().saturating_sub(units), room)
    }

    /// Payload of an output frame in a buffer of `room` bytes, with `units` of allowance left.
    fn read_size(&self, units: u64, room: usize) -> usize {
        let window = units.saturating_sub(u64::from(CHUNK_CHARGE));
        (self.limits.output_chunk_size as usize)
            .min(usize::try_from(window).unwrap_or(usize::MAX))
            .min(room.saturating_sub(HEADER_LEN))
    }

    fn put_ack(&mut self, id: ExecId, buf: &mut [u8]) -> Option<Transmit> {
        let exec = self.execs.get_mut(&id)?;
        exec.in_acks = false;
        if !exec.stdin_credit.due() {
            return None;
        }
        let total = exec.stdin_credit.say();
        put(buf, FromGuest::StdinAck, Some(id), &total.to_le_bytes())
    }

    fn put_reply(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        self.reply_slot_queued = false;
        let Some(reply) = self.replies.pop_front() else {
            let page = self.take_answer()?;
            return put(buf, FromGuest::Inspection, None, &page);
        };
        if !self.replies.is_empty() || self.has_answer() {
            self.schedule_replies();
        }
        match reply {
            Reply::Ready(ready) => put(buf, FromGuest::Ready, None, &encode(&ready)),
            Reply::Pong(seq) => put(buf, FromGuest::Pong, None, &seq.to_le_bytes()),
            Reply::Quiesced(answer) => put(buf, FromGuest::Quiesced, None, &encode(&answer)),
            Reply::Renewed(answer) => put(buf, FromGuest::Renewed, None, &encode(&answer)),
        }
    }

    /// One frame of an execution: `Started` first, its terminal last, output in between.
    fn put_slot(&mut self, id: ExecId, buf: &mut [u8]) -> Option<Transmit> {
        let exec = self.execs.get_mut(&id)?;
        exec.in_slots = false;
        if let Some(adopted) = exec.adopted_due.take() {
            exec.started |= adopted.pid.is_some();
            self.schedule_slot(id);
            return put(buf, FromGuest::Adopted, Some(id), &encode(&adopted));
        }
        if let Some(pid) = exec.started_due.take() {
            exec.started = true;
            self.schedule_slot(id);
            return put(buf, FromGuest::Started, Some(id), &pid.to_le_bytes());
        }
        if exec.started
            && let Some(error) = exec.stdin_error_due.take()
        {
            self.schedule_slot(id);
            return put(buf, FromGuest::StdinError, Some(id), &encode(&error));
        }
        if let Some(stream) = exec.next_stream() {
            let units = exec.window.available();
            let max = self.read_size(units, buf.len());
            // Back in line by `output_read`, `stream_ready` or `stream_ended`, one of which
            // the agent owes us now.
            return Some(Transmit::Read { id, stream, max });
        }
        if exec.terminal_due() {
            let exec = self.execs.remove(&id)?;
            // Of one that was left nothing more is acknowledged.
            if !matches!(exec.terminal, Some(Terminal::Left(_))) {
                self.keep_account(id, exec.window);
            }
            return match exec.terminal? {
                Terminal::Exited(status) => put(buf, FromGuest::Exited, Some(id), &encode(&status)),
                Terminal::Failed(failure) => {
                    put(buf, FromGuest::Failed, Some(id), &encode(&failure))
                }
                Terminal::TimedOut(end) => put(buf, FromGuest::TimedOut, Some(id), &encode(&end)),
                Terminal::Left(of) => put(buf, FromGuest::Left, Some(id), &of.get().to_le_bytes()),
            };
        }
        None
    }
}

/// Writes one frame at the start of `buf`; callers made sure that it fits.
fn put(buf: &mut [u8], kind: FromGuest, id: Option<ExecId>, body: &[u8]) -> Option<Transmit> {
    let mut frame = Vec::from(Header::new(kind.to_wire(), id, body.len()).encode());
    frame.extend_from_slice(body);
    let len = frame.len();
    buf.get_mut(..len)?.copy_from_slice(&frame);
    Some(Transmit::Frame(len))
}

#[cfg(test)]
#[path = "transmit_test.rs"]
mod tests;
