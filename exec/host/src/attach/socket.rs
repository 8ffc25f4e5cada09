//! The socket file: made with its final permissions, replaced only if it is a socket that nobody
//! listens on, removed by whoever made it.
//!
//! Whoever has the lock beside it owns the path, from before the file is looked at until it is
//! removed. So among programs of this library none takes another's for a stale one, however far
//! that one is, and none removes its successor's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::error::AttachError;
use super::lock::Lock;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 64;

/// Its owner alone.
const MODE: u32 = 0o600;

/// Behind the socket's own name.
const LOCK_SUFFIX: &str = ".lock";

/// A listening socket that nobody serves yet: whoever connects waits.
///
/// Dropping it removes the file, if the one at its path is still the one it made, and the lock
/// beside it, `PATH.lock`.
#[derive(Debug)]
pub struct AttachSocket {
    listener: OwnedFd,
    path: PathBuf,
    /// Absolute, for the removal.
    file: PathBuf,
    /// Device and inode. Not used again while the listener is open, which keeps the inode.
    made: (u64, u64),
    /// Dropped when the file is gone.
    _lock: Lock,
}

impl AttachSocket {
    /// Longest path of a Unix socket, in bytes: `sun_path` without the NUL behind it.
    pub const PATH_MAX: usize = 107;

    /// Whether `path` can be a socket's at all.
    ///
    /// # Errors
    /// [`AttachError::Path`]. Nothing is looked at or created.
    pub fn check(path: &Path) -> Result<(), AttachError> {
        if is_address(path) {
            Ok(())
        } else {
            Err(AttachError::Path {
                path: path.to_owned(),
                max: Self::PATH_MAX,
            })
        }
    }

    /// Makes the socket at `path` and listens. Its mode is 0600 from the first instant, whatever
    /// the umask, so that only its owner (and root) can connect; its directory should belong to
    /// the same user. A socket that is there and that nobody listens on is replaced. Waits for
    /// nobody.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn bind(path: &Path) -> Result<Self, AttachError> {
        Self::check(path)?;
        let host = |operation, error: Errno| AttachError::Host {
            path: path.to_owned(),
            operation,
            source: error.into(),
        };
        let file = std::path::absolute(path).map_err(|source| AttachError::Host {
            path: path.to_owned(),
            operation: "the current directory",
            source,
        })?;
        let address = SocketAddrUnix::new(path).map_err(|e| host("socket address", e))?;
        let listener = socket().map_err(|e| host("socket", e))?;
        // The file takes the mode that the socket has when it is bound, less the umask: no
        // moment at which anybody else could connect, and no change of the process's umask.
        rustix::fs::fchmod(&listener, Mode::from_raw_mode(MODE)).map_err(|e| host("fchmod", e))?;
        let Some(lock) = Lock::take(lock_of(&file)).map_err(|e| host("its lock file", e))? else {
            return Err(AttachError::InUse {
                path: path.to_owned(),
            });
        };
        match rustix::net::bind(&listener, &address) {
            Err(Errno::ADDRINUSE) => {
                remove_stale(path, &address)?;
                rustix::net::bind(&listener, &address).map_err(|e| host("bind", e))?;
            }
            bound => bound.map_err(|e| host("bind", e))?,
        }
        let status = rustix::fs::lstat(&file).map_err(|e| host("lstat", e))?;
        let socket = Self {
            listener,
            path: path.to_owned(),
            file,
            made: (status.st_dev, status.st_ino),
            _lock: lock,
        };
        if status.st_mode & MODE != MODE {
            // A umask that takes rights even from the owner.
            rustix::fs::chmod(&socket.file, Mode::from_raw_mode(MODE))
                .map_err(|e| host("chmod", e))?;
        }
        rustix::net::listen(&socket.listener, BACKLOG).map_err(|e| host("listen", e))?;
        Ok(socket)
    }

    /// The path as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for AttachSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for AttachSocket {
    fn drop(&mut self) {
        let ours = rustix::fs::lstat(&self.file)
            .is_ok_and(|status| (status.st_dev, status.st_ino) == self.made);
        if ours && let Err(error) = rustix::fs::unlink(&self.file) {
            tracing::warn!(path = %self.file.display(), %error, "the attach socket stays behind");
        }
    }
}

/// Whether `path` fits a socket's address.
pub(super) fn is_address(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    (1..=AttachSocket::PATH_MAX).contains(&bytes.len()) && !bytes.contains(&0)
}

/// A stream socket that neither blocks nor is inherited.
pub(super) fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes the socket at `path` if nobody listens on it.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), AttachError> {
    let host = |operation, error: Errno| AttachError::Host {
        path: path.to_owned(),
        operation,
        source: error.into(),
    };
    let status = match rustix::fs::lstat(path) {
        Ok(status) => status,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(host("lstat", error)),
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        return Err(AttachError::NotASocket {
            path: path.to_owned(),
        });
    }
    let probe = socket().map_err(|e| host("socket", e))?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) => {}
        // Whoever listens there has no room in its backlog, but it listens.
        Ok(()) | Err(Errno::AGAIN) => {
            return Err(AttachError::InUse {
                path: path.to_owned(),
            });
        }
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(host("connect, to see whether it is in use", error)),
    }
    tracing::debug!(path = %path.display(), "replacing a socket that nobody listens on");
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(host("unlink", error)),
    }
}

/// The lock's path for a socket's.
fn lock_of(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(LOCK_SUFFIX);
    PathBuf::from(path)
}

/// What a failed connect was, in the words of the standard library.
pub(super) fn kind(error: Errno) -> io::ErrorKind {
    io::Error::from(error).kind()
}

#[cfg(test)]
#[path = "socket_test.rs"]
mod tests;
