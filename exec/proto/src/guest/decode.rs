//! Taking the host's byte stream apart, in whatever pieces the port gives it.
//!
//! Stdin goes straight from the piece at hand into its execution's ring. Every other payload is
//! gathered first; the decoder holds at most one of them, and allocates by what arrived, never
//! by an announced length.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use super::execution::Exec;
use super::relay::Acked;
use super::{Conn, Event, Reply, State};
use crate::frame::{FRAME_MAX, HEADER_LEN, Header, LAST, OPTIONAL, ToGuest};
use crate::id::ExecId;
use crate::message::{
    Bootstrap, Failure, FailureKind, Request, TerminalSize, decode, decode_size, decode_u32,
    decode_u64, encode,
};
use crate::{GENERATION, PeerFault, REQUEST_MAX, REQUEST_PART};

#[derive(Debug, Clone)]
pub(super) struct Decoder {
    head: [u8; HEADER_LEN],
    have: usize,
    body: Option<Body>,
    /// The one request in assembly.
    request: Option<(ExecId, Vec<u8>)>,
}

/// The frame whose payload is coming in.
#[derive(Debug, Clone)]
struct Body {
    header: Header,
    left: usize,
    sink: Sink,
}

#[derive(Debug, Clone)]
enum Sink {
    /// Into the ring of this execution.
    Stdin(ExecId),
    /// Gathered, then handled.
    Gather(ToGuest, Vec<u8>),
    /// For an execution that has ended, or of a kind that may be skipped.
    Skip,
}

impl Decoder {
    pub(super) const fn new() -> Self {
        Self {
            head: [0; HEADER_LEN],
            have: 0,
            body: None,
            request: None,
        }
    }
}

impl Conn {
    /// Takes bytes of the host's stream.
    ///
    /// # Errors
    /// The host broke the protocol; the connection is dead and nothing more may be given.
    pub fn handle_bytes(&mut self, mut bytes: &[u8]) -> Result<(), PeerFault> {
        loop {
            if self.decoder.body.is_none() {
                bytes = self.fill_head(bytes);
                if self.decoder.have < HEADER_LEN {
                    return Ok(());
                }
                self.decoder.have = 0;
                let header = Header::decode(&self.decoder.head);
                self.decoder.body = Some(self.open_body(header)?);
            }
            let Some(mut body) = self.decoder.body.take() else {
                return Ok(());
            };
            let (piece, rest) = bytes.split_at(bytes.len().min(body.left));
            bytes = rest;
            body.left = body.left.saturating_sub(piece.len());
            match &mut body.sink {
                Sink::Stdin(id) => {
                    let most = self.limits.input_limit as usize;
                    if let Some(exec) = self.execs.get_mut(id) {
                        make_room(&mut exec.stdin, piece.len(), most);
                        exec.stdin.extend(piece);
                    }
                }
                Sink::Gather(_, gathered) => gathered.extend_from_slice(piece),
                Sink::Skip => {}
            }
            if body.left > 0 {
                self.decoder.body = Some(body);
                return Ok(());
            }
            self.close_body(body)?;
        }
    }

