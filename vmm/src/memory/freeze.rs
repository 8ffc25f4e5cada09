//! Making an image of a VM's memory.
//!
//! | behind it | what is copied | how the VM goes on |
//! |---|---|---|
//! | a memfd | nothing | on the image, pages copied as it writes |
//! | an image | the pages that the VM has of its own, and the overlay | as it was |
//! | the same, much of it changed | everything | on the new image |
//! | nothing | everything but zeros: the slow way | as it was |

use super::MemoryImage;
use super::PAGE;
use super::image;
use super::mapping::{Shown, show};
use super::pagemap::{self, Owner};
use super::ram::{self, GuestRam, Source};
use super::runs::Runs;
use crate::error::HostError;

/// An overlay that stores more than this part of what is stored at all is not worth its mappings, in
/// percent: then all of it is copied, which takes about as long.
const OVERLAY_PERCENT: u64 = 30;
/// Runs of an overlay at most. Each costs every VM that starts from the image two mappings, which take
/// time, and of which a process has 65530 for everything (`vm.max_map_count`). Fewer runs have more
/// between them that is copied while the VM stands still: these cost it as much as they save one copy.
const OVERLAY_RUNS: usize = 32;

/// An image, and what it cost to make.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(crate) image: MemoryImage,
    /// Bytes that were copied into new memory.
    pub(crate) copied: u64,
    /// Pages whose state was looked at.
    pub(crate) scanned: u64,
}

/// Why there is no image, and what that means for the VM.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FreezeError {
    /// The VM is as it was and may go on.
    #[error(transparent)]
    Intact(#[from] HostError),
    /// Mapping memory anew failed in the middle. The VM's memory is gone: it reads zeros, or has
    /// nothing behind it. It must be ended before anything of it runs again.
    #[error("the guest's memory was lost while an image was made of it: {0}")]
    Lost(#[source] HostError),
}

impl GuestRam {
    /// An image of what the memory holds. Its VM is paused: nobody writes to it meanwhile, or the
    /// image is of no moment at all.
    ///
    /// # Errors
    /// As [`FreezeError`] says. Memory that was lost stays so: it is not frozen or written again.
    pub(crate) fn freeze(&self) -> Result<Frozen, FreezeError> {
        let mut source = self.source();
        let frozen = self.freeze_from(&mut source);
        if let Err(FreezeError::Lost(_)) = frozen {
            // Threads that still hold the memory must find something at every address. Should this
            // fail, the range is no less mapped than it was.
            let _ = show(self.guest(), 0..self.len(), Shown::Zeros);
            *source = Source::Lost;
        }
        frozen
    }

    /// The same. `source` is what is mapped, unless the memory was lost.
    fn freeze_from(&self, source: &mut Source) -> Result<Frozen, FreezeError> {
        match source {
            Source::Shared(memfd) => {
                let image = self.part_with(memfd)?;
                *source = Source::Image(image.clone());
                Ok(Frozen {
                    image,
                    copied: 0,
                    scanned: 0,
                })
            }
            Source::Anonymous => Ok(self.copy_all(&self.content(source)?, source)?),
            Source::Lost => Err(FreezeError::Lost(ram::lost())),
            Source::Image(image) => {
                let own = pagemap::scan(self.guest(), Owner::Vm)?;
                let scanned = self.len() / PAGE;
                if own.is_empty() {
                    image.check()?;
                    return Ok(Frozen {
                        image: image.clone(),
                        copied: 0,
                        scanned,
                    });
                }
                let content = own.union(&image.content()?);
                let changed = own.union(&image.overlay_runs()).bridged(OVERLAY_RUNS);
                let stored = changed.common(&content);
                if stored.bytes() <= content.bytes() / 100 * OVERLAY_PERCENT {
                    let memfd = image::memfd(self.len())?;
                    let copied = self.copy(&stored, &memfd, |_| Ok(()))?;
                    image.check()?;
                    return Ok(Frozen {
                        image: image.with_overlay(memfd, changed)?,
                        copied,
                        scanned,
                    });
                }
                let frozen = self.copy_all(&content, source)?;
                // Or all of this would be copied the next time, too. It shows what was there.
                frozen.image.show(self.guest()).map_err(FreezeError::Lost)?;
                *source = Source::Image(frozen.image.clone());
                Ok(frozen)
            }
        }
    }

    /// Turns `memfd`, which the VM wrote to until now, into an image from which it goes on.
    fn part_with(&self, memfd: &std::fs::File) -> Result<MemoryImage, FreezeError> {
        let all = || 0..self.len();
        let duplicate = memfd
            .try_clone()
            .map_err(|e| HostError::new("duplicate a descriptor", e))?;
        // In this order: what is mapped for shared writing cannot be sealed.
        let image = show(self.guest(), all(), Shown::Private(memfd))
            .and_then(|()| MemoryImage::seal(duplicate, self.len()))
            .or_else(|error| {
                // Nobody wrote meanwhile, so the memfd has all of it.
                show(self.guest(), all(), Shown::Shared(memfd)).map_err(FreezeError::Lost)?;
                Err(FreezeError::Intact(error))
            })?;
        // Once more, for the holes to be memory of zeros.
        image.show(self.guest()).map_err(FreezeError::Lost)?;
        Ok(image)
    }

    /// A base of its own, with `content`, which is all that is not zero.
    fn copy_all(&self, content: &Runs, source: &Source) -> Result<Frozen, HostError> {
        let memfd = image::memfd(self.len())?;
        let copied = self.copy(content, &memfd, |_| Ok(()))?;
        source.check()?;
        Ok(Frozen {
            image: MemoryImage::seal(memfd, self.len())?,
            copied,
            scanned: self.len() / PAGE,
        })
    }
}

#[cfg(test)]
#[path = "freeze_test.rs"]
mod tests;
