//! Loading a compressed kernel for the 64-bit entry of Linux's boot protocol.
//!
//! ```text
//! file:    boot sector ─ setup code (16-bit, not used) ─ protected-mode kernel: decompressor + payload
//! header:  at 0x1f1, says how long each part is and what memory the kernel needs
//! memory:  protected-mode kernel at the address it prefers; entered 0x200 bytes into it
//! ```
//!
//! The decompressor unpacks in place, within the `init_size` bytes from where it lies, or moves the
//! kernel to a random place if it was built so. Documentation/arch/x86/boot.rst of the kernel has
//! all fields.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};

use linux_loader::loader::bootparam::{
    LOADED_HIGH, XLF_CAN_BE_LOADED_ABOVE_4G, XLF_KERNEL_64, setup_header,
};
use vm_memory::{ByteValued as _, Bytes as _, GuestAddress, GuestMemoryMmap};

use super::kernel::{LoadedKernel, Protocol};
use crate::error::KernelProblem;
use crate::layout::{HIGH_MEMORY_START, HOLE_START};

/// How a file of this kind is known.
pub(super) const MAGIC: (usize, &[u8]) = (0x202, b"HdrS");
/// Bytes at the beginning of the file that hold the header.
pub(super) const HEAD_LEN: usize = 0x280;

const HEADER_AT: usize = 0x1f1;
/// The header ends as many bytes after [`MAGIC`]'s offset as this byte, the operand of a jump, says.
const JUMP_OPERAND: usize = 0x201;
const SECTOR: u64 = 512;
/// Where in the protected-mode kernel its 64-bit entry is.
const ENTRY_64: u64 = 0x200;
/// The first version with [`XLF_KERNEL_64`].
const VERSION_MIN: u16 = 0x20c;

/// Copies the protected-mode kernel to where it wants to be, all of it below `low_ram`. `head` is
/// how the file of `len` bytes begins.
pub(super) fn load(
    file: &mut File,
    len: u64,
    head: &[u8],
    memory: &GuestMemoryMmap,
    low_ram: u64,
) -> Result<LoadedKernel, KernelProblem> {
    let header = header(head)?;
    let (at, end) = place(&header, low_ram)?;
    let setup_sectors = match header.setup_sects {
        0 => 4, // what it was before it was said
        sectors => u64::from(sectors),
    };
    let offset = (setup_sectors + 1) * SECTOR;
    let size = u64::from(header.syssize) * 16;
    if offset + size > len {
        return Err(KernelProblem::CutShort {
            len,
            expected: offset + size,
        });
    }
    // It unpacks itself within `end`.
    if size <= ENTRY_64 || at + size > end {
        let text = format!("its kernel of {size} bytes is not of the size its header says");
        return Err(KernelProblem::Damaged(text));
    }
    file.seek(SeekFrom::Start(offset))
        .map_err(KernelProblem::Unreadable)?;
    memory
        // Below 3 GiB, by place().
        .read_exact_volatile_from(GuestAddress(at), file, size as usize)
        .map_err(|e| KernelProblem::Unreadable(io::Error::other(e)))?;
    let initramfs_top = match header.xloadflags & XLF_CAN_BE_LOADED_ABOVE_4G {
        0 => HOLE_START.min(u64::from(header.initrd_addr_max) + 1),
        _ => HOLE_START,
    };
    Ok(LoadedKernel {
        protocol: Protocol::Linux64 {
            entry: at + ENTRY_64,
            header: Box::new(header),
        },
        end,
        initramfs_top,
    })
}

/// The header, found to be one of a kernel that can be entered in 64-bit mode.
fn header(head: &[u8]) -> Result<setup_header, KernelProblem> {
    let damaged = |text: &str| KernelProblem::Damaged(text.into());
    let cut = || KernelProblem::CutShort {
        len: head.len() as u64,
        expected: HEAD_LEN as u64,
    };
    let operand = *head.get(JUMP_OPERAND).ok_or_else(cut)?;
    let header_end = MAGIC.0 + usize::from(operand);
    let fields = head.get(HEADER_AT..HEAD_LEN).ok_or_else(cut)?;
    let said = header_end.saturating_sub(HEADER_AT);
    let mut header = setup_header::default();
    // What an older header does not have stays zero.
    for (to, from) in header
        .as_mut_slice()
        .iter_mut()
        .zip(fields.iter().take(said))
    {
        *to = *from;
    }
    let version = header.version;
    if version < VERSION_MIN {
        return Err(KernelProblem::OldProtocol { version });
    }
    if header.xloadflags & XLF_KERNEL_64 == 0 {
        return Err(KernelProblem::WrongMachine);
    }
    if header.loadflags & LOADED_HIGH == 0 {
        return Err(damaged("it wants to be loaded below 1 MiB"));
    }
    Ok(header)
}

/// Where the kernel goes, and where the memory ends that it needs to unpack itself.
fn place(header: &setup_header, low_ram: u64) -> Result<(u64, u64), KernelProblem> {
    let size = u64::from(header.init_size);
    let preferred = header.pref_address;
    let alignment = u64::from(header.kernel_alignment);
    let lowest = match (header.relocatable_kernel, alignment.is_power_of_two()) {
        (0, _) => preferred,
        (_, true) => HIGH_MEMORY_START.next_multiple_of(alignment),
        (_, false) => {
            let text = format!("it asks for an alignment of {alignment} bytes");
            return Err(KernelProblem::Damaged(text));
        }
    };
    if lowest < HIGH_MEMORY_START || preferred < HIGH_MEMORY_START {
        let text = "it wants to be loaded below 1 MiB";
        return Err(KernelProblem::Damaged(text.into()));
    }
    [preferred, lowest]
        .into_iter()
        .map(|at| (at, at.saturating_add(size)))
        .find(|(_, end)| *end <= low_ram.min(HOLE_START))
        .ok_or(KernelProblem::NeedsMemory {
            needed: lowest.saturating_add(size),
            available: low_ram,
        })
}

#[cfg(test)]
#[path = "bzimage_test.rs"]
mod tests;
