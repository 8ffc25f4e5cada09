//! Loading an uncompressed kernel, and telling a file that is none.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use linux_loader::loader::elf::PvhBootCapability;
use linux_loader::loader::{self, Elf, KernelLoader as _};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use crate::error::{KernelProblem, StartError};
use crate::layout::HIGH_MEMORY_START;

/// A kernel in guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadedKernel {
    /// PVH entry point.
    pub(crate) entry: u64,
    /// First address after the kernel and its zeroed data.
    pub(crate) end: u64,
}

/// Copies the segments of the ELF file at `path` to where it wants them.
pub(crate) fn load(path: &Path, memory: &GuestMemoryMmap) -> Result<LoadedKernel, StartError> {
    load_file(path, memory).map_err(|problem| StartError::Kernel {
        path: path.to_owned(),
        problem,
    })
}

fn load_file(path: &Path, memory: &GuestMemoryMmap) -> Result<LoadedKernel, KernelProblem> {
    let mut file = File::open(path).map_err(KernelProblem::Unreadable)?;
    check_header(&mut file)?;
    let start = Some(GuestAddress(HIGH_MEMORY_START));
    let loaded = Elf::load(memory, None, &mut file, start).map_err(explain)?;
    match loaded.pvh_boot_cap {
        PvhBootCapability::PvhEntryPresent(entry) => Ok(LoadedKernel {
            entry: entry.0,
            end: loaded.kernel_end,
        }),
        _ => Err(KernelProblem::NoPvhEntry),
    }
}

/// Refuses what is recognisably something else, by its first bytes.
fn check_header(file: &mut File) -> Result<(), KernelProblem> {
    const LEN: usize = 0x206;
    const BZIMAGE_MAGIC: (usize, &[u8]) = (0x202, b"HdrS");
    const ELF_MAGIC: &[u8] = b"\x7fELF";
    /// 64-bit, little-endian.
    const ELF_CLASS: (usize, &[u8]) = (4, &[2, 1]);
    const ELF_MACHINE_X86_64: (usize, &[u8]) = (18, &[62, 0]);

    let mut head = Vec::with_capacity(LEN);
    file.take(LEN as u64)
        .read_to_end(&mut head)
        .map_err(KernelProblem::Unreadable)?;
    let at = |(offset, bytes): (usize, &[u8])| {
        head.get(offset..)
            .is_some_and(|rest| rest.starts_with(bytes))
    };
    if at(BZIMAGE_MAGIC) {
        Err(KernelProblem::BzImage)
    } else if !head.starts_with(ELF_MAGIC) {
        Err(KernelProblem::NotElf)
    } else if !at(ELF_CLASS) || !at(ELF_MACHINE_X86_64) {
        Err(KernelProblem::WrongMachine)
    } else {
        Ok(())
    }
}

fn explain(error: loader::Error) -> KernelProblem {
    use linux_loader::loader::elf::Error as E;
    match error {
        loader::Error::Elf(E::ReadKernelImage) | loader::Error::MemoryOverflow => {
            KernelProblem::Segment
        }
        // Below 1 MiB there is no kernel: this is a program for user space.
        loader::Error::Elf(E::InvalidEntryAddress) => KernelProblem::NoPvhEntry,
        loader::Error::Elf(E::ReadElfHeader | E::ReadProgramHeader | E::ReadNoteHeader) => {
            KernelProblem::Unreadable(io::ErrorKind::UnexpectedEof.into())
        }
        other => KernelProblem::Damaged(other.to_string()),
    }
}

#[cfg(test)]
#[path = "kernel_test.rs"]
mod tests;
