//! The guest's RAM: which ranges it has, and the host memory behind them.
//!
//! Owns the mapping and its advice to the host kernel; knows nothing of what is put where inside
//! ([`crate::boot`]) nor of the addresses without RAM ([`crate::bus`]). The mapping lives as long as
//! any clone of the [`GuestMemoryMmap`] handed out.

#![allow(unsafe_code)] // madvise, and handing the mapping to KVM

use std::io;

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use vm_memory::mmap::{MmapRegionBuilder, MmapRegionError};
use vm_memory::{GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion as _};
use vm_memory::{GuestRegionMmap, MmapRegion};

use crate::error::HostError;
use crate::layout::{HOLE_END, HOLE_START};

/// Bytes in a MiB.
pub(crate) const MIB: u64 = 1 << 20;
/// Size and alignment of a huge page, in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// A stretch of RAM in the guest's address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// First guest-physical address.
    pub(crate) start: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// RAM of `bytes`: up to 3 GiB at the bottom, the rest from 4 GiB on.
pub(crate) fn ranges(bytes: u64) -> Vec<Range> {
    let low = bytes.min(HOLE_START);
    let mut ranges = vec![Range { start: 0, len: low }];
    if bytes > low {
        ranges.push(Range {
            start: HOLE_END,
            len: bytes - low,
        });
    }
    ranges
}

/// Maps `bytes` of guest RAM. Nothing is reserved or touched: pages come when they are used.
pub(crate) fn map(bytes: u64) -> Result<GuestMemoryMmap, HostError> {
    let regions = ranges(bytes)
        .into_iter()
        .map(|range| {
            let region = map_range(range.len)?;
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
    advise(&region, libc::MADV_DONTFORK, "MADV_DONTFORK")?;
    advise(&region, libc::MADV_DONTDUMP, "MADV_DONTDUMP")?;
    // Huge pages nearly halve the time to PID 1. A host kernel without them refuses the advice,
    // which costs speed only.
    if let Err(error) = advise(&region, libc::MADV_HUGEPAGE, "MADV_HUGEPAGE") {
        tracing::debug!(%error, "guest memory without transparent huge pages");
    }
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

fn advise(region: &MmapRegion, advice: libc::c_int, name: &'static str) -> Result<(), HostError> {
    // SAFETY: the range is one whole mapping of ours; none of the advices used here changes what
    // this process reads from it.
    match unsafe { libc::madvise(region.as_ptr().cast(), region.size(), advice) } {
        0 => Ok(()),
        _ => Err(HostError::on("madvise", name, io::Error::last_os_error())),
    }
}

/// Shows `memory` to the guest of `vm`.
///
/// Call it before the interrupt controller is created: afterwards the first memory slot waits for a
/// grace period of the host kernel, several milliseconds.
pub(crate) fn attach(vm: &VmFd, memory: &GuestMemoryMmap) -> Result<(), HostError> {
    for (slot, region) in memory.iter().enumerate() {
        let description = kvm_userspace_memory_region {
            slot: slot as u32, // two at most, see ranges()
            flags: 0,
            guest_phys_addr: region.start_addr().0,
            memory_size: region.len(),
            userspace_addr: region.as_ptr() as u64,
        };
        // SAFETY: the range is a mapping that outlives the VM: whoever makes the VM keeps a clone of
        // `memory` until all of the VM's descriptors are closed, on an error too. Slots do not
        // overlap.
        unsafe { vm.set_user_memory_region(description) }
            .map_err(|e| HostError::on("KVM_SET_USER_MEMORY_REGION", slot, e))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "memory_test.rs"]
mod tests;
