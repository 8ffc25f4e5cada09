//! What can go wrong with an attach socket, at either end.

use std::io;
use std::path::PathBuf;

/// An attach socket could not be set up. What was made for it is removed again; a socket that
/// nobody listened on may have been removed before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The path is empty, holds a NUL byte, or is longer than a socket's address can be.
    #[error(
        "attach socket {}: a path of {} bytes; 1 to {max} without NUL are possible, use a shorter \
         directory",
        path.display(),
        path.as_os_str().len()
    )]
    Path {
        /// The path.
        path: PathBuf,
        /// Most bytes that fit.
        max: usize,
    },
    /// Somebody listens there, or is about to.
    #[error(
        "attach socket {}: it is in use by a running program; end that or choose another path",
        path.display()
    )]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// Something that is no socket is there. It is not touched.
    #[error(
        "attach socket {}: there is something that is no socket; remove it or choose another path",
        path.display()
    )]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("attach socket {}: {operation}: {source}", path.display())]
    Host {
        /// The path.
        path: PathBuf,
        /// The call.
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

/// A client could not attach to a VM.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The path is empty, holds a NUL byte, or is longer than a socket's address can be.
    #[error(
        "{}: a path of {} bytes; a socket's has 1 to {max} without NUL",
        path.display(),
        path.as_os_str().len()
    )]
    Path {
        /// The path.
        path: PathBuf,
        /// Most bytes that fit.
        max: usize,
    },
    /// There is no socket, nobody listens on it, or it may not be used.
    #[error(
        "cannot connect to {}: {}; is the VM's program running, as this user, and with this attach \
         socket?",
        path.display(),
        io::Error::from(*kind)
    )]
    Unreachable {
        /// The path.
        path: PathBuf,
        /// What kind of answer the system gave.
        kind: io::ErrorKind,
    },
    /// What listens there is no VM of this library.
    #[error("{}: what listens there is no attach socket of forebay", path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
    },
    /// Both programs are built with releases that do not understand each other.
    #[error(
        "{}: the VM's program speaks generation {theirs} of the protocol and this one {ours}; \
         build both with the same release",
        path.display()
    )]
    Generation {
        /// The path.
        path: PathBuf,
        /// This program's generation.
        ours: u32,
        /// The other program's.
        theirs: u32,
    },
    /// As many clients are attached as the VM takes.
    #[error("{}: {most} clients are attached, no more are possible; end one", path.display())]
    TooManyClients {
        /// The path.
        path: PathBuf,
        /// How many are possible.
        most: u32,
    },
    /// The connection ended before it was of use.
    #[error("{}: the connection ended: {reason}", path.display())]
    Closed {
        /// The path.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A system call of this program failed.
    #[error("{operation}: {reason}")]
    Host {
        /// The call.
        operation: &'static str,
        /// The system's answer.
        reason: String,
    },
}
