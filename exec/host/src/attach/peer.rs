//! One client at the server: its socket, its connection, its executions.
//!
//! A peer holds a 32 KiB write buffer, its connection's state (stdin within the allowances, one
//! request in assembly, one payload), a counter block per execution, 1 MiB of requests that the
//! guest has not read, and what waits for room in the VM's control queue: signals, and the newest
//! size of each terminal. Its socket is read into a buffer that all peers share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Instant;

use forebay_exec_proto::guest::{self, Event, Transmit};
use forebay_exec_proto::host::{self, Start};
use forebay_exec_proto::{
    ByteVec, CONTROL_QUEUE, ExecId, FRAME_MAX, HEADER_LEN, PeerFault, REQUEST_MAX, Ready, Request,
    StdinMode, TerminalSize,
};

use super::bell::{Bell, Cause, Ringer};
use super::inspect;
use super::preamble::Preamble;
use super::relayed::Relayed;
use super::stream::{self, Received};
use super::{last_words, refusal};
use crate::client::Client;
use crate::error::ExecError;
use crate::hub::Hub;

/// Receives per turn; each is at most the shared buffer's size.
const RECEIVES: usize = 2;

/// Write buffers filled per turn.
const SENDS: usize = 4;

/// Bytes of a client's requests that may wait for the guest to read them; one of any size fits.
/// What goes beyond is refused, since to leave it in the socket would hold back what stands
/// behind it there: acknowledgements, kills and ends of stdin.
pub(super) const REQUESTS_HELD: usize = REQUEST_MAX;

/// Signals that may wait for the VM's control queue before the client is not read any more. One
/// receive may add as many as it has room for. That queue is full only while the guest reads
/// nothing, so whatever stands behind them could not leave either.
const SIGNALS_HELD: usize = CONTROL_QUEUE;

