//! A VM's memory, and what is behind it.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvm_ioctls::VmFd;
use vm_memory::GuestMemoryMmap;

use super::image::{self, MemoryImage};
use super::mapping::{self, Shown, regions, show};
use super::pagemap::{self, Owner};
use super::runs::Runs;
use super::sigbus::{self, Damage};
use super::sparse::{self, Progress};
use super::{attach, mapping::reserve};
use crate::error::HostError;

/// What is to be behind the memory of a VM that boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Memory of the process's own: the fastest. Freezing it copies everything.
    Anonymous,
    /// A file in memory: freezing it the first time copies nothing. Pages cost more when they are
    /// first touched, and are huge only where the host allows it (`shmem_enabled` at least
    /// `advise` in `/sys/kernel/mm/transparent_hugepage`).
    Shareable,
    /// Memory of the process's own in huge pages of 2 MiB out of the host's pool, all of them set
    /// aside for this VM at once. The guest's accesses cost least. Freezing it copies everything.
    HugePages,
}

/// The RAM of one VM: its mappings, which stay at the same addresses for life, and what is behind
/// them.
///
/// Must outlive the VM's descriptors. When it is dropped the memory goes as soon as no clone of
/// [`guest`](Self::guest) is left; a clone that is left may read zeros.
pub(crate) struct GuestRam {
    /// For memory that came of a file. Before the memory, so that it is gone when the addresses may
    /// be somebody else's.
    _guard: Option<sigbus::Guard>,
    memory: GuestMemoryMmap,
    /// Length in bytes.
    len: u64,
    source: Mutex<Source>,
    damage: Option<Arc<Damage>>,
}

/// What is behind a VM's memory now.
pub(super) enum Source {
    /// Nothing: all of it is private and anonymous.
    Anonymous,
    /// A memfd that nobody else knows, mapped shared.
    Shared(File),
    /// An image, mapped private.
    Image(MemoryImage),
    /// Nothing that was the guest's: mapping it anew failed in the middle.
    Lost,
}

/// The error of whoever wants memory that is [lost](Source::Lost).
pub(super) fn lost() -> HostError {
    let why = "it was lost when an image of it could not be made";
    HostError::new("use guest memory", io::Error::other(why))
}

impl Source {
    /// See [`MemoryImage::check`].
    pub(super) fn check(&self) -> Result<(), HostError> {
        match self {
            Self::Image(image) => image.check(),
            Self::Anonymous | Self::Shared(_) => Ok(()),
            Self::Lost => Err(lost()),
        }
    }
}

/// How much of a guest's memory there is on the host, by whose it is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// Pages that only this VM has, resident or swapped out.
    pub private: u64,
    /// Pages of the page cache that it has mapped. Those of a template are shared with every VM that
    /// maps the same ones; those of a VM that is [`forkable`](crate::VmBuilder::forkable) are its own
    /// until a template was made of it.
    pub shared: u64,
}

impl GuestRam {
    /// Zeros, for a VM that boots with `len` bytes.
    pub(crate) fn new(len: u64, backing: Backing) -> Result<Self, HostError> {
        let (memory, source) = match backing {
            Backing::Anonymous => (mapping::map(len)?, Source::Anonymous),
            Backing::HugePages => (mapping::map_huge(len)?, Source::Anonymous),
            Backing::Shareable => {
                let memory = reserve(len)?;
                let memfd = image::memfd(len)?;
                show(&memory, 0..len, Shown::Shared(&memfd))?;
                mapping::advise_huge_pages(&memory);
                (memory, Source::Shared(memfd))
            }
        };
        Ok(Self {
            _guard: None,
            memory,
            len,
            source: Mutex::new(source),
            damage: None,
        })
    }

