//! A snapshot's directory: the memory, then the state, which completes it.
//!
//! Owns the names, in which order they come to be, and what of one directory belongs together. What
//! is in the files is [`file`]'s and [`crate::memory`]'s.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use minicbor::{Decode, Encode};

use super::file::{self, Records, Shape};
use super::form;
use super::{RestoreError, SnapshotError};
use crate::error::HostError;
use crate::memory::{FileMark, MemoryImage};

/// The memory file's name.
const MEMORY: &str = "memory";
/// What the files are called until all of them is on the disk.
const MEMORY_UNFINISHED: &str = "memory.unfinished";
const STATE_UNFINISHED: &str = "state.unfinished";
/// All files but the one that is made first.
const COMES_LATER: [&str; 3] = [MEMORY, STATE_UNFINISHED, file::NAME];
/// The record of what concerns the snapshot as a whole.
const RECORD: &str = "snapshot";
const VERSION: u32 = 1;
/// Bytes in a block as `st_blocks` counts them, whatever those of the file system are.
const BLOCK: u64 = 512;

/// A finished snapshot: what it holds and took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct SnapshotReport {
    /// Length of the state file, in bytes.
    pub state_bytes: u64,
    /// Bytes of the disk that the guest's memory takes. Pages of zeros take none.
    pub memory_bytes: u64,
    /// Time from when the files were begun until all of it was on the disk.
    pub took: Duration,
}

/// All of a VM but its memory, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) shape: Shape,
    pub(crate) records: Records,
    /// By the host's clock.
    pub(crate) taken: SystemTime,
}

/// Concerns the snapshot as a whole.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
struct SnapshotV1 {
    /// That of the memory file.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    mark: [u8; FileMark::LEN],
    /// Seconds since 1970.
    #[n(1)]
    taken: u64,
}

/// That there is nothing of a snapshot in `directory`. One that is there stays as it is: VMs may be
/// running from it.
pub(crate) fn check_vacant(directory: &Path) -> Result<(), SnapshotError> {
    check_absent(directory, &[MEMORY_UNFINISHED])?;
    check_absent(directory, &COMES_LATER)
}

fn check_absent(directory: &Path, names: &[&str]) -> Result<(), SnapshotError> {
    for name in names {
        let path = directory.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            return Err(SnapshotError::Exists { path });
        }
    }
    Ok(())
}

/// Writes a snapshot, whose memory `fill` writes into an empty file. The directory is made if it is
/// not there. After an error there is nothing of the snapshot.
pub(crate) fn write(
    directory: &Path,
    mut state: State,
    fill: impl FnOnce(&File) -> Result<(), SnapshotError>,
) -> Result<SnapshotReport, SnapshotError> {
    let begun = Instant::now();
    let failed = |call| move |e| HostError::on(call, directory.display(), e);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed("mkdir"))?;
    let names = File::open(directory).map_err(failed("open"))?;

    let mut memory = NewFile::create(directory.join(MEMORY_UNFINISHED))?;
    // While it has this name no other snapshot is begun here, and afterwards its next name is seen.
    check_absent(directory, &COMES_LATER)?;
    let mark = FileMark::new()?;
    fill(&memory.file)?;
    mark.write(&memory.file, state.shape.memory)?;
    memory.finish(directory.join(MEMORY))?;
    let memory_bytes = memory.disk_bytes()?;

    let since_1970 = state.taken.duration_since(SystemTime::UNIX_EPOCH);
    let snapshot = SnapshotV1 {
        mark: mark.into(),
        taken: since_1970.unwrap_or_default().as_secs(),
    };
    state.records.put(RECORD, VERSION, form::encode(&snapshot));
    let bytes = file::encode(&state.shape, &state.records)?;
    let mut state = NewFile::create(directory.join(STATE_UNFINISHED))?;
    state.write(&bytes)?;
    state.finish(directory.join(file::NAME))?;

    names.sync_all().map_err(failed("fsync"))?;
    memory.keep();
    state.keep();
    Ok(SnapshotReport {
        state_bytes: bytes.len() as u64,
        memory_bytes,
        took: begun.elapsed(),
    })
}

/// Reads a snapshot's state, and opens its memory.
pub(crate) fn read(directory: &Path) -> Result<(State, MemoryImage), RestoreError> {
    let (shape, records) = file::read(directory)?;
    let (state, mark) = take(shape, records)?;
    let memory = MemoryImage::open(&directory.join(MEMORY), shape.memory, mark)?;
    Ok((state, memory))
}

/// The record that concerns the snapshot as a whole, and what else there is.
pub(crate) fn take(shape: Shape, mut records: Records) -> Result<(State, FileMark), RestoreError> {
    let SnapshotV1 { mark, taken } = form::decode(RECORD, &records.take(RECORD, VERSION)?)?;
    let taken = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(taken));
    let state = State {
        shape,
        records,
        taken: taken.ok_or_else(|| RestoreError::rule(RECORD, "its time is beyond all time"))?,
    };
    Ok((state, mark.into()))
}

/// A file of a snapshot that is being made. Dropping it removes it.
struct NewFile {
    file: File,
    /// Where it is now.
    path: PathBuf,
    kept: bool,
}

impl NewFile {
    /// Makes an empty file, which only this user can read: all that the guest has in memory, and what
    /// commands wrote and read, is in it. What is at `path` is never written to, nor what a link there
    /// leads to: others may be able to write to the directory.
    fn create(path: PathBuf) -> Result<Self, SnapshotError> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        match options.open(&path) {
            Ok(file) => Ok(Self {
                file,
                path,
                kept: false,
            }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                Err(SnapshotError::Exists { path })
            }
            Err(e) => Err(HostError::on("create", path.display(), e).into()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        let written = self.file.write_all(bytes);
        written.map_err(|e| HostError::on("write", self.path.display(), e))
    }

    /// Has what it holds reach the disk, and then gives it its own name, where nothing was.
    fn finish(&mut self, path: PathBuf) -> Result<(), HostError> {
        let failed = |call| {
            let path = path.display();
            move |e| HostError::on(call, path, e)
        };
        self.file.sync_all().map_err(failed("fsync"))?;
        fs::rename(&self.path, &path).map_err(failed("rename"))?;
        self.path = path;
        Ok(())
    }

    /// What it takes of the disk.
    fn disk_bytes(&self) -> Result<u64, HostError> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(|e| HostError::on("stat", self.path.display(), e))?;
        Ok(metadata.blocks().saturating_mul(BLOCK))
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.kept {
            // If it cannot be removed it is of no use to anybody, and in the way of the next snapshot,
            // which says so.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
#[path = "directory_test.rs"]
mod tests;
