//! The lock beside a socket: whoever has it owns the socket's path.
//!
//! It is held as long as the socket, so nobody ever waits for it: it is free, or the path is in
//! use. A program that dies leaves the file behind and not the lock. Called by `socket` alone.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// How often in a row the file may be removed by its last owner between our opening and our
/// locking it. Each time somebody else has had the path.
const TRIES: u32 = 16;

/// Owner alone: a lock that others can open they can hold, too.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A file that is locked. Dropping it removes the file and unlocks it.
#[derive(Debug)]
pub(super) struct Lock {
    file: OwnedFd,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock at `path`, without waiting; `None` if somebody has it.
    ///
    /// # Errors
    /// The file cannot be made, or is none.
    pub(super) fn take(path: PathBuf) -> Result<Option<Self>, Errno> {
        // Neither through a link nor waiting for the other end of a FIFO.
        let flags =
            OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        for _ in 0..TRIES {
            let file = rustix::fs::open(&path, flags, MODE)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            }
            if is_at(&file, &path) {
                // Against a umask that would keep the next program of this user out.
                rustix::fs::fchmod(&file, MODE)?;
                return Ok(Some(Self { file, path }));
            }
        }
        Ok(None)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Who removes it has it locked, so it cannot become somebody else's in between.
        if is_at(&self.file, &self.path)
            && let Err(error) = rustix::fs::unlink(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "a lock file stays behind");
        }
        // By name: a child that was just forked still holds the descriptor.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Whether the open `file` is what stands at `path`.
fn is_at(file: impl AsFd, path: &Path) -> bool {
    let identity = |status: rustix::fs::Stat| (status.st_dev, status.st_ino);
    match (rustix::fs::fstat(file), rustix::fs::lstat(path)) {
        (Ok(ours), Ok(there)) => identity(ours) == identity(there),
        _ => false,
    }
}
