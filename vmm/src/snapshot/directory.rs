//! A snapshot's directory: the memory, then the state, which completes it.
//!
//! Owns the names, in which order they come to be, and what of one directory belongs together. What
//! is in the files is [`file`]'s and [`crate::memory`]'s.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
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
/// What it is called until all of it is on the disk.
const UNFINISHED: &str = "memory.unfinished";
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
    for name in [file::NAME, MEMORY, UNFINISHED] {
        let path = directory.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            return Err(SnapshotError::Exists { path });
        }
    }
    Ok(())
}

/// Writes a snapshot, whose memory `fill` writes into an empty file. After an error there is nothing
/// of it.
pub(crate) fn write(
    directory: &Path,
    mut state: State,
    fill: impl FnOnce(&File) -> Result<(), SnapshotError>,
) -> Result<SnapshotReport, SnapshotError> {
    let begun = Instant::now();
    let memory = MemoryFile::create(directory)?;
    let mark = FileMark::new()?;
    let memory_bytes = memory.write(state.shape.memory, mark, fill)?;
    let since_1970 = state.taken.duration_since(SystemTime::UNIX_EPOCH);
    let snapshot = SnapshotV1 {
        mark: mark.into(),
        taken: since_1970.unwrap_or_default().as_secs(),
    };
    state.records.put(RECORD, VERSION, form::encode(&snapshot));
    let state_bytes = file::write(directory, &state.shape, &state.records)?;
    memory.keep();
    Ok(SnapshotReport {
        state_bytes,
        memory_bytes,
        took: begun.elapsed(),
    })
}

/// Reads a snapshot's state, and opens its memory.
pub(crate) fn read(directory: &Path) -> Result<(State, MemoryImage), RestoreError> {
    let (shape, mut records) = file::read(directory)?;
    let SnapshotV1 { mark, taken } = form::decode(RECORD, &records.take(RECORD, VERSION)?)?;
    let taken = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(taken));
    let state = State {
        shape,
        records,
        taken: taken.ok_or_else(|| RestoreError::rule(RECORD, "its time is beyond all time"))?,
    };
    let memory = MemoryImage::open(&directory.join(MEMORY), shape.memory, mark.into())?;
    Ok((state, memory))
}

/// The memory file of a snapshot that is being made. Dropping it removes what there is of it.
struct MemoryFile {
    directory: PathBuf,
    file: File,
    kept: bool,
}

impl MemoryFile {
    /// Makes the directory, and the file under its first name.
    fn create(directory: &Path) -> Result<Self, SnapshotError> {
        let failed = |call| move |e| HostError::on(call, directory.display(), e);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed("mkdir"))?;
        check_vacant(directory)?;
        let path = directory.join(UNFINISHED);
        let mut options = OpenOptions::new();
        // All that the guest has in memory is in it.
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => SnapshotError::Exists { path: path.clone() },
            _ => HostError::on("create", path.display(), e).into(),
        })?;
        Ok(Self {
            directory: directory.to_owned(),
            file,
            kept: false,
        })
    }

    /// Fills it and has it reach the disk under its own name. Gives the bytes that it takes there.
    fn write(
        &self,
        len: u64,
        mark: FileMark,
        fill: impl FnOnce(&File) -> Result<(), SnapshotError>,
    ) -> Result<u64, SnapshotError> {
        let (unfinished, finished) = (self.directory.join(UNFINISHED), self.directory.join(MEMORY));
        let failed = |call| {
            let path = finished.display();
            move |e| HostError::on(call, path, e)
        };
        fill(&self.file)?;
        mark.write(&self.file, len)?;
        self.file.sync_all().map_err(failed("fsync"))?;
        let blocks = self.file.metadata().map_err(failed("stat"))?.blocks();
        fs::rename(&unfinished, &finished).map_err(failed("rename"))?;
        Ok(blocks.saturating_mul(BLOCK))
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for name in [UNFINISHED, MEMORY] {
            // If it cannot be removed it is still no snapshot, without a state.
            let _ = fs::remove_file(self.directory.join(name));
        }
    }
}

#[cfg(test)]
#[path = "directory_test.rs"]
mod tests;
