//! Loading an uncompressed kernel, by the headers of its ELF file.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};

use linux_loader::loader::elf::PvhBootCapability;
use linux_loader::loader::{self, Elf, KernelLoader as _};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::kernel::at;
use crate::error::KernelProblem;
use crate::layout::HIGH_MEMORY_START;

/// How a file of this kind begins.
pub(super) const MAGIC: &[u8] = b"\x7fELF";

/// Notes are read one by one. A kernel has a few hundred bytes of them.
const NOTES_MAX: u64 = 64 * 1024;

/// A kernel in guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loaded {
    /// PVH entry point.
    pub(super) entry: u64,
    /// First address after the kernel and its zeroed data.
    pub(super) end: u64,
}

/// Whether the file that begins so is for this machine.
pub(super) fn check_machine(head: &[u8]) -> Result<(), KernelProblem> {
    /// 64-bit, little-endian.
    const CLASS: (usize, &[u8]) = (4, &[2, 1]);
    const MACHINE_X86_64: (usize, &[u8]) = (18, &[62, 0]);
    match at(head, CLASS) && at(head, MACHINE_X86_64) {
        true => Ok(()),
        false => Err(KernelProblem::WrongMachine),
    }
}

/// Copies the segments of the file to where it wants them, all of it below `low_ram`.
pub(super) fn load(
    file: &mut File,
    memory: &GuestMemoryMmap,
    low_ram: u64,
) -> Result<Loaded, KernelProblem> {
    let end = check_segments(file, low_ram)?;
    let start = Some(GuestAddress(HIGH_MEMORY_START));
    let loaded = Elf::load(memory, None, file, start).map_err(explain)?;
    match loaded.pvh_boot_cap {
        PvhBootCapability::PvhEntryPresent(entry) => Ok(Loaded {
            entry: entry.0,
            end,
        }),
        _ => Err(KernelProblem::NoPvhEntry),
    }
}

/// Looks at what the file wants before any of it is done, since the loader takes each wish as it
/// comes: that it asks for no more than a kernel would, and where its memory ends.
fn check_segments(file: &File, low_ram: u64) -> Result<u64, KernelProblem> {
    let unreadable = KernelProblem::Unreadable;
    let mut file = BufReader::new(file);
    let mut header = [0; 64];
    file.rewind().map_err(unreadable)?;
    file.read_exact(&mut header).map_err(unreadable)?;
    let headers_at = u64::from_le_bytes(field(&header, 32));
    let count = u16::from_le_bytes(field(&header, 56));
    file.seek(SeekFrom::Start(headers_at))
        .map_err(|_| KernelProblem::Damaged("its program headers lie nowhere".into()))?;
    let (mut end, mut loaded, mut notes) = (0, 0u64, 0u64);
    for _ in 0..count {
        let mut entry = [0; 56];
        file.read_exact(&mut entry).map_err(unreadable)?;
        let segment = Segment::parse(&entry);
        match segment.kind {
            Segment::LOAD => {
                if segment.address < HIGH_MEMORY_START {
                    // There is no kernel: this is a program for user space.
                    return Err(KernelProblem::NoPvhEntry);
                }
                if segment.in_file > segment.in_memory {
                    let text = "a segment is larger in the file than in memory";
                    return Err(KernelProblem::Damaged(text.into()));
                }
                let segment_end = segment.address.saturating_add(segment.in_memory);
                loaded = loaded.saturating_add(segment.in_memory);
                // The sum too: segments on top of each other are as much work.
                let needed = segment_end.max(loaded);
                if needed > low_ram {
                    return Err(KernelProblem::NeedsMemory {
                        needed,
                        available: low_ram,
                    });
                }
                end = segment_end.max(end);
            }
            Segment::NOTE => notes = notes.saturating_add(segment.in_file),
            _ => {}
        }
    }
    if notes > NOTES_MAX {
        let text = format!("{notes} bytes of notes, where a kernel has a few hundred");
        return Err(KernelProblem::Damaged(text));
    }
    Ok(end)
}

/// A program header, as far as it matters here.
struct Segment {
    kind: u32,
    /// Physical.
    address: u64,
    in_file: u64,
    in_memory: u64,
}

impl Segment {
    const LOAD: u32 = 1;
    const NOTE: u32 = 4;

    fn parse(entry: &[u8; 56]) -> Self {
        Self {
            kind: u32::from_le_bytes(field(entry, 0)),
            address: u64::from_le_bytes(field(entry, 24)),
            in_file: u64::from_le_bytes(field(entry, 32)),
            in_memory: u64::from_le_bytes(field(entry, 40)),
        }
    }
}

/// The bytes at `offset`; zeros beyond the end.
fn field<const N: usize>(header: &[u8], offset: usize) -> [u8; N] {
    header
        .get(offset..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or([0; N])
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
#[path = "vmlinux_test.rs"]
mod tests;