    /// What `image` holds, for a VM that goes on from there. Nothing is copied or read: pages come
    /// when they are used, and are copied when they are written.
    pub(crate) fn from_image(image: &MemoryImage) -> Result<Self, HostError> {
        let memory = reserve(image.len())?;
        let (guard, damage) = match image.identity() {
            None => (None, None),
            Some(_) => {
                let damage = Arc::new(Damage::new()?);
                let guard = sigbus::Guard::new(
                    regions(&memory).map(|(_, region)| {
                        let start = region.as_ptr() as usize;
                        start..start + region.size()
                    }),
                    Arc::clone(&damage),
                )?;
                (Some(guard), Some(damage))
            }
        };
        image.show(&memory)?;
        image.check()?;
        Ok(Self {
            _guard: guard,
            memory,
            len: image.len(),
            source: Mutex::new(Source::Image(image.clone())),
            damage,
        })
    }

    /// The memory by the guest's addresses.
    pub(crate) fn guest(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Shows it to the guest of `vm`; see [`attach`].
    pub(crate) fn attach(&self, vm: &VmFd) -> Result<(), HostError> {
        attach(vm, &self.memory)
    }

    /// Where it is told that the file behind this memory was cut; `None` if no file is behind it.
    pub(crate) fn damage(&self) -> Option<&Arc<Damage>> {
        self.damage.as_ref()
    }

    /// How much of it there is, and whose. Walks the page tables.
    pub(crate) fn usage(&self) -> Result<MemoryUsage, HostError> {
        Ok(MemoryUsage {
            private: pagemap::scan(&self.memory, Owner::Vm)?.bytes(),
            shared: pagemap::scan(&self.memory, Owner::PageCache)?.bytes(),
        })
    }

    /// Writes what it holds to `to`, as [`MemoryImage::write_to`] does: for a VM that stays paused
    /// meanwhile, which costs no memory. The VM's backing stays what it is.
    pub(crate) fn write_to(&self, to: &File, progress: Progress<'_>) -> Result<(), HostError> {
        let source = self.source();
        let runs = self.content(&source)?;
        let total = runs.bytes();
        let mut done = 0;
        sparse::fill(to, self.len, || {
            self.copy(&runs, to, |bytes| {
                done += bytes;
                progress(done, total)
            })?;
            source.check()
        })
    }

    pub(super) fn source(&self) -> MutexGuard<'_, Source> {
        // Its value is replaced as a whole, by what is true when it is.
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is not known to be zero.
    pub(super) fn content(&self, source: &Source) -> Result<Runs, HostError> {
        match source {
            Source::Anonymous => pagemap::scan(&self.memory, Owner::Vm),
            Source::Shared(memfd) => sparse::data(memfd, self.len),
            Source::Image(image) => {
                Ok(pagemap::scan(&self.memory, Owner::Vm)?.union(&image.content()?))
            }
            Source::Lost => Err(lost()),
        }
    }

    /// Copies `runs` to the same offsets of `to`, without pages of zeros. Returns the bytes written.
    /// Fails if the file behind them was cut meanwhile, and so will [`MemoryImage::check`].
    pub(super) fn copy(
        &self,
        runs: &Runs,
        to: &File,
        step: impl FnMut(u64) -> Result<(), HostError>,
    ) -> Result<u64, HostError> {
        let read = |bytes: &mut [u8], offset| {
            mapping::read(&self.memory, bytes, offset)?;
            match &self.damage {
                Some(damage) if damage.is_done() => {
                    Err(HostError::new("read guest memory", sparse::cut()))
                }
                _ => Ok(()),
            }
        };
        sparse::copy(runs, to, read, step)
    }
}

impl Drop for GuestRam {
    fn drop(&mut self) {
        if self.damage.is_some() {
            // A clone of the memory may outlive the guard, and then nothing must be able to fault.
            // Should this fail, the range is no less mapped than it was.
            let _ = show(&self.memory, 0..self.len, Shown::Zeros);
        }
    }
}

impl std::fmt::Debug for GuestRam {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuestRam")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "ram_test.rs"]
pub(super) mod tests;
