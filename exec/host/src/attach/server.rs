//! The server's thread: who is attached, and whose turn it is.
//!
//! Sockets are watched edge-triggered and each peer remembers what its socket may have, so a turn
//! goes once round all peers, gives each a bounded share, and waits only when none has work.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_exec_proto::FRAME_MAX;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::bell::{Bell, Cause, Ringer};
use super::error::AttachError;
use super::peer::{Goodbye, Peer};
use super::preamble::Preamble;
use super::socket::AttachSocket;
use super::{stream, thread};
use crate::hub::Hub;

/// Clients that may be attached to one VM at once.
pub const CLIENTS_MAX: usize = 64;

const NAME: &str = "forebay-attach";

/// Clients accepted in one turn.
const ACCEPTS: usize = 16;

/// Signals of each client that may go in one turn.
const SIGNALS: usize = 16;

/// How long no client is accepted after the process had no descriptor for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The same for the kernel.
const ACCEPT_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

const LISTENER: u64 = 0;
const BELL: u64 = 1;
/// Numbers from here on are clients'.
const FIRST_CLIENT: u64 = 2;

/// Serves one VM's attach socket on a thread of its own; no runtime is needed.
///
/// Dropping it ends the thread, closes every client's connection, kills the clients' executions
/// and removes the socket file. That takes no longer than the turn under way.
#[derive(Debug)]
pub struct AttachServer {
    path: PathBuf,
    bell: Arc<Bell>,
    clients: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl AttachSocket {
    /// Begins to serve the VM behind `hub`: its agent should be ready, since starts are refused
    /// until it is.
    ///
    /// # Errors
    /// [`AttachError::Host`]; the socket is removed.
    pub fn serve(self, hub: Arc<Hub>) -> Result<AttachServer, AttachError> {
        let path = self.path().to_owned();
        let host = |operation, source| AttachError::Host {
            path: path.clone(),
            operation,
            source,
        };
        let bell = Bell::new().map_err(|e| host("eventfd", e))?;
        let clients = Arc::new(AtomicUsize::new(0));
        let turns = Turns::new(self, hub, Arc::clone(&bell), Arc::clone(&clients))
            .map_err(|e| host("epoll", e.into()))?;
        let thread =
            thread::spawn(NAME, move || turns.run()).map_err(|e| host("start of its thread", e))?;
        Ok(AttachServer {
            path,
            bell,
            clients,
            thread: Some(thread),
        })
    }
}

impl AttachServer {
    /// The socket's path as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Clients that are attached now.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }
}

impl Drop for AttachServer {
    fn drop(&mut self) {
        self.bell.stop();
        let Some(thread) = self.thread.take() else {
            return;
        };
        // A waker of the application that runs on the thread itself may drop the VM.
        if thread.thread().id() != std::thread::current().id() {
            // It catches its own panics.
            let _ = thread.join();
        }
    }
}

/// Everything that the thread works on.
struct Turns {
    socket: AttachSocket,
    hub: Arc<Hub>,
    bell: Arc<Bell>,
    epoll: OwnedFd,
    peers: BTreeMap<u64, Peer>,
    clients: Arc<AtomicUsize>,
    next_number: u64,
    /// Somebody may wait to be accepted.
    accepting: bool,
    /// When no descriptor was left for a new client.
    accept_failed: Option<Instant>,
    /// Waits for room in the VM's control queue, when a signal found none.
    room: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The client whose signal goes first when there is room, so that each gets its turn.
    signals_from: u64,
}

impl Turns {
    fn new(
        socket: AttachSocket,
        hub: Arc<Hub>,
        bell: Arc<Bell>,
        clients: Arc<AtomicUsize>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &socket, epoll::EventData::new_u64(LISTENER), edge)?;
        epoll::add(
            &epoll,
            bell.fd(),
            epoll::EventData::new_u64(BELL),
            epoll::EventFlags::IN,
        )?;
        Ok(Self {
            socket,
            hub,
            bell,
            epoll,
            peers: BTreeMap::new(),
            clients,
            next_number: FIRST_CLIENT,
            accepting: true,
            accept_failed: None,
            room: None,
            signals_from: FIRST_CLIENT,
        })
    }

