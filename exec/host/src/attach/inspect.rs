//! Looking at a VM over its attach socket: who is slow in there.
//!
//! Whoever may connect to the socket may run anything in the VM, and so may see what runs: every
//! execution, whoever started it, by its program's name and its counts. What was said on the
//! command line, in the environment and on the streams is not shown.
//!
//! A look is asked for page by page, each a question of the exec protocol that belongs to no
//! execution. The server keeps one open question per client and one page of an answer.

use std::io::{self, Read as _, Write as _};
use std::iter;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_exec_proto::FRAME_MAX;
use forebay_exec_proto::host::{Config, Inspection, View};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::connection::{self, SERVER_LEFT};
use super::error::ConnectError;
use super::inbox::{Ended, Inbox};
use super::preamble;
use super::socket::{self, AttachSocket};
use crate::hub::Hub;

/// How long attaching may take, and how long a look.
const PATIENCE: Duration = Duration::from_secs(10);

const NO_ANSWER: &str = "no answer came in time: the VM has not booted yet, its program is stopped, \
    or is of a version that cannot be looked at";

/// Most executions in a look: as many ended ones as a program can sensibly keep, and far less than
/// a server that never comes to an end can send in the time.
pub(crate) const EXECUTIONS_MAX: usize = 1 << 16;

/// The server's answer to a client's question.
pub(super) fn page(hub: &Hub, after: u64) -> Inspection {
    hub.step(|inner| {
        let mut page = inner.conn.inspection(after);
        inner.mark_adoptable(&mut page.view);
        page
    })
}

/// Looks at a VM of another program, over its attach socket. Runs nothing there.
///
/// Made for tools: its calls block, each for ten seconds at most whatever the server does, and it
/// has neither a thread nor a runtime. Dropping it ends the connection.
pub struct AttachInspector {
    path: PathBuf,
    socket: UnixStream,
    /// This end of the protocol, which no application uses.
    hub: Arc<Hub>,
    inbox: Inbox,
    scratch: Vec<u8>,
    patience: Duration,
    /// When the call under way is given up.
    deadline: Instant,
}

