//! Directories of runs. Each is removed with its run; those of a process that was killed are removed
//! by the next run, whichever process that is in.
//!
//! Whoever uses a directory holds a lock on it, which the system releases with the process.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use tempfile::TempDir;

use crate::{Error, Result};

const PREFIX: &str = "forebay-rig-";

/// An empty directory for one run. Dropping it removes it and all in it.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: TempDir,
    /// Held until the directory is gone, so declared behind it.
    _lock: OwnedFd,
}

impl Scratch {
    /// Below the system's directory for temporary files.
    pub(crate) fn new() -> Result<Self> {
        Self::below(&std::env::temp_dir())
    }

    fn below(parent: &Path) -> Result<Self> {
        remove_abandoned(parent);
        loop {
            let created = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent);
            let directory = created.map_err(Error::file("create in", parent))?;
            // Another run may have taken it for abandoned before it was locked.
            let locked = locked(directory.path(), FlockOperation::LockExclusive);
            if let Some(lock) = locked.filter(|_| directory.path().exists()) {
                return Ok(Self {
                    directory,
                    _lock: lock,
                });
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes what killed processes left behind. What cannot be removed is another user's.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        if let Some(_lock) = locked(&path, FlockOperation::NonBlockingLockExclusive) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// The lock on a directory; `None` if it cannot be had.
fn locked(path: &Path, how: FlockOperation) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    flock(&directory, how).ok()?;
    Some(directory)
}

#[cfg(test)]
#[path = "scratch_test.rs"]
mod tests;