/// Why a client's connection ended.
#[derive(Debug)]
pub(super) enum Goodbye {
    /// It closed it.
    Left,
    /// It did not greet the server in time.
    Silent,
    /// It broke the protocol.
    Fault(&'static str),
    /// A system call failed.
    Host(io::Error),
}

impl Goodbye {
    /// What the client is told.
    pub(super) fn words(&self) -> Option<String> {
        match self {
            Self::Left | Self::Host(_) => None,
            Self::Silent => Some("this client has not greeted the server in time".to_owned()),
            Self::Fault(rule) => Some(format!("this client broke the exec protocol: {rule}")),
        }
    }
}

impl From<PeerFault> for Goodbye {
    fn from(PeerFault(rule): PeerFault) -> Self {
        Self::Fault(rule)
    }
}

/// A client. Dropping it closes its socket and kills its executions, but those that it has left.
#[derive(Debug)]
pub(super) struct Peer {
    number: u64,
    #[cfg(test)]
    _attached: Arc<()>,
    socket: OwnedFd,
    hub: Arc<Hub>,
    /// As whom its commands run that name no user, if it is not the agent.
    user: Option<Arc<OsStr>>,
    bell: Arc<Bell>,
    conn: guest::Conn,
    /// When it connected.
    pub(super) since: Instant,
    greeted: bool,
    execs: BTreeMap<ExecId, Relayed>,
    /// Sizes of the requests that have not left towards the guest.
    requests: BTreeMap<ExecId, usize>,
    /// Signals that found no room, in their order.
    signals: VecDeque<(ExecId, u32)>,
    /// The newest sizes of its terminals that found no room. An older one is of no use to anybody,
    /// so there is nothing to hold up the client for.
    sizes: BTreeMap<ExecId, TerminalSize>,
    /// Whose size was sent last: those behind it are next, so that no terminal holds up another.
    last_sized: Option<ExecId>,
    /// The frames on their way to the socket: `out[sent..filled]` is still to be sent.
    out: Box<[u8]>,
    sent: usize,
    filled: usize,
    /// The socket may have bytes for us; cleared when it turns out to have none.
    pub(super) readable: bool,
    /// The socket may take bytes.
    pub(super) writable: bool,
}

impl Peer {
    /// A client that has just connected. The preamble is its first frame.
    pub(super) fn new(number: u64, socket: OwnedFd, client: &Client, bell: Arc<Bell>) -> Self {
        let hub = Arc::clone(client.hub());
        let mut out = vec![0; FRAME_MAX].into_boxed_slice();
        let preamble = Preamble::Welcome(hub.limits()).encode();
        for (to, from) in out.iter_mut().zip(preamble) {
            *to = from;
        }
        Self {
            number,
            #[cfg(test)]
            _attached: Arc::clone(&bell.attached),
            socket,
            hub,
            user: client.user().cloned(),
            bell,
            conn: guest::Conn::for_relay(),
            since: Instant::now(),
            greeted: false,
            execs: BTreeMap::new(),
            requests: BTreeMap::new(),
            signals: VecDeque::new(),
            sizes: BTreeMap::new(),
            last_sized: None,
            out,
            sent: 0,
            filled: preamble.len(),
            readable: true,
            writable: true,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether its bootstrap has come and was one.
    pub(super) fn has_greeted(&self) -> bool {
        self.greeted
    }

    /// Executions that it has, ended ones with unread output included.
    pub(super) fn executions(&self) -> usize {
        self.execs.len()
    }

    /// Signals or sizes wait for room in the VM's control queue.
    pub(super) fn waits_for_room(&self) -> bool {
        !self.signals.is_empty() || !self.sizes.is_empty()
    }

    /// Whether a turn would do anything.
    pub(super) fn has_work(&self) -> bool {
        (self.readable && self.may_read()) || (self.writable && self.wants_to_send())
    }

    /// Reads and writes, each at most a fixed number of times, so that no client takes more than
    /// its share of the thread. Writing never waits for reading, nor reading for writing.
    pub(super) fn turn(&mut self, scratch: &mut [u8]) -> Result<(), Goodbye> {
        for _ in 0..RECEIVES {
            if !self.readable || !self.may_read() {
                break;
            }
            match stream::receive(&self.socket, scratch).map_err(Goodbye::Host)? {
                Received::Bytes(n) => self.take(scratch.get(..n).unwrap_or_default())?,
                Received::Nothing => self.readable = false,
                Received::End => return Err(Goodbye::Left),
            }
        }
        self.send()
    }

    /// Sends what there is, as far as the socket takes it and the turn's share goes.
    pub(super) fn send(&mut self) -> Result<(), Goodbye> {
        for _ in 0..SENDS {
            if !self.writable || !self.wants_to_send() {
                break;
            }
            if self.sent == self.filled {
                self.fill()?;
            }
            let rest = self.out.get(self.sent..self.filled).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            let n = stream::send(&self.socket, rest).map_err(Goodbye::Host)?;
            self.writable = n == rest.len();
            self.sent = self.sent.saturating_add(n);
        }
        Ok(())
    }

    /// Says why its connection ends, if the socket takes that at once. Nothing may be sent
    /// afterwards.
    pub(super) fn last_words(&mut self, reason: &str) {
        // A frame that was begun is finished first.
        let rest = self.out.get(self.sent..self.filled).unwrap_or_default();
        if stream::send(&self.socket, rest).is_ok_and(|n| n == rest.len()) {
            // There is nobody to tell that it did not fit.
            let _ = stream::send(&self.socket, &last_words::encode(reason));
        }
    }

    /// Something happened to one of its executions in the VM.
    pub(super) fn service(&mut self, id: ExecId) {
        let signalled = self.signals.iter().any(|(of, _)| *of == id);
        if let Some(exec) = self.execs.get_mut(&id) {
            exec.hold_leave(signalled || self.sizes.contains_key(&id));
            exec.service(id, &mut self.conn);
            if !exec.is_requesting() {
                self.requests.remove(&id);
            }
            self.drop_if_over(id);
        }
    }

    /// Sends at most one of the waiting signals and sizes; whether it did. One for an execution
    /// that has ended reaches nobody.
    pub(super) fn send_control(&mut self) -> bool {
        if let Some((id, signal)) = self.signals.front() {
            let id = *id;
            let sent = self.execs.get(&id).is_none_or(|exec| exec.signal(*signal));
            if sent {
                self.signals.pop_front();
                self.leave_behind(id);
            }
            return sent;
        }
        let behind = self.last_sized.map_or(Bound::Unbounded, Bound::Excluded);
        let mut next = self.sizes.range((behind, Bound::Unbounded));
        let Some((&id, &size)) = next.next().or_else(|| self.sizes.first_key_value()) else {
            return false;
        };
        let sent = self.execs.get(&id).is_none_or(|exec| exec.resize(size));
        if sent {
            self.sizes.remove(&id);
            self.last_sized = Some(id);
            self.leave_behind(id);
        }
        sent
    }

    /// A signal or size has gone, which the client may have wanted before it left.
    fn leave_behind(&mut self, id: ExecId) {
        if self.execs.get(&id).is_some_and(Relayed::is_leaving) {
            self.service(id);
        }
    }

    /// While the guest does not read, its clients' signals are left in their sockets.
    fn may_read(&self) -> bool {
        self.signals.len() < SIGNALS_HELD
    }

    fn wants_to_send(&self) -> bool {
        self.sent < self.filled || self.conn.wants_transmit()
    }

    /// Takes bytes of the client's stream.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Goodbye> {
        self.conn.handle_bytes(bytes)?;
        // First, since what was consumed may make the room that a request behind it needs.
        while let Some((id, acked)) = self.conn.poll_acked() {
            if let Some(exec) = self.execs.get_mut(&id) {
                exec.acked(acked).map_err(Goodbye::Fault)?;
                self.drop_if_over(id);
            }
        }
        let mut touched = BTreeSet::new();
        while let Some(event) = self.conn.poll_event() {
            touched.extend(self.act(event)?);
        }
        for id in touched {
            self.service(id);
        }
        if let Some(after) = self.conn.poll_inspect() {
            self.conn.inspection(&inspect::page(&self.hub, after));
        }
        Ok(())
    }

    /// Does what the client asks; gives the execution that has to be looked at afterwards.
    fn act(&mut self, event: Event) -> Result<Option<ExecId>, Goodbye> {
        match event {
            Event::Bootstrap(bootstrap) => {
                if bootstrap.limits != self.hub.limits() {
                    return Err(Goodbye::Fault(
                        "a bootstrap with other limits than the VM's",
                    ));
                }
                if bootstrap.hostname.is_some()
                    || !bootstrap.env.is_empty()
                    || bootstrap.cwd.is_some()
                    || bootstrap.resources.is_some()
                {
                    return Err(Goodbye::Fault("a bootstrap that would configure the guest"));
                }
                self.greeted = true;
                self.conn.ready(Ready {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..Ready::default()
                });
                Ok(None)
            }
            Event::Quiesce(_) | Event::Renew(_) => {
                Err(Goodbye::Fault("a frame that only an agent takes"))
            }
            Event::Start { id, request } => {
                self.start(id, request);
                Ok(Some(id))
            }
            Event::Adopt { id, of } => {
                self.adopt(id, of);
                Ok(Some(id))
            }
            Event::Leave { id, leave } => {
                if let Some(exec) = self.execs.get_mut(&id) {
                    exec.leave(leave);
                }
                Ok(Some(id))
            }
            Event::StdinData(id) => Ok(Some(id)),
            Event::StdinEof(id) => {
                if let Some(exec) = self.execs.get_mut(&id) {
                    exec.end_stdin();
                }
                Ok(Some(id))
            }
            Event::Signal { id, signal } => {
                if !(1..=64).contains(&signal) {
                    return Err(Goodbye::Fault("a signal that does not exist"));
                }
                if self.runs(id, "a signal before Started")? {
                    self.signals.push_back((id, signal));
                }
                Ok(None)
            }
            Event::Resize { id, size } => {
                if self.runs(id, "a resize before Started")? {
                    self.sizes.insert(id, size);
                }
                Ok(None)
            }
            Event::Kill(id) => {
                if let Some(exec) = self.execs.get_mut(&id) {
                    exec.kill();
                }
                Ok(None)
            }
            Event::PowerOff { .. } => Err(Goodbye::Fault("a client may not end the guest")),
        }
    }

    /// Whether one of its executions is there to be controlled; to try that too early is a fault.
    fn runs(&self, id: ExecId, too_early: &'static str) -> Result<bool, Goodbye> {
        match self.execs.get(&id) {
            Some(exec) if !exec.has_started() => Err(Goodbye::Fault(too_early)),
            known => Ok(known.is_some()),
        }
    }

    /// Asks the VM to run a client's command. A refusal is the execution's failure.
    fn start(&mut self, id: ExecId, mut request: Request) {
        // Looked at first, since encoding takes time; what counts is what `Relayed::start` says.
        let (limit, active) = (self.conn.limits().max_executions, self.hub.active());
        if active >= limit {
            let left = self.hub.left();
            let refused = ExecError::AtCapacity {
                limit,
                active,
                left,
            };
            return self.conn.failed(id, refusal::failure(&refused));
        }
        if request.user.is_none() {
            let user = self.user.as_ref();
            request.user = user.map(|user| ByteVec::from(user.as_bytes().to_vec()));
        }
        let stdin = match request.stdin {
            StdinMode::Null => host::Stdin::Null,
            StdinMode::Pipe => host::Stdin::Pipe,
        };
        let start = match Start::new(request, stdin) {
            Ok(start) => start,
            Err(error) => return self.conn.failed(id, refusal::unsent(error)),
        };
        let waiting: usize = self.requests.values().sum();
        if waiting.saturating_add(start.request_len()) > REQUESTS_HELD {
            return self
                .conn
                .failed(id, refusal::unread(waiting, REQUESTS_HELD));
        }
        let ringer = Ringer::new(Cause::Exec(self.number, id), &self.bell);
        match Relayed::start(&self.hub, &start, ringer) {
            Ok(exec) => {
                tracing::debug!(client = self.number, %id, exec = %exec.vm_id(), "admitted");
                self.execs.insert(id, exec);
                self.requests.insert(id, start.request_len());
            }
            Err(error) => {
                tracing::debug!(client = self.number, %id, %error, "refused");
                self.conn.failed(id, refusal::failure(&error));
            }
        }
    }

    /// Hands an execution of the VM over that nobody holds. A refusal is the execution's failure.
    fn adopt(&mut self, id: ExecId, of: ExecId) {
        let ringer = Ringer::new(Cause::Exec(self.number, id), &self.bell);
        match Relayed::adopt(&self.hub, of, ringer) {
            Ok((exec, adopted)) => {
                tracing::debug!(client = self.number, %id, exec = %of, "adopted");
                self.execs.insert(id, exec);
                self.conn.adopted(id, adopted);
            }
            Err(error) => {
                tracing::debug!(client = self.number, %id, %error, "not adopted");
                self.conn.failed(id, refusal::adoption(&error));
            }
        }
    }

    /// Fills the write buffer with whole frames, as many as there are and fit.
    fn fill(&mut self) -> Result<(), Goodbye> {
        let chunk = usize::try_from(self.conn.limits().output_chunk_size).unwrap_or(FRAME_MAX);
        let largest = HEADER_LEN.saturating_add(chunk);
        (self.sent, self.filled) = (0, 0);
        // With less room than a whole chunk of output takes it goes first: a chunk is never cut.
        while let Some(room) = self
            .out
            .get_mut(self.filled..)
            .filter(|room| room.len() >= largest)
        {
            let len = match self.conn.poll_transmit(room) {
                Transmit::Frame(len) => len,
                Transmit::Read { id, stream, max } => {
                    let Some(exec) = self.execs.get_mut(&id) else {
                        self.conn.stream_ready(id, stream, false);
                        continue;
                    };
                    let len = exec
                        .take(id, stream, max, &mut self.conn, room)
                        .map_err(Goodbye::Fault)?;
                    self.drop_if_over(id);
                    len
                }
                Transmit::Full | Transmit::Idle => break,
            };
            self.filled = self.filled.saturating_add(len);
        }
        Ok(())
    }

    fn drop_if_over(&mut self, id: ExecId) {
        if self.execs.get(&id).is_some_and(Relayed::is_over) {
            self.execs.remove(&id);
            self.requests.remove(&id);
            self.sizes.remove(&id);
        }
    }
}
