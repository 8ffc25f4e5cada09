//! Reserving addresses for a guest's RAM, and showing files there.
//!
//! A VM's RAM stays at the addresses at which it was first mapped: KVM and the devices know them.
//! What is behind them is changed by mapping something else in its place. An image has the VM's
//! ranges one after the other; a *piece* is a part of it that lies in one range.

#![allow(unsafe_code)] // madvise, and mapping over what is mapped

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;

use vm_memory::mmap::{MmapRegionBuilder, MmapRegionError};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};
use vm_memory::{GuestMemoryRegion as _, GuestRegionMmap, MemoryRegionAddress, MmapRegion};

use super::{MIB, ranges};
use crate::error::HostError;

/// Size and alignment of a huge page, in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// Maps `bytes` of guest RAM, all zeros, with huge pages where the host has them. Nothing is reserved
/// or touched: pages come when they are used.
pub(crate) fn map(bytes: u64) -> Result<GuestMemoryMmap, HostError> {
    let memory = reserve(bytes)?;
    advise_huge_pages(&memory);
    Ok(memory)
}

/// The same, with pages of the common size.
pub(super) fn reserve(bytes: u64) -> Result<GuestMemoryMmap, HostError> {
    map_with(bytes, map_range)
}

/// The same, in huge pages out of the host's pool, which are set aside.
pub(super) fn map_huge(bytes: u64) -> Result<GuestMemoryMmap, HostError> {
    map_with(bytes, map_huge_range)
}

