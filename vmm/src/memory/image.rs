//! What a VM's RAM held at one moment: never changed, shared by all VMs that start from it.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{MemfdFlags, SealFlags};
use vm_memory::GuestMemoryMmap;

use super::PAGE;
use super::mapping::{Shown, show};
use super::mark::FileMark;
use super::runs::Runs;
use super::sparse::{self, Progress};
use crate::error::HostError;

/// The content of a VM's RAM, its ranges one after the other. Cloning it copies nothing; the pages
/// are freed with the last clone and the last VM that was started from it.
///
/// Layers: a base, which has everything, and at most one overlay, which has what differs from it.
#[derive(Clone)]
pub(crate) struct MemoryImage(Arc<Layers>);

struct Layers {
    /// Length in bytes.
    len: u64,
    /// Shared by images whose overlays differ.
    base: Arc<Base>,
    overlay: Option<Overlay>,
}

/// A whole image in one file.
struct Base {
    file: File,
    /// `None` if it is a sealed memfd.
    on_disk: Option<OnDisk>,
    /// Where it has data; found when it is first asked for.
    data: OnceLock<Runs>,
    /// Large stretches without data. Mapped as memory of zeros they cost nobody a page that is only
    /// read, and one instead of two (here and in the file) for each that is written.
    holes: Runs,
}

/// Pages that differ from the base, at the same offsets in a sealed memfd.
struct Overlay {
    file: File,
    /// Which pages; the file's holes within are pages of zeros.
    runs: Runs,
}

/// Where a base's file was found, and what it was then.
struct OnDisk {
    path: PathBuf,
    identity: FileIdentity,
}

/// Which file it is, whatever its name, and in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    /// The file system's device number.
    pub(crate) dev: u64,
    /// The inode's number there.
    pub(crate) ino: u64,
    /// Length in bytes.
    pub(crate) len: u64,
    /// When it was last written or cut, in seconds and nanoseconds.
    pub(crate) modified: (i64, i64),
}

impl FileIdentity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Why a file cannot be a VM's memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryFileError {
    /// Of another snapshot.
    #[error(
        "memory file {}: it belongs to another snapshot, or is none; put back the one that was saved \
         with the state beside it",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Cut short, or not the file that belongs to the snapshot.
    #[error(
        "memory file {}: {found} bytes long, but the snapshot says {expected}: it was cut or \
         belongs to another snapshot; take the snapshot again",
        path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// How long it is, in bytes.
        found: u64,
        /// How long it has to be, in bytes.
        expected: u64,
    },
    /// The snapshot gives a length that no VM's memory has.
    #[error(
        "memory file {}: the snapshot says that it has {expected} bytes, but memory is whole pages \
         of 4096 bytes: the snapshot is damaged",
        path.display()
    )]
    NotPages {
        /// The file.
        path: PathBuf,
        /// How long it is said to be, in bytes.
        expected: u64,
    },
    /// A directory, a pipe, a device.
    #[error("memory file {}: not a regular file", path.display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// It could not be opened or looked at.
    #[error("memory file: {0}")]
    Host(#[from] HostError),
}

impl Base {
    /// How many holes get a mapping of their own.
    const HOLES_MAX: usize = 16;

    /// `file`, of `len` bytes, will not change any more.
    fn new(file: File, on_disk: Option<OnDisk>, len: u64) -> Self {
        // Not to know them costs memory only.
        let holes = sparse::large_holes(&file, len).unwrap_or_default();
        Self {
            file,
            on_disk,
            data: OnceLock::new(),
            holes: holes.largest(Self::HOLES_MAX),
        }
    }

    /// Where it has data, of its `len` bytes.
    fn data(&self, len: u64) -> Result<&Runs, HostError> {
        match self.data.get() {
            Some(data) => Ok(data),
            None => {
                let data = sparse::data(&self.file, len)?;
                Ok(self.data.get_or_init(|| data))
            }
        }
    }
}

impl MemoryImage {
    /// Opens the memory file of a snapshot: `expected` bytes of memory, and `mark`. It is mapped, not read:
    /// it must not be written any more. One that is cut later costs the VMs that run from it their
    /// lives ([`super::Damage`]).
    pub(crate) fn open(
        path: &Path,
        expected: u64,
        mark: FileMark,
    ) -> Result<Self, MemoryFileError> {
        let host = |operation| move |e| HostError::on(operation, path.display(), e);
        if expected == 0 || !expected.is_multiple_of(PAGE) {
            return Err(MemoryFileError::NotPages {
                path: path.to_owned(),
                expected,
            });
        }
        let file = OpenOptions::new()
            .read(true)
            // A pipe without a writer is not to be waited for.
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(host("open"))?;
        let metadata = file.metadata().map_err(host("fstat"))?;
        if !metadata.is_file() {
            return Err(MemoryFileError::NotAFile {
                path: path.to_owned(),
            });
        }
        let whole = expected.saturating_add(FileMark::ROOM);
        if metadata.len() != whole {
            return Err(MemoryFileError::Length {
                path: path.to_owned(),
                found: metadata.len(),
                expected: whole,
            });
        }
        if FileMark::read(&file, expected).map_err(host("read"))? != Some(mark) {
            return Err(MemoryFileError::Foreign {
                path: path.to_owned(),
            });
        }
        let on_disk = OnDisk {
            path: path.to_owned(),
            identity: FileIdentity::of(&metadata),
        };
        let base = Base::new(file, Some(on_disk), expected);
        Ok(Self::of_base(base, expected))
    }

    /// The content of `memfd`, which is sealed: nobody can write to it any more.
    ///
    /// # Errors
    /// `EBUSY` if it is still mapped for shared writing. It is as it was then.
    pub(super) fn seal(memfd: File, len: u64) -> Result<Self, HostError> {
        seal(&memfd)?;
        Ok(Self::of_base(Base::new(memfd, None, len), len))
    }