    /// Moves bytes into the header; gives the rest.
    fn fill_head<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let decoder = &mut self.decoder;
        let missing = HEADER_LEN.saturating_sub(decoder.have);
        let (piece, rest) = bytes.split_at(bytes.len().min(missing));
        let end = decoder.have.saturating_add(piece.len());
        if let Some(slot) = decoder.head.get_mut(decoder.have..end) {
            slot.copy_from_slice(piece);
        }
        decoder.have = end;
        rest
    }

    /// Judges a header and decides where its payload goes.
    fn open_body(&mut self, header: Header) -> Result<Body, PeerFault> {
        let left = usize::try_from(header.len).unwrap_or(usize::MAX);
        if left > FRAME_MAX.saturating_sub(HEADER_LEN) {
            return Err(PeerFault("frame exceeds the 32768-byte ceiling"));
        }
        if header.reserved != 0 {
            return Err(PeerFault("reserved header bytes are not zero"));
        }
        let known = ToGuest::from_wire(header.kind).filter(|kind| self.takes(*kind));
        let Some(kind) = known else {
            if header.flags & OPTIONAL == 0 {
                return Err(PeerFault("frame kind is not known"));
            }
            return Ok(Body {
                header,
                left,
                sink: Sink::Skip,
            });
        };
        let sink = match kind {
            ToGuest::Bootstrap if self.state != State::AwaitBootstrap => {
                return Err(PeerFault("a second bootstrap"));
            }
            ToGuest::Bootstrap | ToGuest::PowerOff => Sink::Gather(kind, Vec::new()),
            _ if self.state != State::Ready => {
                return Err(PeerFault("a frame before the agent was ready"));
            }
            ToGuest::Ping | ToGuest::Inspect | ToGuest::Quiesce | ToGuest::Renew => {
                Sink::Gather(kind, Vec::new())
            }
            ToGuest::Request => self.open_request(header, left)?,
            ToGuest::Adopt => self.open_adoption(header)?,
            _ => self.open_execution(kind, header, left)?,
        };
        Ok(Body { header, left, sink })
    }

    fn open_request(&mut self, header: Header, left: usize) -> Result<Sink, PeerFault> {
        let id = exec_id(header)?;
        if left > REQUEST_PART {
            return Err(PeerFault("a request part larger than 16 KiB"));
        }
        if self.rest.holds_requests() {
            return Err(PeerFault("a request while executions are frozen"));
        }
        match &self.decoder.request {
            Some((open, have)) if *open == id => {
                if have.len().saturating_add(left) > REQUEST_MAX {
                    return Err(PeerFault("a request larger than 1 MiB"));
                }
            }
            Some(_) => return Err(PeerFault("a second request before the first was whole")),
            None => {
                self.take_id(id)?;
                self.decoder.request = Some((id, Vec::new()));
            }
        }
        Ok(Sink::Gather(ToGuest::Request, Vec::new()))
    }

    /// An adoption stands in the place of a request, and is one frame.
    fn open_adoption(&mut self, header: Header) -> Result<Sink, PeerFault> {
        let id = exec_id(header)?;
        if self.decoder.request.is_some() {
            return Err(PeerFault("an adoption before the last request was whole"));
        }
        self.take_id(id)?;
        Ok(Sink::Gather(ToGuest::Adopt, Vec::new()))
    }

    /// Admits a new execution as far as this connection goes.
    fn take_id(&mut self, id: ExecId) -> Result<(), PeerFault> {
        if id.get() <= self.last_id {
            return Err(PeerFault("an execution id was used again"));
        }
        if self.slots_held() >= self.limits.max_executions as usize {
            return Err(PeerFault("an execution beyond max_executions"));
        }
        self.last_id = id.get();
        Ok(())
    }

    fn open_execution(
        &mut self,
        kind: ToGuest,
        header: Header,
        left: usize,
    ) -> Result<Sink, PeerFault> {
        let id = exec_id(header)?;
        let chunk = self.limits.stdin_chunk_size as usize;
        let Some(exec) = self.execs.get_mut(&id) else {
            if kind == ToGuest::OutputAck && self.is_settling(id) {
                return Ok(Sink::Gather(kind, Vec::new()));
            }
            // It ended while this was on its way, which is nobody's fault.
            return if id.get() <= self.last_id {
                Ok(Sink::Skip)
            } else {
                Err(PeerFault(
                    "a frame names an execution that was never started",
                ))
            };
        };
        if kind != ToGuest::Stdin {
            return Ok(Sink::Gather(kind, Vec::new()));
        }
        if !exec.started {
            return Err(PeerFault("stdin before Started"));
        }
        if exec.stdin_eof {
            return Err(PeerFault("stdin after its end"));
        }
        if left == 0 || left > chunk {
            return Err(PeerFault(
                "a stdin chunk that is empty or larger than stdin_chunk_size",
            ));
        }
        exec.stdin_credit
            .charge(left as u64)
            .map_err(|_| PeerFault("stdin beyond input_limit"))?;
        self.schedule_ack(id);
        Ok(Sink::Stdin(id))
    }

    /// Acts on a frame whose payload is complete.
    fn close_body(&mut self, body: Body) -> Result<(), PeerFault> {
        match body.sink {
            Sink::Skip => Ok(()),
            Sink::Stdin(id) => {
                if self.execs.get(&id).is_some_and(|exec| exec.stdin_done) {
                    self.drop_stdin(id);
                } else {
                    self.events.push_back(Event::StdinData(id));
                }
                Ok(())
            }
            Sink::Gather(kind, payload) => self.act(kind, body.header, &payload),
        }
    }

    fn act(&mut self, kind: ToGuest, header: Header, payload: &[u8]) -> Result<(), PeerFault> {
        match kind {
            ToGuest::Bootstrap => {
                let bootstrap: Bootstrap =
                    decode(payload).ok_or(PeerFault("the bootstrap cannot be decoded"))?;
                if bootstrap.generation != GENERATION {
                    return Err(PeerFault("the host speaks another protocol generation"));
                }
                if bootstrap.limits.validate().is_err() {
                    return Err(PeerFault("the bootstrap's limits cannot work"));
                }
                self.limits = bootstrap.limits;
                self.state = State::Greeted {
                    connection: bootstrap.connection,
                };
                self.events.push_back(Event::Bootstrap(bootstrap));
            }
            ToGuest::Ping => {
                let seq = decode_u64(payload).ok_or(PeerFault("a ping without its number"))?;
                self.reply(Reply::Pong(seq))?;
            }
            ToGuest::Quiesce => {
                let quiesce = decode(payload).ok_or(PeerFault("a quiesce cannot be decoded"))?;
                self.ask_quiesce(quiesce)?;
            }
            ToGuest::Renew => {
                let renew = decode(payload).ok_or(PeerFault("a renewal cannot be decoded"))?;
                self.ask_renew(renew)?;
            }
            ToGuest::Inspect => {
                let after = decode_u64(payload).ok_or(PeerFault("a look without its start"))?;
                self.ask_inspection(after)?;
            }
            ToGuest::PowerOff => {
                let [reboot, a, b, c, d] = *payload else {
                    return Err(PeerFault("a power-off of another length"));
                };
                self.events.push_back(Event::PowerOff {
                    reboot: reboot != 0,
                    grace_ms: u32::from_le_bytes([a, b, c, d]),
                });
            }
            ToGuest::Request => self.take_part(header, payload)?,
            ToGuest::Adopt => {
                let of = decode_u64(payload).and_then(ExecId::new);
                let of = of.ok_or(PeerFault("an adoption without an id"))?;
                self.ask_adoption(exec_id(header)?, of);
            }
            _ => {
                let id = exec_id(header)?;
                self.act_on(kind, id, payload)?;
            }
        }
        Ok(())
    }

    fn take_part(&mut self, header: Header, payload: &[u8]) -> Result<(), PeerFault> {
        let Some((id, mut whole)) = self.decoder.request.take() else {
            return Err(PeerFault("a request part out of turn"));
        };
        whole.extend_from_slice(payload);
        if header.flags & LAST == 0 {
            self.decoder.request = Some((id, whole));
            return Ok(());
        }
        let request: Request =
            decode(&whole).ok_or(PeerFault("an exec request cannot be decoded"))?;
        let mut exec = Exec::new(&self.limits);
        if request.stdin == crate::StdinMode::Null {
            exec.stdin_eof = true;
        }
        self.execs.insert(id, exec);
        // What a newer host asks for and this end would leave out may be what makes the command
        // safe to run. It shows as bytes that do not come back.
        if encode(&request) != whole {
            self.failed(id, not_understood());
        } else if request.terminal.is_some_and(|size| !is_size(size)) {
            self.failed(id, no_size());
        } else {
            self.events.push_back(Event::Start { id, request });
        }
        Ok(())
    }

    fn act_on(&mut self, kind: ToGuest, id: ExecId, payload: &[u8]) -> Result<(), PeerFault> {
        let Some(exec) = self.execs.get_mut(&id) else {
            return match kind {
                ToGuest::OutputAck => {
                    let acked = Acked::decode(payload, true).ok_or(NO_TOTAL)?;
                    self.settle_acked(id, acked)
                }
                _ => Ok(()),
            };
        };
        match kind {
            ToGuest::StdinEof => {
                if core::mem::replace(&mut exec.stdin_eof, true) {
                    return Err(PeerFault("a second end of stdin"));
                }
                self.events.push_back(Event::StdinEof(id));
            }
            ToGuest::OutputAck => {
                let relayed = self.accounts.is_some();
                let acked = Acked::decode(payload, relayed).ok_or(NO_TOTAL)?;
                let window = &mut exec.window;
                window.acknowledge(acked.total).map_err(|_| WRONG_ACK)?;
                self.note_acked(id, acked);
                self.schedule_slot(id);
            }
            ToGuest::Signal => {
                let signal = decode_u32(payload).ok_or(PeerFault("a signal without its number"))?;
                self.events.push_back(Event::Signal { id, signal });
            }
            ToGuest::Resize => {
                let size = decode_size(payload).ok_or(PeerFault("a resize without its size"))?;
                if !is_size(size) {
                    return Err(PeerFault("a terminal without rows or columns"));
                }
                self.events.push_back(Event::Resize { id, size });
            }
            ToGuest::Kill => self.events.push_back(Event::Kill(id)),
            ToGuest::Leave => {
                let leave = decode(payload).ok_or(PeerFault("a leave cannot be decoded"))?;
                self.events.push_back(Event::Leave { id, leave });
            }
            _ => return Err(PeerFault("a frame out of turn")),
        }
        Ok(())
    }
}

