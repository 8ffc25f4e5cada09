//! The guest's RAM: which ranges it has, the host memory behind them, and what that held at a moment.
//!
//! Owns the mapping and its advice to the host kernel; knows nothing of what is put where inside
//! ([`crate::boot`]) nor of the addresses without RAM ([`crate::bus`]). The mapping lives as long as
//! any clone of the [`GuestMemoryMmap`] handed out.
//!
//! | file | owns |
//! |---|---|
//! | `ram` | [`GuestRam`]: a VM's memory and what is behind it |
//! | `image` | [`MemoryImage`]: what a VM's memory held, shared by all VMs that start from it |
//! | `freeze` | how the one becomes the other |
//! | `mark` | which snapshot a memory file belongs to |
//! | `mapping` | reserving addresses, and showing files there |
//! | `pagemap` | which pages are a VM's own |
//! | `runs`, `sparse` | sets of pages; copying them into files without their zeros |
//! | `sigbus` | surviving that a file which is mapped is cut short |
//!
//! # Sharing
//! ```text
//!   VM 1   VM 2   VM 3        each: private mappings, its own pages where it wrote
//!     │      └──┬───┘
//!     │      overlay          sealed memfd: what differs, at most one
//!     └─────────┴──┐
//!                 base        sealed memfd or file: a whole image
//! ```
//! An image never changes, so its pages are in the page cache once, whoever maps them.

mod freeze;
mod image;
mod mapping;
mod mark;
mod pagemap;
mod ram;
mod runs;
mod sigbus;
mod sparse;

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use vm_memory::{GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion as _};

use crate::error::HostError;
use crate::layout::{HOLE_END, HOLE_START};

pub(crate) use freeze::{FreezeError, Frozen};
pub use image::MemoryFileError;
pub(crate) use image::MemoryImage;
pub(crate) use mapping::map;
pub(crate) use mark::FileMark;
pub use ram::MemoryUsage;
pub(crate) use ram::{Backing, GuestRam};
pub(crate) use sigbus::Damage;
pub(crate) use sparse::Progress;

/// Bytes in a MiB.
pub(crate) const MIB: u64 = 1 << 20;
/// Bytes in a page.
const PAGE: u64 = 4096;

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

/// Shows `memory` to the guest of `vm`.
///
/// Call it before the interrupt controller is created: afterwards the first memory slot waits for a
/// grace period of the host kernel, several milliseconds.
#[allow(unsafe_code)] // handing the mapping to KVM
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