    fn of_base(base: Base, len: u64) -> Self {
        Self(Arc::new(Layers {
            len,
            base: Arc::new(base),
            overlay: None,
        }))
    }

    /// An image that differs from this one's base in `runs`, all of which are taken from `memfd`.
    /// This image's own overlay has no part in it.
    pub(super) fn with_overlay(&self, memfd: File, runs: Runs) -> Result<Self, HostError> {
        seal(&memfd)?;
        Ok(Self(Arc::new(Layers {
            len: self.0.len,
            base: Arc::clone(&self.0.base),
            overlay: Some(Overlay { file: memfd, runs }),
        })))
    }

    /// Length in bytes: that of the VM's RAM.
    pub(crate) fn len(&self) -> u64 {
        self.0.len
    }

    /// Which file is mapped; `None` if the image is in memory alone.
    pub(crate) fn identity(&self) -> Option<FileIdentity> {
        self.0.base.on_disk.as_ref().map(|file| file.identity)
    }

    /// That its file, if it is one, is what it was when it was opened. Whoever copied something out of
    /// it asks afterwards: a file that is cut takes with it what VMs had written to their own pages,
    /// and one that is cut and grows again has zeros, of which nothing else tells.
    pub(super) fn check(&self) -> Result<(), HostError> {
        let Base { file, on_disk, .. } = &*self.0.base;
        let Some(OnDisk { path, identity }) = on_disk else {
            return Ok(());
        };
        let failed = |e| HostError::on("use memory file", path.display(), e);
        let now = FileIdentity::of(&file.metadata().map_err(failed)?);
        if now == *identity {
            return Ok(());
        }
        let what = format!(
            "it was written or cut while it was in use ({} bytes long, {} when it was opened)",
            now.len, identity.len
        );
        Err(failed(io::Error::new(io::ErrorKind::InvalidData, what)))
    }

    /// Where it differs from its base.
    pub(super) fn overlay_runs(&self) -> Runs {
        match &self.0.overlay {
            Some(overlay) => overlay.runs.clone(),
            None => Runs::default(),
        }
    }

    /// Where it is not known to be zero.
    pub(super) fn content(&self) -> Result<Runs, HostError> {
        let Layers { len, base, .. } = &*self.0;
        Ok(base.data(*len)?.union(&self.overlay_runs()))
    }

    /// Maps it in place of what `memory`, of the same length, has.
    pub(super) fn show(&self, memory: &GuestMemoryMmap) -> Result<(), HostError> {
        let Layers { len, base, overlay } = &*self.0;
        show(memory, 0..*len, Shown::Private(&base.file))?;
        for hole in base.holes.iter() {
            show(memory, hole, Shown::Zeros)?;
        }
        if let Some(overlay) = overlay {
            for run in overlay.runs.iter() {
                show(memory, run, Shown::Private(&overlay.file))?;
            }
        }
        Ok(())
    }

    /// Writes it to `to`, which becomes a sparse file of [`len`](Self::len) bytes and can be opened
    /// by [`open`](Self::open) afterwards; what it held is gone. Where `to` lies on the same file
    /// system as the base, the file system copies, or shares blocks. `to` is not synced.
    ///
    /// Blocks; no VM need be paused. `progress` is told of bytes dealt with, holes not counted.
    ///
    /// # Errors
    /// A full disk, a limit on files, a base that was cut, what `progress` gives. `to` is empty then.
    pub(crate) fn write_to(&self, to: &File, progress: Progress<'_>) -> Result<(), HostError> {
        let Layers { len, base, overlay } = &*self.0;
        let in_overlay = self.overlay_runs();
        let in_base = base.data(*len)?.without(&in_overlay);
        let total = in_base.bytes() + in_overlay.bytes();
        let mut done = 0;
        let mut step = |bytes| {
            done += bytes;
            progress(done, total)
        };
        sparse::fill(to, *len, || {
            let rest = match base.on_disk {
                // A memfd is never on the file system of a snapshot.
                None => in_base,
                Some(_) => sparse::clone_data(&in_base, &base.file, to, &mut step)?,
            };
            sparse::copy(&rest, to, read_from(&base.file), &mut step)?;
            if let Some(overlay) = overlay {
                sparse::copy(&in_overlay, to, read_from(&overlay.file), &mut step)?;
            }
            self.check()
        })
    }
}

/// Nothing of it is named for its content, which is the guest's.
impl std::fmt::Debug for MemoryImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryImage")
            .field("len", &self.0.len)
            .field("file", &self.identity())
            .field("overlay_bytes", &self.overlay_runs().bytes())
            .finish_non_exhaustive()
    }
}

/// A file of `len` bytes in memory, all of it a hole.
pub(super) fn memfd(len: u64) -> Result<File, HostError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(
        rustix::fs::memfd_create("forebay-memory", flags)
            .map_err(|e| HostError::new("memfd_create", e))?,
    );
    file.set_len(len)
        .map_err(|e| HostError::on("ftruncate", len, e))?;
    Ok(file)
}

fn seal(memfd: &File) -> Result<(), HostError> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(memfd, seals).map_err(|e| HostError::new("F_ADD_SEALS", e))
}

fn read_from(file: &File) -> impl Fn(&mut [u8], u64) -> Result<(), HostError> {
    move |bytes, offset| {
        file.read_exact_at(bytes, offset).map_err(|e| {
            let e = match e.kind() {
                io::ErrorKind::UnexpectedEof => sparse::cut(),
                _ => e,
            };
            HostError::on("read memory file", format!("at byte {offset}"), e)
        })
    }
}

#[cfg(test)]
#[path = "image_test.rs"]
pub(super) mod tests;