/// Grows a stdin ring for `more` bytes: by doubling, so that bytes that come one by one are not
/// moved each time, and to no more than `most`, the allowance that bounds what it ever holds.
fn make_room(ring: &mut VecDeque<u8>, more: usize, most: usize) {
    let needed = ring.len().saturating_add(more);
    if needed > ring.capacity() {
        let doubled = ring.capacity().saturating_mul(2).min(most);
        ring.reserve_exact(needed.max(doubled).saturating_sub(ring.len()));
    }
}

/// What an acknowledgement that cannot be is refused with.
pub(super) const WRONG_ACK: PeerFault = PeerFault("an ack goes back, or beyond what was sent");

fn not_understood() -> Failure {
    Failure {
        kind: FailureKind::Other,
        errno: None,
        stage: String::from("request"),
        message: String::from(
            "the request has a field that this end is too old to know; rebuild the guest image, \
             or update the program that has the VM",
        ),
    }
}

/// Whether a terminal can have it: without rows or columns programs divide by zero.
const fn is_size(size: TerminalSize) -> bool {
    size.rows > 0 && size.cols > 0
}

fn no_size() -> Failure {
    Failure {
        kind: FailureKind::PtySetup,
        errno: None,
        stage: String::from("terminal"),
        message: String::from("a terminal has at least one row and one column"),
    }
}

const NO_TOTAL: PeerFault = PeerFault("an ack without its totals");

fn exec_id(header: Header) -> Result<ExecId, PeerFault> {
    header
        .exec_id()
        .ok_or(PeerFault("an execution frame names no execution"))
}

#[cfg(test)]
#[path = "guest_test.rs"]
pub(super) mod tests;