impl AttachInspector {
    /// Attaches to the VM whose socket is at `path`.
    ///
    /// # Errors
    /// See [`ConnectError`]; [`ConnectError::Closed`] also when the server does not answer, as
    /// while its VM boots.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, ConnectError> {
        Self::connect_within(path.as_ref(), PATIENCE)
    }

    /// The same, with another time for each call.
    pub(super) fn connect_within(path: &Path, patience: Duration) -> Result<Self, ConnectError> {
        let deadline = later(patience);
        if !socket::is_address(path) {
            return Err(ConnectError::Path {
                path: path.to_owned(),
                max: AttachSocket::PATH_MAX,
            });
        }
        let mut socket = dial(path, deadline)?;
        let mut preamble = [0; preamble::LEN];
        let mut rest = &mut preamble[..];
        while !rest.is_empty() {
            let n = receive(&mut socket, rest, deadline).map_err(|error| failed(path, &error))?;
            rest = rest.get_mut(n..).unwrap_or_default();
        }
        let limits = connection::admitted(path, &preamble)?;
        let config = Config {
            limits,
            ..Config::default()
        };
        let hub = Hub::facing_relay(config)
            .map_err(|error| connection::closed(path, error.to_string()))?;
        hub.opened();
        let mut inspector = Self {
            path: path.to_owned(),
            socket,
            hub,
            inbox: Inbox::new(),
            scratch: vec![0; FRAME_MAX],
            patience,
            deadline,
        };
        inspector.until(|hub| hub.step(|inner| inner.conn.is_ready().then_some(())))?;
        Ok(inspector)
    }

    /// Looks at the VM's connection to its agent and at everything that runs over it. With many
    /// executions it is put together from looks at a few of them, one shortly after the other.
    ///
    /// # Errors
    /// [`ConnectError::Closed`]: the connection ended, no answer came in time, or one that breaks
    /// the protocol. Connect anew.
    pub fn look(&mut self) -> Result<View, ConnectError> {
        self.deadline = later(self.patience);
        let Inspection { mut view, mut more } = self.page(0)?;
        while more {
            let last = view.executions.last().map_or(0, |exec| exec.id.get());
            let mut page = self.page(last)?;
            view.executions.append(&mut page.view.executions);
            more = page.more;
            if view.executions.len() > EXECUTIONS_MAX {
                return Err(self.fault("a look at more executions than there can be"));
            }
        }
        Ok(view)
    }

    /// The server broke the protocol: nothing more is asked of it.
    fn fault(&self, rule: &'static str) -> ConnectError {
        let reason = Ended::Fault(rule).to_string();
        self.hub.vm_gone(&reason);
        connection::closed(&self.path, reason)
    }

    /// The executions with ids above `after`, or some of them. A page behind which there is more
    /// goes further than the one before, so that a look comes to an end.
    fn page(&mut self, after: u64) -> Result<Inspection, ConnectError> {
        let asked = self.hub.step(|inner| inner.conn.ask_inspection(after));
        // Refused when it has failed before.
        asked.map_err(|_| connection::closed(&self.path, "an earlier look failed"))?;
        let page = self.until(|hub| hub.step(|inner| inner.conn.take_inspection()))?;
        let ids = || page.view.executions.iter().map(|exec| exec.id.get());
        let rising = iter::once(after).chain(ids()).is_sorted_by(|a, b| a < b);
        if !rising || (page.more && ids().next().is_none()) {
            return Err(self.fault("a look whose ids do not rise"));
        }
        Ok(page)
    }

    /// Moves frames until `seen` gives something, or until the deadline.
    fn until<T>(&mut self, seen: impl Fn(&Hub) -> Option<T>) -> Result<T, ConnectError> {
        let outcome = loop {
            if let Some(outcome) = seen(&self.hub) {
                break Ok(outcome);
            }
            if let Err(error) = self.exchange() {
                break Err(error);
            }
        };
        outcome.map_err(|error| failed(&self.path, &error))
    }

    /// Sends what there is, then waits for something to come.
    fn exchange(&mut self) -> io::Result<()> {
        while let Some(frame) = self.hub.next_to_guest() {
            send(&mut self.socket, &frame.head, self.deadline)?;
            send(&mut self.socket, &frame.body, self.deadline)?;
        }
        let n = receive(&mut self.socket, &mut self.scratch, self.deadline)?;
        let bytes = self.scratch.get(..n).unwrap_or_default();
        self.inbox.take(&self.hub, bytes).map_err(io::Error::other)
    }
}

impl std::fmt::Debug for AttachInspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachInspector")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Connects.
fn dial(path: &Path, deadline: Instant) -> Result<UnixStream, ConnectError> {
    let host = |operation, error: rustix::io::Errno| connection::host(operation, &error.into());
    let unreachable = |error| ConnectError::Unreachable {
        path: path.to_owned(),
        kind: socket::kind(error),
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| host("socket", error))?;
    // That of sending holds for connecting, too: a server's backlog may be full.
    limit(&socket, Timeout::Send, deadline).map_err(|error| failed(path, &error))?;
    let address = SocketAddrUnix::new(path).map_err(unreachable)?;
    rustix::net::connect(&socket, &address).map_err(unreachable)?;
    Ok(socket.into())
}

/// The time in so long.
fn later(patience: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(patience).unwrap_or(now)
}

/// Lets the socket's next wait last until the deadline at most.
fn limit(socket: impl AsFd, way: Timeout, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(set_socket_timeout(socket, way, Some(left))?)
}

/// Receives what has come, at least one byte.
fn receive(socket: &mut UnixStream, buf: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        limit(&*socket, Timeout::Recv, deadline)?;
        match socket.read(buf) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Sends all of it.
fn send(socket: &mut UnixStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        limit(&*socket, Timeout::Send, deadline)?;
        match socket.write(bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> ConnectError {
    let reason = match error.kind() {
        io::ErrorKind::UnexpectedEof => SERVER_LEFT.to_owned(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => NO_ANSWER.to_owned(),
        _ => format!("the attach connection failed: {error}"),
    };
    connection::closed(path, reason)
}
