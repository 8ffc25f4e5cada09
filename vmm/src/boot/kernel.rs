//! The kernel file: which kind it is, found by looking at it, and what it is if it is no kernel.
//!
//! | kind | known by | loaded by | entered |
//! |---|---|---|---|
//! | `vmlinux` | ELF header | [`vmlinux`] | by PVH: 32-bit, paging off |
//! | `bzImage` | `HdrS` at 0x202 | [`bzimage`] | by the 64-bit boot protocol: long mode |
//!
//! A `vmlinux` starts faster: nothing has to be decompressed in the guest.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;

use linux_loader::loader::bootparam::setup_header;
use vm_memory::{GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion as _};

use super::{bzimage, vmlinux};
use crate::error::{KernelProblem, StartError};
use crate::layout::HOLE_START;

/// A kernel in guest memory.
#[derive(Debug)]
pub(crate) struct LoadedKernel {
    pub(crate) protocol: Protocol,
    /// First address after the memory that the kernel needs before it looks at the memory map.
    pub(crate) end: u64,
    /// The initramfs has to lie below this.
    pub(crate) initramfs_top: u64,
}

/// How a kernel is entered and told about its machine.
#[derive(Debug)]
pub(crate) enum Protocol {
    /// At `entry`, with the start info.
    Pvh { entry: u64 },
    /// At `entry`, with a zero page that has this header of the file in it.
    Linux64 {
        entry: u64,
        header: Box<setup_header>,
    },
}

/// Puts the kernel at `path` to where it belongs.
pub(crate) fn load(path: &Path, memory: &GuestMemoryMmap) -> Result<LoadedKernel, StartError> {
    load_file(path, memory).map_err(|problem| StartError::Kernel {
        path: path.to_owned(),
        problem,
    })
}

fn load_file(path: &Path, memory: &GuestMemoryMmap) -> Result<LoadedKernel, KernelProblem> {
    let (mut file, len) = super::open(path).map_err(KernelProblem::Unreadable)?;
    let head = head(&mut file)?;
    let low_ram = memory
        .find_region(GuestAddress(0))
        .map_or(0, |region| region.len());
    if head.starts_with(vmlinux::MAGIC) {
        vmlinux::check_machine(&head)?;
        let vmlinux::Loaded { entry, end } = vmlinux::load(&mut file, memory, low_ram)?;
        Ok(LoadedKernel {
            protocol: Protocol::Pvh { entry },
            end,
            initramfs_top: HOLE_START,
        })
    } else if at(&head, bzimage::MAGIC) {
        bzimage::load(&mut file, len, &head, memory, low_ram)
    } else {
        Err(KernelProblem::NotAKernel(what_it_is(&head)))
    }
}

/// The beginning of the file, from which everything is known that decides about it.
fn head(file: &mut File) -> Result<Vec<u8>, KernelProblem> {
    let mut head = Vec::with_capacity(bzimage::HEAD_LEN);
    file.take(bzimage::HEAD_LEN as u64)
        .read_to_end(&mut head)
        .and_then(|_| file.rewind())
        .map_err(KernelProblem::Unreadable)?;
    Ok(head)
}

/// Whether these bytes are at this offset.
pub(super) fn at(head: &[u8], (offset, bytes): (usize, &[u8])) -> bool {
    head.get(offset..)
        .is_some_and(|rest| rest.starts_with(bytes))
}

/// What a file that is no kernel probably is.
fn what_it_is(head: &[u8]) -> &'static str {
    const COMPRESSED: &str = "it is a compressed file: uncompress it first";
    const ELSEWHERE: &str = "it is a kernel for another architecture";
    const KNOWN: [(usize, &[u8], &str); 12] = [
        (0, b"\x1f\x8b", COMPRESSED),
        (0, b"\xfd7zXZ\0", COMPRESSED),
        (0, b"\x28\xb5\x2f\xfd", COMPRESSED),
        (0, b"\x02\x21\x4c\x18", COMPRESSED),
        (0, b"\x04\x22\x4d\x18", COMPRESSED),
        (0, b"BZh", COMPRESSED),
        (56, b"ARM\x64", ELSEWHERE),
        (56, b"RSC\x05", ELSEWHERE),
        // After the other kernels, which are EFI programs too.
        (0, b"MZ", "it is an EFI program"),
        (0, b"0707", "it is an initramfs"),
        (0, b"!<arch>\n", "it is a package; a kernel is in its /boot"),
        (0, b"#!", "it is a script"),
    ];
    if head.is_empty() {
        return "it is empty";
    }
    KNOWN
        .into_iter()
        .find(|(offset, bytes, _)| at(head, (*offset, bytes)))
        .map_or("no kernel's header is in it", |(_, _, what)| what)
}

#[cfg(test)]
#[path = "kernel_test.rs"]
mod tests;