fn map_with(
    bytes: u64,
    map: impl Fn(u64) -> Result<MmapRegion, HostError>,
) -> Result<GuestMemoryMmap, HostError> {
    let regions = ranges(bytes)
        .into_iter()
        .map(|range| {
            let region = map(range.len)?;
            GuestRegionMmap::new(region, GuestAddress(range.start)).ok_or_else(|| {
                HostError::on("map guest memory", range.len, io::ErrorKind::InvalidInput)
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    GuestMemoryMmap::from_regions(regions)
        .map_err(|e| HostError::on("map guest memory", bytes, io::Error::other(e)))
}

fn map_range(len: u64) -> Result<MmapRegion, HostError> {
    let failed = |e: io::Error| HostError::on("map guest memory", format!("{} MiB", len / MIB), e);
    let size = usize::try_from(len).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    let region = map_for_huge_pages(size).map_err(|e| match e {
        MmapRegionError::Mmap(e) => failed(e),
        e => failed(io::Error::other(e)),
    })?;
    keep_to_ourselves(region.as_ptr().cast(), region.size())?;
    Ok(region)
}

fn map_huge_range(len: u64) -> Result<MmapRegion, HostError> {
    const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    let failed = |kind, why| {
        let on = format!("{} MiB in huge pages", len / MIB);
        HostError::on("map guest memory", on, io::Error::new(kind, why))
    };
    if !len.is_multiple_of(HUGE_PAGE as u64) {
        let why = "huge pages have 2 MiB: give the guest an even number of MiB".to_owned();
        return Err(failed(io::ErrorKind::InvalidInput, why));
    }
    // Without MAP_NORESERVE: a page that could not be had later would be a fault in the guest.
    let huge = libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
    let region = usize::try_from(len)
        .map_err(|e| e.to_string())
        .and_then(|size| {
            MmapRegionBuilder::new(size)
                .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
                .with_mmap_flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge)
                .build()
                .map_err(|e| e.to_string())
        })
        .map_err(|e| {
            let free = std::fs::read_to_string(FREE).unwrap_or_else(|_| "none".to_owned());
            let why = format!(
                "{e}; {} huge pages of 2 MiB are needed, and the host's pool has {} free, some of \
                 which may be set aside for others: raise vm.nr_hugepages",
                len / HUGE_PAGE as u64,
                free.trim(),
            );
            failed(io::ErrorKind::OutOfMemory, why)
        })?;
    keep_to_ourselves(region.as_ptr().cast(), region.size())?;
    Ok(region)
}

/// Maps `size` bytes at a multiple of the huge page's size, where that can be had: KVM gives the
/// guest huge pages only where both its address and ours are.
///
/// Newer host kernels place such mappings well by themselves, if the size is a multiple too. The
/// others fill the address space downwards, so another mapping of the right size above it moves
/// this one to where it should be. Other threads map memory meanwhile, hence the attempts.
fn map_for_huge_pages(size: usize) -> Result<MmapRegion, MmapRegionError> {
    const ATTEMPTS: usize = 3;
    /// Large, so that it does not fit into a gap elsewhere. Nothing of it is ever touched.
    const SPACER: usize = 64 << 20;
    let map = |size, protection| {
        MmapRegionBuilder::new(size)
            .with_mmap_prot(protection)
            .with_mmap_flags(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE)
            .build()
    };
    let mut region: MmapRegion = map(size, libc::PROT_READ | libc::PROT_WRITE)?;
    for _ in 0..ATTEMPTS {
        let excess = region.as_ptr() as usize % HUGE_PAGE;
        if excess == 0 {
            break;
        }
        drop(region);
        let spacer: Option<MmapRegion> = map(SPACER + excess, libc::PROT_NONE).ok();
        region = map(size, libc::PROT_READ | libc::PROT_WRITE)?;
        drop(spacer);
    }
    Ok(region)
}

/// Keeps the range from children that are forked, and from core dumps.
fn keep_to_ourselves(address: *mut libc::c_void, len: usize) -> Result<(), HostError> {
    advise(address, len, libc::MADV_DONTFORK, "MADV_DONTFORK")?;
    advise(address, len, libc::MADV_DONTDUMP, "MADV_DONTDUMP")
}

fn advise(
    address: *mut libc::c_void,
    len: usize,
    advice: libc::c_int,
    name: &'static str,
) -> Result<(), HostError> {
    // SAFETY: the range lies within mappings of ours; none of the advices used here changes what
    // this process reads from it.
    match unsafe { libc::madvise(address, len, advice) } {
        0 => Ok(()),
        _ => Err(HostError::on("madvise", name, io::Error::last_os_error())),
    }
}

/// What is mapped in the place of a guest's RAM.
#[derive(Clone, Copy)]
pub(super) enum Shown<'a> {
    /// The file itself: what the guest writes is written to it.
    Shared(&'a File),
    /// The file, copied page by page as the guest writes.
    Private(&'a File),
    /// Nothing but zeros.
    Zeros,
}

/// The ranges of `memory` with their offsets in an image.
pub(super) fn regions(memory: &GuestMemoryMmap) -> impl Iterator<Item = (u64, &GuestRegionMmap)> {
    memory.iter().scan(0, |end, region| {
        let start = *end;
        *end += region.len();
        Some((start, region))
    })
}

/// A part of an image that lies in one range of a guest's RAM.
struct Piece<'a> {
    region: &'a GuestRegionMmap,
    /// Where in the image.
    offset: u64,
    /// Where in the region.
    at: u64,
    len: u64,
}

impl Piece<'_> {
    fn address(&self) -> *mut libc::c_void {
        // Within the mapping, see pieces().
        self.region.as_ptr().wrapping_add(self.at as usize).cast()
    }
}

/// The pieces of `memory` that hold `run` of its image.
fn pieces(memory: &GuestMemoryMmap, run: Range<u64>) -> impl Iterator<Item = Piece<'_>> {
    regions(memory).filter_map(move |(base, region)| {
        let start = run.start.max(base);
        let end = run.end.min(base + region.len());
        (start < end).then(|| Piece {
            region,
            offset: start,
            at: start - base,
            len: end - start,
        })
    })
}

/// Maps `run` of what is `shown`, which lies there as in the image, over the same run of `memory`,
/// whose content there is gone. Nobody must be using it.
///
/// After an error nothing may be mapped where this was to be.
pub(super) fn show(
    memory: &GuestMemoryMmap,
    run: Range<u64>,
    shown: Shown<'_>,
) -> Result<(), HostError> {
    let (file, flags) = match shown {
        Shown::Shared(file) => (file.as_raw_fd(), libc::MAP_SHARED),
        Shown::Private(file) => (file.as_raw_fd(), libc::MAP_PRIVATE),
        Shown::Zeros => (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
    };
    for piece in pieces(memory, run) {
        let failed = |e| {
            let on = format!(
                "{} KiB at {} KiB; a process has vm.max_map_count mappings at most",
                piece.len >> 10,
                piece.offset >> 10
            );
            HostError::on("map guest memory", on, e)
        };
        let offset = match shown {
            Shown::Zeros => 0,
            _ => libc::off_t::try_from(piece.offset)
                .map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?,
        };
        // SAFETY: the piece lies within one mapping of ours, which is unmapped as a whole later,
        // whatever is mapped there by then. It is only ever accessed through raw pointers, by
        // volatile copies: no reference sees its content change.
        let at = unsafe {
            libc::mmap(
                piece.address(),
                piece.len as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_FIXED | libc::MAP_NORESERVE,
                file,
                offset,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        keep_to_ourselves(piece.address(), piece.len as usize)?;
    }
    Ok(())
}

/// Asks for huge pages in all of `memory`.
pub(super) fn advise_huge_pages(memory: &GuestMemoryMmap) {
    for region in memory.iter() {
        // They nearly halve the time to PID 1. A host kernel without them refuses the advice, which
        // costs speed only.
        let advised = advise(
            region.as_ptr().cast(),
            region.size(),
            libc::MADV_HUGEPAGE,
            "MADV_HUGEPAGE",
        );
        if let Err(error) = advised {
            tracing::debug!(%error, "guest memory without transparent huge pages");
        }
    }
}

/// Reads `bytes` of `memory` at `offset` of its image.
pub(super) fn read(
    memory: &GuestMemoryMmap,
    bytes: &mut [u8],
    offset: u64,
) -> Result<(), HostError> {
    let mut rest = bytes;
    for piece in pieces(memory, offset..offset + rest.len() as u64) {
        let (part, after) = rest.split_at_mut(piece.len as usize);
        piece
            .region
            .read_slice(part, MemoryRegionAddress(piece.at))
            .map_err(|e| HostError::on("read guest memory", offset, io::Error::other(e)))?;
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
#[path = "mapping_test.rs"]
mod tests;
