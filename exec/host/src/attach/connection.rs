//! The client's end of an attach connection: a hub of its own, and the thread that is its
//! channel.
//!
//! ```text
//!  clients, handles ──► Hub ── next_to_guest ──► thread ──► socket
//!        │               ▲ ◄── judge, deliver ──   │  ▲
//!        └ the last one drops: Lifeline ── stop ───┘  └ kick: Link::transmit
//! ```
//!
//! The thread also keeps the deadlines of what the client started. The hub keeps the lifeline; the
//! thread keeps neither while it waits. So the connection ends with the last client or handle, and
//! goes on while nobody polls.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Instant;

use forebay_exec_proto::host::Config;
use forebay_exec_proto::{FRAME_MAX, Limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use tokio::sync::oneshot;

use super::bell::Bell;
use super::error::ConnectError;
use super::inbox::Inbox;
use super::preamble::{self, Preamble, Unusable};
use super::socket::{self, AttachSocket};
use super::stream::{self, Received};
use super::thread;
use crate::client::Client;
use crate::error::ExecError;
use crate::hub::{Hub, Link};

const NAME: &str = "forebay-client";

/// Receives between two looks at what is to be sent.
const RECEIVES: usize = 8;

/// Receives when nothing can be sent any more: more than any socket's buffer holds.
const LAST_RECEIVES: usize = 1024;

/// How long a server whose backlog is full is left alone.
const BUSY_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

pub(super) const SERVER_LEFT: &str = "the program that has the VM closed the attach connection";

impl Client {
    /// Attaches to a VM of another program, by the socket that it was given as its
    /// `attach_socket`. What the client starts has ids of its own and is seen by this client
    /// alone, unless it is left for others; limits and the count of executions are the VM's, and so
    /// are the environment, directory and user of a command for which it says nothing else.
    ///
    /// The connection has one thread and needs no runtime. It ends with the last clone of the
    /// client and the last handle, sink, reader or control that came from it, and with the VM or
    /// its program; every execution of the client is killed then, detached ones included, but not
    /// those that it has [left](crate::ExecHandle::leave). What has not ended by then fails with
    /// [`ExecError::VmGone`].
    ///
    /// Dropping the future ends the connection.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(path: impl AsRef<Path>) -> Result<Self, ConnectError> {
        let path = path.as_ref();
        if !socket::is_address(path) {
            return Err(ConnectError::Path {
                path: path.to_owned(),
                max: AttachSocket::PATH_MAX,
            });
        }
        let bell = Bell::new().map_err(|e| host("eventfd", &e))?;
        let lifeline = Arc::new(Lifeline {
            bell: Arc::clone(&bell),
        });
        let (sender, connected) = oneshot::channel();
        let thread = Channel {
            path: path.to_owned(),
            bell,
            lifeline: Arc::downgrade(&lifeline),
        };
        thread::spawn(NAME, move || thread.run(sender)).map_err(|e| host("start thread", &e))?;
        let hub = connected
            .await
            .unwrap_or_else(|_| Err(closed(path, "its thread ended")))?;
        // From here on the hub holds it.
        drop(lifeline);
        match hub.ready().await {
            Ok(_) => Ok(Self::new(hub)),
            Err(ExecError::VmGone { reason }) => Err(closed(path, reason)),
            Err(error) => Err(closed(path, error.to_string())),
        }
    }
}

/// Lets the thread go on until it is dropped.
#[derive(Debug)]
struct Lifeline {
    bell: Arc<Bell>,
}

impl Link for Lifeline {
    fn transmit(&self) {
        self.bell.ring();
    }

    /// The thread asks for the next deadline before it waits.
    fn expire_at(&self, _at: Instant) {
        self.bell.ring();
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.bell.stop();
    }
}

/// What the thread begins with.
struct Channel {
    path: PathBuf,
    bell: Arc<Bell>,
    lifeline: Weak<Lifeline>,
}

