//! Judging and taking what the guest sends.
//!
//! [`Conn::judge`] sees a frame's header and nothing else. All that decides about credit and
//! state is decided there, before a byte of payload is copied; [`Conn::deliver`] then gets
//! exactly the bytes that were accepted. Faults are of two sizes: one of an execution's rules
//! ends that execution ([`Verdict::Discard`]), one of framing ends the connection
//! ([`Verdict::Close`]), because the place where the next frame begins is no longer certain.

use alloc::format;
use alloc::string::String;
use bytes::Bytes;

use super::execution::{Chunk, InputState, Keep, Phase};
use super::inspect::Look;
use super::leave::Leaving;
use super::{Conn, Incoming, State, Terminal, Verdict, what};
use crate::frame::{CHUNK_CHARGE, FRAME_MAX, FromGuest, HEADER_LEN, Header, OPTIONAL, Stream};
use crate::id::ExecId;
use crate::message::{
    ExitStatus, Failure, FailureKind, Ready, StdinError, TimedOut, cut, decode, decode_u32,
    decode_u64,
};
use crate::{GENERATION, TEXT_MAX};

/// Largest body of an event: its texts and the encoding around them.
const EVENT_MAX: usize = 2 * TEXT_MAX + 256;

const OVERSENT: &str = "output beyond output_limit";
const UNREAD: &str = "a guest without flow control wrote more than the output_limit that the host \
                      holds unread; read faster, or rebuild the guest image";

impl Conn {
    /// Judges a frame by its header. `rest` is what the chain holds after it: a frame that
    /// would end beyond is broken framing. Copy the header out of shared memory once, before
    /// the call; the verdict is about that copy.
    pub fn judge(&mut self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        if self.incoming.take().is_some() {
            return Verdict::Close("a frame began before the last one was delivered");
        }
        let header = Header::decode(head);
        let Ok(len) = usize::try_from(header.len) else {
            return Verdict::Close("frame length exceeds the address space");
        };
        if len > rest {
            return Verdict::Close("frame crosses the end of its descriptor chain");
        }
        self.note_frame(len, rest);
        if len > FRAME_MAX.saturating_sub(HEADER_LEN) {
            return Verdict::Close("frame exceeds the 32768-byte ceiling");
        }
        if header.reserved != 0 {
            return Verdict::Close("reserved header bytes are not zero");
        }
        let Some(kind) = FromGuest::from_wire(header.kind) else {
            return if header.flags & OPTIONAL == 0 {
                Verdict::Close("frame kind is not known, and it may not be skipped")
            } else {
                self.skipped = self.skipped.saturating_add(1);
                Verdict::Discard(len)
            };
        };
        match kind {
            FromGuest::Ready
            | FromGuest::Pong
            | FromGuest::Inspection
            | FromGuest::Quiesced
            | FromGuest::Renewed => self.judge_connection(kind, &header, len),
            _ => self.judge_execution(kind, &header, len),
        }
    }

    fn judge_connection(&mut self, kind: FromGuest, header: &Header, len: usize) -> Verdict {
        if header.exec != 0 {
            return Verdict::Close("a frame of the connection names an execution");
        }
        match (kind, &self.state) {
            (FromGuest::Ready, State::Greeting) if !self.bootstrap_due => {}
            (FromGuest::Pong, State::Ready) => {}
            (FromGuest::Inspection, State::Ready) if matches!(self.look, Look::Asked) => {}
            (FromGuest::Quiesced | FromGuest::Renewed, State::Ready)
                if self.rest.awaits(kind) && len <= EVENT_MAX => {}
            _ => return Verdict::Close("a connection frame came out of turn"),
        }
        self.incoming = Some(Incoming {
            kind,
            exec: None,
            len,
        });
        Verdict::Accept(len)
    }

