//! The server: its thread, who is accepted, and its end.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::bell::Bell;
use super::clients::{CLIENTS_MAX, Clients, LISTENER, Room};
use super::connection::SERVER_LEFT;
use super::error::AttachError;
use super::socket::AttachSocket;
use super::thread;
use crate::client::Client;

const NAME: &str = "forebay-attach";

/// Clients accepted in one turn.
const ACCEPTS: usize = 16;

/// How long no client is accepted after the process had no descriptor for one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves one VM's attach socket on a thread of its own; no runtime is needed.
///
/// Dropping it ends the thread, closes every client's connection, kills the clients' executions
/// and removes the socket file. That takes no longer than the turn under way.
#[derive(Debug)]
pub struct AttachServer {
    path: PathBuf,
    bell: Arc<Bell>,
    /// What clients are told at the end, unless the VM itself has ended by then.
    reason: Arc<OnceLock<String>>,
    thread: Option<JoinHandle<()>>,
}

impl AttachSocket {
    /// Begins to serve the VM of `client`: its agent should be ready, since starts are refused until
    /// it is. Commands that name no user run as those of `client` do.
    ///
    /// # Errors
    /// [`AttachError::Host`]; the socket is removed.
    pub fn serve(self, client: Client) -> Result<AttachServer, AttachError> {
        let path = self.path().to_owned();
        let host = |operation, source| AttachError::Host {
            path: path.clone(),
            operation,
            source,
        };
        let bell = Bell::new().map_err(|e| host("eventfd", e))?;
        let reason = Arc::new(OnceLock::new());
        let turns =
            Turns::new(self, client, &bell, &reason).map_err(|e| host("epoll", e.into()))?;
        let thread =
            thread::spawn(NAME, move || turns.run()).map_err(|e| host("start of its thread", e))?;
        Ok(AttachServer {
            path,
            bell,
            reason,
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
    #[cfg(test)]
    pub(super) fn clients(&self) -> usize {
        Arc::strong_count(&self.bell.attached).saturating_sub(1)
    }

    /// As dropping it, and tells the clients this reason, unless the VM has ended and given one.
    pub fn close(self, reason: impl Into<String>) {
        // The first time that it is set.
        let _ = self.reason.set(reason.into());
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
    bell: Arc<Bell>,
    clients: Clients,
    reason: Arc<OnceLock<String>>,
    /// Somebody may wait to be accepted.
    waiting: bool,
    /// When no descriptor was left for a new client.
    accept_failed: Option<Instant>,
}

impl Turns {
    fn new(
        socket: AttachSocket,
        client: Client,
        bell: &Arc<Bell>,
        reason: &Arc<OnceLock<String>>,
    ) -> Result<Self, Errno> {
        let clients = Clients::new(client, Arc::clone(bell))?;
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&clients.epoll, &socket, data, edge)?;
        Ok(Self {
            socket,
            bell: Arc::clone(bell),
            clients,
            reason: Arc::clone(reason),
            waiting: true,
            accept_failed: None,
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
    }

    fn serve(&mut self) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(CLIENTS_MAX.saturating_add(2));
        while !self.bell.is_stopped() {
            // What had come by now is among the events: a thread that is held up later on must not
            // take the time for its clients' silence.
            let seen = Instant::now();
            self.wait(&mut events)?;
            let before = self.clients.len();
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.waiting = true,
                    _ => self.clients.note(event),
                }
            }
            self.clients.turn();
            // Behind their turn, so that nobody's greeting lies unread.
            self.clients.expire(seen);
            if self.clients.len() < before {
                // There is a descriptor again.
                self.accept_failed = None;
            }
            if self.accepts() {
                self.accept();
            }
        }
        let reason = self.reason.get().map_or(SERVER_LEFT, String::as_str);
        self.clients.farewell(reason);
        Ok(())
    }

    /// Waits until there is something to do.
    fn wait(&self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        let limit = if self.accepts() || self.clients.have_work() {
            Some(Duration::ZERO)
        } else {
            let pause = self.accept_paused().then_some(ACCEPT_PAUSE);
            let patience = self.clients.patience(Instant::now());
            [pause, patience].into_iter().flatten().min()
        };
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match epoll::wait(&self.clients.epoll, spare_capacity(events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether somebody may be accepted now, or refused.
    fn accepts(&self) -> bool {
        self.waiting && !self.accept_paused() && self.clients.room() != Room::Soon
    }

    /// Whether accepting failed a moment ago. By the clock, so that a busy server resumes, too.
    fn accept_paused(&self) -> bool {
        self.accept_failed
            .is_some_and(|when| when.elapsed() < ACCEPT_PAUSE)
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            // Whoever waits is told later that there is no place, or gets one.
            if self.clients.room() == Room::Soon {
                return;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.socket, flags) {
                Ok(socket) => self.clients.greet(socket),
                Err(Errno::AGAIN) => {
                    self.waiting = false;
                    return;
                }
                // The client was gone before it was accepted.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => {
                    self.clients.cannot_accept(error);
                    self.accept_failed = Some(Instant::now());
                    return;
                }
            }
        }
    }
}

fn text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}