impl Channel {
    fn run(self, connected: oneshot::Sender<Result<Arc<Hub>, ConnectError>>) {
        let (socket, hub) = match self.connect() {
            Ok(Some(both)) => both,
            // Nobody waits for it any more.
            Ok(None) => return,
            Err(error) => {
                // Nor for this.
                let _ = connected.send(Err(error));
                return;
            }
        };
        let weak = Arc::downgrade(&hub);
        if connected.send(Ok(hub)).is_err() {
            return;
        }
        let served = panic::catch_unwind(AssertUnwindSafe(|| self.serve(&socket, &weak)));
        let reason = match served {
            Ok(Ok(())) => return,
            Ok(Err(reason)) => reason,
            Err(_) => "internal error: panic in the attach connection's thread".to_owned(),
        };
        drop(socket);
        if let Some(hub) = weak.upgrade() {
            hub.vm_gone(&reason);
        }
    }

    /// Connects and makes the hub that fits the server's preamble. `None` if told to stop.
    fn connect(&self) -> Result<Option<(OwnedFd, Arc<Hub>)>, ConnectError> {
        let socket = socket::socket().map_err(|e| host("socket", &e.into()))?;
        let unreachable = |error: Errno| ConnectError::Unreachable {
            path: self.path.clone(),
            kind: socket::kind(error),
        };
        let address = SocketAddrUnix::new(self.path.as_path()).map_err(unreachable)?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                // Its backlog is full, which a Unix socket does not tell the end of.
                Err(Errno::AGAIN) => self.pause()?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(unreachable(error)),
            }
            if self.bell.is_stopped() {
                return Ok(None);
            }
        }
        let Some(preamble) = self.preamble(&socket)? else {
            return Ok(None);
        };
        let limits = admitted(&self.path, &preamble)?;
        let config = Config {
            limits,
            ..Config::default()
        };
        let hub = Hub::facing_relay(config).map_err(|e| closed(&self.path, e.to_string()))?;
        let Some(lifeline) = self.lifeline.upgrade() else {
            return Ok(None);
        };
        hub.opened();
        let link: Weak<Lifeline> = Arc::downgrade(&lifeline);
        hub.keep(Box::new(lifeline));
        hub.set_link(link);
        Ok(Some((socket, hub)))
    }

    /// Reads the server's first bytes.
    fn preamble(&self, socket: &OwnedFd) -> Result<Option<[u8; preamble::LEN]>, ConnectError> {
        let mut bytes = [0; preamble::LEN];
        let mut have = 0;
        while let Some(room) = bytes.get_mut(have..).filter(|room| !room.is_empty()) {
            match stream::receive(socket, room) {
                Ok(Received::Bytes(n)) => have += n,
                Ok(Received::Nothing) => {
                    wait(socket, PollFlags::IN, &self.bell, None)
                        .map_err(|e| host("poll", &e.into()))?;
                }
                Ok(Received::End) => return Err(closed(&self.path, SERVER_LEFT)),
                Err(error) => return Err(closed(&self.path, error.to_string())),
            }
            if self.bell.is_stopped() {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    fn pause(&self) -> Result<(), ConnectError> {
        let mut fds = [PollFd::from_borrowed_fd(self.bell.fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&BUSY_PAUSE)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(host("poll", &error.into())),
        }
    }

    /// Moves frames until told to stop; an error is why the connection ended.
    fn serve(&self, socket: &OwnedFd, hub: &Weak<Hub>) -> Result<(), String> {
        let mut inbox = Inbox::new();
        let mut scratch = vec![0; FRAME_MAX];
        let mut outbox = Outbox::new();
        while !self.bell.is_stopped() {
            // Its drop may be the last one, and is then what stops this.
            let Some(hub) = hub.upgrade() else {
                return Ok(());
            };
            let deadline = hub.expire();
            let outcome = exchange(socket, &hub, &mut inbox, &mut outbox, &mut scratch);
            // Whoever learns of what came meanwhile runs with nothing of ours locked.
            hub.settle();
            drop(hub);
            outcome?;
            let wanted = if outbox.is_empty() {
                PollFlags::IN
            } else {
                PollFlags::IN | PollFlags::OUT
            };
            wait(socket, wanted, &self.bell, deadline).map_err(|e| format!("poll: {e}"))?;
        }
        Ok(())
    }
}

/// The limits under which the server at `path` takes this client.
pub(super) fn admitted(
    path: &Path,
    preamble: &[u8; preamble::LEN],
) -> Result<Limits, ConnectError> {
    let path = path.to_owned();
    match Preamble::decode(preamble) {
        Ok(Preamble::Welcome(limits)) => Ok(limits),
        Ok(Preamble::Full { most }) => Err(ConnectError::TooManyClients { path, most }),
        Err(Unusable::Foreign) => Err(ConnectError::Foreign { path }),
        Err(Unusable::Generation(theirs)) => Err(ConnectError::Generation {
            path,
            ours: preamble::GENERATION,
            theirs,
        }),
    }
}

/// Receives and sends what there is, within a turn's bounds. Neither waits for the other.
fn exchange(
    socket: &OwnedFd,
    hub: &Hub,
    inbox: &mut Inbox,
    outbox: &mut Outbox,
    scratch: &mut [u8],
) -> Result<(), String> {
    if receive(socket, hub, inbox, scratch, RECEIVES)? == Received::End {
        return Err(SERVER_LEFT.to_owned());
    }
    let Err(error) = outbox.send(socket, hub) else {
        return Ok(());
    };
    // The server takes no more; what it said last is still to be read.
    receive(socket, hub, inbox, scratch, LAST_RECEIVES)?;
    Err(match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => SERVER_LEFT.to_owned(),
        _ => failed(&error),
    })
}

/// Receives what there is, at most `most` times; gives what came last.
fn receive(
    socket: &OwnedFd,
    hub: &Hub,
    inbox: &mut Inbox,
    scratch: &mut [u8],
    most: usize,
) -> Result<Received, String> {
    let mut last = Received::Nothing;
    for _ in 0..most {
        last = stream::receive(socket, scratch).map_err(|error| failed(&error))?;
        let Received::Bytes(n) = last else {
            break;
        };
        let bytes = scratch.get(..n).unwrap_or_default();
        inbox.take(hub, bytes).map_err(|ended| ended.to_string())?;
    }
    Ok(last)
}

fn failed(error: &io::Error) -> String {
    format!("the attach connection failed: {error}")
}

/// Frames on their way to the socket: fewer than two frames' bytes.
struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(2 * FRAME_MAX),
            sent: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    /// Sends frames until there are none or the socket is full.
    fn send(&mut self, socket: &OwnedFd, hub: &Hub) -> io::Result<()> {
        loop {
            if self.is_empty() {
                self.clear();
                while self.bytes.len() < FRAME_MAX
                    && let Some(frame) = hub.next_to_guest()
                {
                    self.bytes.extend_from_slice(&frame.head);
                    self.bytes.extend_from_slice(&frame.body);
                }
                if self.bytes.is_empty() {
                    return Ok(());
                }
            }
            let rest = self.bytes.get(self.sent..).unwrap_or_default();
            let n = stream::send(socket, rest)?;
            self.sent = self.sent.saturating_add(n);
            if n < rest.len() {
                return Ok(());
            }
        }
    }
}

/// Waits until the socket has what is `wanted`, the bell rings, which it no longer does then, or
/// it is `until`.
fn wait(
    socket: &OwnedFd,
    wanted: PollFlags,
    bell: &Bell,
    until: Option<Instant>,
) -> Result<(), Errno> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // More than can be said is as long as for ever.
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let mut fds = [
        PollFd::new(socket, wanted),
        PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN),
    ];
    match poll(&mut fds, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error),
    }
    bell.silence();
    Ok(())
}

pub(super) fn host(operation: &'static str, error: &io::Error) -> ConnectError {
    ConnectError::Host {
        operation,
        reason: error.to_string(),
    }
}

pub(super) fn closed(path: &Path, reason: impl Into<String>) -> ConnectError {
    ConnectError::Closed {
        path: path.to_owned(),
        reason: reason.into(),
    }
}