    fn judge_execution(&mut self, kind: FromGuest, header: &Header, len: usize) -> Verdict {
        if !self.is_ready() {
            return Verdict::Close("an execution frame came before Ready");
        }
        let Some(id) = header.exec_id() else {
            return Verdict::Close("an execution frame names no execution");
        };
        if !self.ids.issued(id) {
            return Verdict::Close("a frame names an execution that was never started");
        }
        let chunk = self.chunk(self.config.limits.output_chunk_size) as usize;
        let (relayed, legacy) = (self.relayed, self.legacy);
        let Some(exec) = self.execs.get_mut(&id) else {
            // It ended and was read: whatever comes now is late, and nobody's.
            self.faults = self.faults.saturating_add(1);
            return Verdict::Discard(len);
        };
        if exec.ended() {
            self.faults = self.faults.saturating_add(1);
            return Verdict::Discard(len);
        }
        if exec.condemned {
            self.judge_condemned(id, kind, len);
            return Verdict::Discard(len);
        }
        let verdict = match (&exec.phase, kind) {
            (Phase::Ended, _) | (Phase::Requesting { .. }, _) => {
                Err("a frame before the request was sent whole")
            }
            (_, FromGuest::Left) if exec.leaving == Leaving::Sent && len == 8 => Ok(()),
            (_, FromGuest::Left) => Err("Left that nobody asked for"),
            (Phase::Starting, FromGuest::Adopted) if exec.adopting && len <= EVENT_MAX => Ok(()),
            (_, FromGuest::Adopted) => Err("Adopted that nobody asked for"),
            (Phase::Starting, FromGuest::Failed) if len <= EVENT_MAX => Ok(()),
            (Phase::Starting, _) if exec.adopting => Err("a frame before Adopted"),
            (Phase::Starting, FromGuest::Started) if len == 4 => Ok(()),
            (Phase::Starting, _) => Err("a frame before Started"),
            (Phase::Started, FromGuest::Started) => Err("a second Started"),
            (Phase::Started, FromGuest::Stdout | FromGuest::Stderr) => {
                if len == 0 {
                    Err("an output frame without data")
                } else if len > chunk {
                    Err("an output chunk larger than output_chunk_size")
                } else {
                    exec.window
                        .charge(charge(len))
                        .map_err(|_| if legacy { UNREAD } else { OVERSENT })
                }
            }
            (Phase::Started, FromGuest::StdinAck) if len == 8 => Ok(()),
            (Phase::Started, FromGuest::StdinError)
                if matches!(exec.input.state, InputState::Broken(_)) =>
            {
                Err("a second StdinError")
            }
            (Phase::Started, FromGuest::StdinError | FromGuest::Exited) if len <= EVENT_MAX => {
                Ok(())
            }
            // What a relay lost, or had to cut off, may have been running.
            (Phase::Started, FromGuest::Failed) if relayed && len <= EVENT_MAX => Ok(()),
            (Phase::Started, FromGuest::Failed) => Err("Failed after Started"),
            (Phase::Started, FromGuest::TimedOut) if relayed && len <= EVENT_MAX => Ok(()),
            (Phase::Started, FromGuest::TimedOut) => Err("an end that only a relay reports"),
            (Phase::Started, _) => Err("a frame of a length that its kind does not have"),
        };
        match verdict {
            Ok(()) => {
                // More under way can make an earlier release worth saying.
                self.schedule_ack(id);
                self.incoming = Some(Incoming {
                    kind,
                    exec: Some(id),
                    len,
                });
                Verdict::Accept(len)
            }
            Err(rule) => {
                self.condemn(id, kind, rule);
                Verdict::Discard(len)
            }
        }
    }

    /// A frame of an execution that broke a rule before. Its end is all that matters; until that
    /// comes its output is thrown away with its credit given back, so that a guest which owes
    /// output before the end can get there.
    fn judge_condemned(&mut self, id: ExecId, kind: FromGuest, len: usize) {
        match kind {
            FromGuest::Exited | FromGuest::Failed | FromGuest::TimedOut | FromGuest::Left => {
                self.finish(id, Terminal::Lost(String::from("it broke the protocol")));
            }
            FromGuest::Stdout | FromGuest::Stderr => {
                if let Some(exec) = self.execs.get_mut(&id)
                    && exec.window.charge(charge(len)).is_ok()
                {
                    exec.release_all();
                    self.schedule_ack(id);
                }
            }
            _ => {}
        }
    }

