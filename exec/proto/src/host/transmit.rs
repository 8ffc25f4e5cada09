//! Building the next frame towards the guest, when the channel asks for one.

use alloc::vec::Vec;
use bytes::Bytes;
use core::mem;

use super::execution::{InputState, Output, Phase};
use super::inspect::Look;
use super::leave::Leaving;
use super::{Conn, Control, Frame, State, what};
use crate::REQUEST_PART;
use crate::frame::{FRAME_MAX, Header, LAST, ToGuest};
use crate::id::ExecId;
use crate::message::encode;
use crate::schedule::{Slot, Turn};

/// Credit with which a sender's acknowledgement can wait, in units: what it uses up with eight writes
/// of its port. By half of its window it looks by itself (`guest::Conn::take_credit_sought`).
const AMPLE: u64 = 8 * FRAME_MAX as u64;

impl Conn {
    /// Whether [`poll_transmit`](Self::poll_transmit) may have a frame.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        match self.state {
            State::Waiting | State::Closed(_) => false,
            State::Greeting => self.bootstrap_due || self.power_off_due,
            State::Ready => {
                self.power_off_due
                    || self.ping_due.is_some()
                    || matches!(self.look, Look::Due(_))
                    || self.rest.wants_transmit()
                    || !self.schedule.is_idle()
            }
        }
    }

    /// The next frame, or `None` when there is nothing to send. Call it only when the whole
    /// frame can be handed to the channel before anything else: once given, it counts as sent.
    pub fn poll_transmit(&mut self) -> Option<Frame> {
        match self.state {
            State::Waiting | State::Closed(_) => return None,
            State::Greeting if mem::take(&mut self.bootstrap_due) => {
                return Some(self.bootstrap());
            }
            State::Greeting | State::Ready => {}
        }
        if mem::take(&mut self.power_off_due)
            && let Some((reboot, grace_ms)) = self.power_off
        {
            let mut body = Vec::from([u8::from(reboot)]);
            body.extend_from_slice(&grace_ms.to_le_bytes());
            return Some(frame(ToGuest::PowerOff, None, body));
        }
        if !self.is_ready() {
            return None;
        }
        if let Some(seq) = self.ping_due.take() {
            self.pings = self.pings.saturating_add(1);
            let body = Vec::from(seq.to_le_bytes());
            return Some(frame(ToGuest::Ping, None, body));
        }
        if let Some(question) = self.build_inspect().or_else(|| self.build_rest()) {
            return Some(question);
        }
        while let Some(turn) = self.schedule.next_turn() {
            let built = match turn {
                Turn::Ack(id) => self.build_ack(id),
                Turn::Control(control) => self.build_control(control),
                Turn::Slot(Slot::Exec(id)) => self.build_slot(id),
                // The host owes no replies.
                Turn::Slot(Slot::Agent) => None,
            };
            if built.is_some() {
                return built;
            }
        }
        None
    }

    fn bootstrap(&self) -> Frame {
        let body = self.config.bootstrap(self.connection);
        frame(ToGuest::Bootstrap, None, encode(&body))
    }

    fn build_ack(&mut self, id: ExecId) -> Option<Frame> {
        let exec = self.execs.get_mut(&id)?;
        exec.in_acks = false;
        if exec.ended() && !self.relayed {
            return None;
        }
        if exec.kill_ready() {
            exec.kill_due = false;
            exec.kill_sent = true;
            self.schedule_ack(id);
            return Some(frame(ToGuest::Kill, Some(id), Vec::new()));
        }
        if exec.ack_due() {
            let can_wait = exec.window.promised() >= AMPLE;
            let mut totals = Vec::from(exec.window.say().to_le_bytes());
            if self.relayed {
                let consumed = [&exec.stdout, &exec.stderr].map(Output::consumed);
                totals.extend(consumed.into_iter().flat_map(u64::to_le_bytes));
            }
            // It may have been the last thing that kept a forgotten execution here.
            self.settle(id);
            self.schedule_ack(id);
            return Some(Frame {
                can_wait,
                ..frame(ToGuest::OutputAck, Some(id), totals)
            });
        }
        if exec.may_leave(id, &self.schedule) {
            exec.leaving = Leaving::Sent;
            let body = encode(&self.leave_body(id));
            // The relay keeps it from here on, so that no kill meets the answer.
            self.stop_deadline(id);
            return Some(frame(ToGuest::Leave, Some(id), body));
        }
        None
    }

    fn build_control(&mut self, control: Control) -> Option<Frame> {
        self.control_room = true;
        let id = control.id();
        // What it waited behind may have left.
        self.schedule_ack(id);
        // It may have ended while the control stood in line; the guest would ignore it.
        if self.execs.get(&id).is_none_or(|exec| exec.ended()) {
            return None;
        }
        let (kind, payload) = match control {
            Control::Signal { signal, .. } => (ToGuest::Signal, signal.to_le_bytes()),
            Control::Resize { size, .. } => {
                let ([a, b], [c, d]) = (size.rows.to_le_bytes(), size.cols.to_le_bytes());
                (ToGuest::Resize, [a, b, c, d])
            }
        };
        Some(frame(kind, Some(id), Vec::from(payload)))
    }

    fn build_slot(&mut self, id: ExecId) -> Option<Frame> {
        let chunk = self.chunk(self.config.limits.stdin_chunk_size);
        let held = self.rest.holds_requests();
        let exec = self.execs.get_mut(&id)?;
        exec.in_slots = false;
        // A request that is held back comes back in line when that is over.
        if !exec.slot_ready() || (held && exec.requesting()) {
            return None;
        }
        // A relay counts a slot as taken until the last unit was acknowledged: what the
        // application had consumed before it asked must be known before the request is. Once is
        // enough, since a round begins with all that stood in line before it.
        if self.relayed
            && exec.requesting()
            && self.schedule.acks_wait()
            && !core::mem::replace(&mut exec.behind_acks, true)
        {
            exec.in_slots = true;
            self.schedule.push_slot(Slot::Exec(id));
            return None;
        }
        let kind = if exec.adopting {
            ToGuest::Adopt
        } else {
            ToGuest::Request
        };
        let built = match &mut exec.phase {
            Phase::Requesting { rest, begun } => {
                let part = rest.split_to(rest.len().min(REQUEST_PART));
                *begun = true;
                let last = rest.is_empty();
                if last {
                    exec.phase = Phase::Starting;
                }
                let flags = if last { LAST } else { 0 };
                let head = Header::new(kind.to_wire(), Some(id), part.len());
                if last {
                    self.schedule_ack(id);
                    self.schedule_request();
                    self.notice(id, what::REQUESTED);
                }
                Some(Frame {
                    head: head.with_flags(flags).encode(),
                    body: part,
                    can_wait: false,
                })
            }
            Phase::Started => self.build_stdin(id, chunk),
            Phase::Starting | Phase::Ended => None,
        };
        self.schedule_slot(id);
        // What it waited behind may have left.
        self.schedule_ack(id);
        built
    }

    /// The next stdin chunk, or the EOF behind the last one.
    fn build_stdin(&mut self, id: ExecId, chunk: u32) -> Option<Frame> {
        let exec = self.execs.get_mut(&id)?;
        let input = &mut exec.input;
        if input.pending.is_empty() {
            if input.state != InputState::Closing {
                return None;
            }
            input.state = InputState::Closed;
            self.notice(id, what::WRITABLE);
            return Some(frame(ToGuest::StdinEof, Some(id), Vec::new()));
        }
        let room = usize::try_from(input.credit.available()).unwrap_or(usize::MAX);
        let n = input.pending.len().min(chunk as usize).min(room);
        input.credit.charge(n as u64).ok()?;
        let body = input.pending.split_to(n);
        if input.pending.is_empty() {
            self.notice(id, what::WRITABLE);
        }
        let head = Header::new(ToGuest::Stdin.to_wire(), Some(id), n);
        Some(Frame {
            head: head.encode(),
            body,
            can_wait: false,
        })
    }
}

pub(super) fn frame(kind: ToGuest, exec: Option<ExecId>, body: Vec<u8>) -> Frame {
    let head = Header::new(kind.to_wire(), exec, body.len());
    Frame {
        head: head.encode(),
        body: Bytes::from(body),
        can_wait: false,
    }
}