    fn run(mut self) {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| self.serve()));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the attach socket is no longer served"),
            Err(payload) => tracing::error!(
                message = text(&*payload),
                "panic in the attach server; its clients are cut off, the VM goes on"
            ),
        }
        self.clients.store(0, Ordering::Relaxed);
    }

    fn serve(&mut self) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(CLIENTS_MAX.saturating_add(2));
        let mut scratch = vec![0; FRAME_MAX];
        while !self.bell.is_stopped() {
            self.wait(&mut events)?;
            for event in events.drain(..) {
                self.note(event);
            }
            if self.accepting && !self.accept_paused() {
                self.accept();
            }
            self.serve_peers(&mut scratch);
            self.send_signals();
        }
        // What the VM's end has brought about goes out as far as the sockets take it.
        self.answer_bell();
        for peer in self.peers.values_mut() {
            let _ = peer.send();
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        let busy = self.accepting && !self.accept_paused()
            || self.signals_may_go()
            || self.peers.values().any(Peer::has_work);
        let limit = if busy {
            Some(&AT_ONCE)
        } else if self.accept_paused() {
            Some(&ACCEPT_WAIT)
        } else {
            None
        };
        match epoll::wait(&self.epoll, spare_capacity(events), limit) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether accepting failed a moment ago. By the clock, so that a busy server resumes, too.
    fn accept_paused(&self) -> bool {
        self.accept_failed
            .is_some_and(|when| when.elapsed() < ACCEPT_PAUSE)
    }

    fn note(&mut self, event: epoll::Event) {
        let flags = event.flags;
        match event.data.u64() {
            LISTENER => self.accepting = true,
            BELL => self.answer_bell(),
            number => {
                use epoll::EventFlags as On;
                if let Some(peer) = self.peers.get_mut(&number) {
                    let ended = On::HUP | On::ERR | On::RDHUP;
                    peer.readable |= flags.intersects(On::IN | ended);
                    peer.writable |= flags.intersects(On::OUT | ended);
                }
                // Both directions are closed: whatever it has sent, nobody waits for an answer.
                if flags.intersects(On::HUP | On::ERR) {
                    self.part(number, &Goodbye::Left);
                }
            }
        }
    }

    fn answer_bell(&mut self) {
        self.bell.silence();
        for ringer in self.bell.take() {
            match ringer.cause {
                Cause::Exec(number, id) => {
                    if let Some(peer) = self.peers.get_mut(&number) {
                        peer.service(id);
                    }
                }
                Cause::ControlRoom => self.room = None,
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.socket, flags) {
                Ok(socket) => self.greet(socket),
                Err(Errno::AGAIN) => {
                    self.accepting = false;
                    return;
                }
                // The client was gone before it was accepted.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "no client can be accepted for now");
                    self.accept_failed = Some(Instant::now());
                    return;
                }
            }
        }
    }

    fn greet(&mut self, socket: OwnedFd) {
        if self.peers.len() >= CLIENTS_MAX {
            tracing::warn!(most = CLIENTS_MAX, "a client too many was refused");
            let most = u32::try_from(CLIENTS_MAX).unwrap_or(u32::MAX);
            // Into an empty socket; a client that is gone already needs no answer.
            let _ = stream::send(&socket, &Preamble::Full { most }.encode());
            return;
        }
        let number = self.next_number;
        self.next_number = self.next_number.saturating_add(1);
        use epoll::EventFlags as On;
        let watched = On::IN | On::OUT | On::RDHUP | On::ET;
        let data = epoll::EventData::new_u64(number);
        if let Err(error) = epoll::add(&self.epoll, &socket, data, watched) {
            tracing::warn!(%error, "a client cannot be watched and was refused");
            return;
        }
        tracing::debug!(client = number, "attached");
        let peer = Peer::new(
            number,
            socket,
            Arc::clone(&self.hub),
            Arc::clone(&self.bell),
        );
        self.peers.insert(number, peer);
        self.count();
    }

    fn serve_peers(&mut self, scratch: &mut [u8]) {
        let mut parting = Vec::new();
        for (number, peer) in &mut self.peers {
            if peer.has_work()
                && let Err(goodbye) = peer.turn(scratch)
            {
                parting.push((*number, goodbye));
            }
        }
        for (number, goodbye) in parting {
            self.part(number, &goodbye);
        }
    }

    /// Whether a signal waits and there may be room. While that is waited for there is none.
    fn signals_may_go(&self) -> bool {
        self.room.is_none() && self.peers.values().any(Peer::waits_for_room)
    }

    /// Lets signals into the VM's control queue, one of each client in turn.
    fn send_signals(&mut self) {
        for _ in 0..SIGNALS {
            if !self.signals_may_go() {
                break;
            }
            let after = self.peers.range(self.signals_from..);
            let before = self.peers.range(..self.signals_from);
            let order: Vec<u64> = after.chain(before).map(|(number, _)| *number).collect();
            let mut sent = false;
            for number in order {
                if let Some(peer) = self.peers.get_mut(&number)
                    && peer.signal()
                {
                    sent = true;
                    self.signals_from = number.saturating_add(1);
                }
            }
            if !sent {
                self.wait_for_room();
            }
        }
    }

    /// Asks to be woken when there is room. It may have come since the last try, so that is
    /// done once more.
    fn wait_for_room(&mut self) {
        let hub = Arc::clone(&self.hub);
        let mut room: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(async move { hub.control_room.notified().await });
        let waker = Waker::from(Ringer::new(Cause::ControlRoom, &self.bell));
        if room
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            return;
        }
        let sent = self.peers.values_mut().any(Peer::signal);
        if !sent {
            self.room = Some(room);
        }
    }

    /// A client's connection ends, and with it its executions.
    fn part(&mut self, number: u64, goodbye: &Goodbye) {
        let Some(peer) = self.peers.remove(&number) else {
            return;
        };
        let executions = peer.executions();
        match goodbye {
            Goodbye::Left => tracing::debug!(client = number, executions, "detached"),
            Goodbye::Fault(rule) => tracing::warn!(
                client = number,
                executions,
                rule,
                "a client broke the exec protocol; its executions are killed"
            ),
            Goodbye::Host(error) => tracing::debug!(
                client = number,
                executions,
                %error,
                "a client's connection failed; its executions are killed"
            ),
        }
        // Closed before its executions go, which takes the VM's lock for each.
        let _ = epoll::delete(&self.epoll, peer.fd());
        drop(peer);
        self.count();
        // There is a descriptor again.
        self.accept_failed = None;
    }

    fn count(&self) {
        self.clients.store(self.peers.len(), Ordering::Relaxed);
    }
}

fn text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}