    /// Takes the payload of the frame that [`judge`](Self::judge) accepted: exactly those
    /// bytes. Kept as they are until the application takes them, so they should be an allocation of
    /// about their own size: of a chunk's charge of 256 units, 64 pay for room to spare.
    ///
    /// # Errors
    /// The payload breaks framing or the connection's own rules: end the connection.
    pub fn deliver(&mut self, payload: impl Into<Bytes>) -> Result<(), &'static str> {
        let payload = payload.into();
        let incoming = self
            .incoming
            .take()
            .ok_or("a payload that no frame announced")?;
        if payload.len() != incoming.len {
            return Err("a payload of another length than was accepted");
        }
        let Some(id) = incoming.exec else {
            return match incoming.kind {
                FromGuest::Ready => self.take_ready(&payload),
                FromGuest::Inspection => self.take_page(&payload),
                FromGuest::Quiesced => self.take_quiesced(&payload),
                FromGuest::Renewed => self.take_renewed(&payload),
                _ => {
                    let seq = decode_u64(&payload).ok_or("a pong without its number")?;
                    self.pings = self
                        .pings
                        .checked_sub(1)
                        .ok_or("a pong that no ping asked for")?;
                    self.pong_notice = Some(seq);
                    Ok(())
                }
            };
        };
        if let Err(rule) = self.take(id, incoming.kind, payload) {
            self.condemn(id, incoming.kind, rule);
        }
        Ok(())
    }

    fn take_ready(&mut self, payload: &[u8]) -> Result<(), &'static str> {
        let ready: Ready = decode(payload).ok_or("Ready cannot be decoded")?;
        if ready.generation != GENERATION {
            return Err(
                "the agent speaks another protocol generation than this library; \
                        rebuild the guest image",
            );
        }
        if ready.connection != self.connection {
            return Err("Ready answers another connection");
        }
        match ready.exec_limits {
            None if self.config.allow_legacy_guest => self.legacy = true,
            None => {
                return Err(
                    "the agent's Ready names no exec_limits: an agent that old keeps no \
                            bound and is refused; rebuild the guest image, or allow_legacy_guest",
                );
            }
            Some(limits) if limits != self.config.limits => {
                return Err("the agent's Ready names other exec_limits than the bootstrap");
            }
            Some(_) => {}
        }
        self.state = State::Ready;
        self.agent = Some(ready.clone());
        self.ready_notice = Some(ready);
        Ok(())
    }

    fn take(&mut self, id: ExecId, kind: FromGuest, payload: Bytes) -> Result<(), &'static str> {
        // Gone between judge and deliver: its credit and slot went with it.
        let Some(exec) = self.execs.get_mut(&id) else {
            return Ok(());
        };
        match kind {
            FromGuest::Started => {
                exec.pid = Some(decode_u32(&payload).ok_or("Started without a pid")?);
                exec.phase = Phase::Started;
                exec.started_event = true;
                self.notice(id, what::STARTED);
                self.schedule_slot(id);
                self.started_by(id);
            }
            FromGuest::Stdout => self.take_output(id, Stream::Stdout, payload),
            FromGuest::Stderr => self.take_output(id, Stream::Stderr, payload),
            FromGuest::StdinAck => {
                let total = decode_u64(&payload).ok_or("StdinAck without its total")?;
                let freed = exec
                    .input
                    .credit
                    .acknowledge(total)
                    .map_err(|_| "StdinAck goes back, or beyond what was sent")?;
                if freed > 0 {
                    self.notice(id, what::STDIN_ACKED);
                }
                self.schedule_slot(id);
            }
            FromGuest::StdinError => {
                let mut error: StdinError =
                    decode(&payload).ok_or("StdinError cannot be decoded")?;
                cut(&mut error.name);
                cut(&mut error.message);
                let seq = exec.next_seq();
                exec.input.state = InputState::Broken(error.clone());
                exec.drop_pending(&mut self.dropped);
                exec.observe(self.time);
                if !exec.forgotten {
                    exec.stdin_event = Some((seq, error));
                }
                self.notice(id, what::WRITABLE | what::STDIN_ERROR);
            }
            FromGuest::Exited => {
                let status = decode(&payload).ok_or("Exited cannot be decoded")?;
                let terminal = exec.exited(possible(status)?);
                self.finish(id, terminal);
            }
            FromGuest::TimedOut => {
                let TimedOut { limit, status } =
                    decode(&payload).ok_or("TimedOut cannot be decoded")?;
                let status = possible(status)?;
                self.finish(id, Terminal::TimedOut { status, limit });
            }
            FromGuest::Left => self.take_left(id, &payload)?,
            FromGuest::Adopted => self.take_adopted(id, &payload)?,
            FromGuest::Failed => {
                let mut failure: Failure = decode(&payload).ok_or("Failed cannot be decoded")?;
                cut(&mut failure.stage);
                cut(&mut failure.message);
                match (failure.kind, self.relayed) {
                    (FailureKind::Lost, true) => self.finish(id, Terminal::Lost(failure.message)),
                    (FailureKind::Lost | FailureKind::AtCapacity, false) => {
                        return Err("a kind of failure that only a relay reports");
                    }
                    _ => self.finish(id, Terminal::Failed(failure)),
                }
            }
            FromGuest::Ready
            | FromGuest::Pong
            | FromGuest::Inspection
            | FromGuest::Quiesced
            | FromGuest::Renewed => {}
        }
        Ok(())
    }

    /// Keeps a charged chunk for the reader, or gives its credit straight back.
    fn take_output(&mut self, id: ExecId, stream: Stream, payload: Bytes) {
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        let (len, seq) = (payload.len(), exec.seq);
        let output = exec.output(stream);
        output.received = output.received.saturating_add(len as u64);
        if output.keep == Keep::Discard {
            exec.consume(len, true);
            self.schedule_ack(id);
            return;
        }
        output.push(Chunk::new(seq, payload));
        exec.seq = seq.saturating_add(1);
        let bit = match stream {
            Stream::Stdout => what::STDOUT,
            Stream::Stderr => what::STDERR,
        };
        self.notice_output(id, bit, len);
    }

    /// The guest broke a rule of this execution with a frame of this kind: it fails for the
    /// application now and is killed; its slot waits for the guest's confirmation, unless the
    /// frame was just that. Output that was accepted before stays readable.
    fn condemn(&mut self, id: ExecId, kind: FromGuest, rule: &'static str) {
        self.faults = self.faults.saturating_add(1);
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        if exec.ended() || exec.condemned {
            return;
        }
        exec.terminal = Some(Terminal::Failed(Failure {
            kind: FailureKind::Protocol,
            errno: None,
            stage: String::from("protocol"),
            message: format!("the guest broke the exec protocol: {rule}"),
        }));
        exec.release_all();
        exec.condemned = true;
        exec.drop_pending(&mut self.dropped);
        let unheard_of = matches!(exec.phase, Phase::Requesting { begun: false, .. });
        use FromGuest::{Exited, Failed, Left, TimedOut};
        if unheard_of || matches!(kind, Exited | Failed | TimedOut | Left) {
            self.finish(id, Terminal::Lost(String::from("it broke the protocol")));
            return;
        }
        // A request half sent is finished first: the guest's assembly must not be left open.
        exec.kill_due = !exec.kill_sent;
        self.stop_deadline(id);
        self.notice(id, what::WRITABLE | what::STARTED | what::TERMINAL);
        self.schedule_ack(id);
    }
}

/// An exit that there can be.
fn possible(status: ExitStatus) -> Result<ExitStatus, &'static str> {
    match (status.code, status.signal) {
        (Some(0..=255), None) | (None, Some(1..=64)) => Ok(status),
        _ => Err("an exit must name either a code or a signal that exists"),
    }
}

/// What a chunk of output costs.
fn charge(len: usize) -> u64 {
    (len as u64).saturating_add(u64::from(CHUNK_CHARGE))
}
