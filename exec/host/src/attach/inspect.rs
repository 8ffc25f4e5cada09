//! Looking at a VM over its attach socket: who is slow in there.
//!
//! Whoever may connect to the socket may run anything in the VM, and so may see what runs: every
//! execution, whoever started it, by its program's name and its counts. What was said on the
//! command line, in the environment and on the streams is not shown.
//!
//! A look is asked for page by page, each a question of the exec protocol that belongs to no
//! execution. The server keeps one open question per client and one page of an answer.

use std::io::{self, Read as _, Write as _};
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
use super::inbox::Inbox;
use super::preamble;
use super::socket::{self, AttachSocket};
use crate::hub::Hub;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server's answer to a client's question.
pub(super) fn page(hub: &Hub, after: u64) -> Inspection {
    hub.step(|inner| inner.conn.inspection(after))
}

/// Looks at a VM of another program, over its attach socket. Runs nothing there.
///
/// Made for tools: its calls block, each for ten seconds at most, and it has neither a thread nor
/// a runtime. Dropping it ends the connection.
pub struct AttachInspector {
    path: PathBuf,
    socket: UnixStream,
    /// This end of the protocol, which no application uses.
    hub: Arc<Hub>,
    inbox: Inbox,
    scratch: Vec<u8>,
}

impl AttachInspector {
    /// Attaches to the VM whose socket is at `path`.
    ///
    /// # Errors
    /// See [`ConnectError`]; [`ConnectError::Closed`] also when the server does not answer, as
    /// while its VM boots.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, ConnectError> {
        let path = path.as_ref();
        if !socket::is_address(path) {
            return Err(ConnectError::Path {
                path: path.to_owned(),
                max: AttachSocket::PATH_MAX,
            });
        }
        let mut socket = dial(path)?;
        let mut preamble = [0; preamble::LEN];
        socket
            .read_exact(&mut preamble)
            .map_err(|error| failed(path, &error))?;
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
        };
        inspector.until(|hub| hub.step(|inner| inner.conn.is_ready().then_some(())))?;
        Ok(inspector)
    }

    /// Looks at the VM's connection to its agent and at everything that runs over it. With many
    /// executions it is put together from looks at a few of them, one shortly after the other.
    ///
    /// # Errors
    /// [`ConnectError::Closed`]: the connection ended, or no answer came. Connect anew.
    pub fn look(&mut self) -> Result<View, ConnectError> {
        let mut page = self.page(0)?;
        let mut view = page.view;
        while page.more {
            let Some(last) = view.executions.last().map(|exec| exec.id.get()) else {
                break;
            };
            page = self.page(last)?;
            // A server whose pages do not go on from one another would go on for ever.
            if page
                .view
                .executions
                .first()
                .is_none_or(|exec| exec.id.get() <= last)
            {
                break;
            }
            view.executions.append(&mut page.view.executions);
        }
        Ok(view)
    }

    fn page(&mut self, after: u64) -> Result<Inspection, ConnectError> {
        let asked = self.hub.step(|inner| inner.conn.ask_inspection(after));
        // Refused when it has failed before.
        asked.map_err(|_| connection::closed(&self.path, "an earlier look was not answered"))?;
        self.until(|hub| hub.step(|inner| inner.conn.take_inspection()))
    }

    /// Moves frames until `seen` gives something, for [`PATIENCE`] at most.
    fn until<T>(&mut self, seen: impl Fn(&Hub) -> Option<T>) -> Result<T, ConnectError> {
        let started = Instant::now();
        let outcome = loop {
            if let Some(outcome) = seen(&self.hub) {
                break Ok(outcome);
            }
            if started.elapsed() > PATIENCE {
                break Err(io::ErrorKind::TimedOut.into());
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
            self.socket.write_all(&frame.head)?;
            self.socket.write_all(&frame.body)?;
        }
        match self.socket.read(&mut self.scratch) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                let bytes = self.scratch.get(..n).unwrap_or_default();
                self.inbox.take(&self.hub, bytes).map_err(io::Error::other)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for AttachInspector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachInspector")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Connects, with every later wait bounded.
fn dial(path: &Path) -> Result<UnixStream, ConnectError> {
    let host = |operation, error: rustix::io::Errno| connection::host(operation, &error.into());
    let unreachable = |error| ConnectError::Unreachable {
        path: path.to_owned(),
        kind: socket::kind(error),
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| host("socket", error))?;
    for way in [Timeout::Send, Timeout::Recv] {
        // That of sending holds for connecting, too: a server's backlog may be full.
        set_socket_timeout(&socket, way, Some(PATIENCE))
            .map_err(|error| host("socket timeout", error))?;
    }
    let address = SocketAddrUnix::new(path).map_err(unreachable)?;
    rustix::net::connect(&socket, &address).map_err(unreachable)?;
    Ok(socket.into())
}

fn failed(path: &Path, error: &io::Error) -> ConnectError {
    let reason = match error.kind() {
        io::ErrorKind::UnexpectedEof => SERVER_LEFT.to_owned(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!(
            "no answer came within {PATIENCE:?}: the VM has not booted yet, its program is \
             stopped, or is of a version that cannot be looked at"
        ),
        _ => format!("the attach connection failed: {error}"),
    };
    connection::closed(path, reason)
}
