use super::*;
use crate::boot;
use crate::testing::{ENTRY, LOAD_AT, elf};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use vm_memory::Bytes as _;

const LOW_RAM: u64 = 4 << 20;

fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), LOW_RAM as usize)]).unwrap()
}

fn stored(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kernel");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn load_file(path: &Path, memory: &GuestMemoryMmap) -> Result<Loaded, KernelProblem> {
    let (mut file, _) = boot::open(path).unwrap();
    load(&mut file, memory, LOW_RAM)
}

fn refusal(bytes: &[u8]) -> KernelProblem {
    let (_dir, path) = stored(bytes);
    load_file(&path, &memory()).unwrap_err()
}

#[test]
fn a_kernel_is_copied_to_where_its_headers_say_and_entered_by_its_note() {
    let (_dir, path) = stored(&elf(b"the kernel's code", LOAD_AT, true));
    let memory = memory();
    assert_eq!(
        load_file(&path, &memory).unwrap(),
        Loaded {
            entry: ENTRY.into(),
            end: LOAD_AT + 0x2000
        }
    );
    let mut copied = [0; 17];
    memory
        .read_slice(&mut copied, GuestAddress(LOAD_AT))
        .unwrap();
    assert_eq!(&copied, b"the kernel's code");
}

#[test]
fn each_wrong_file_is_told_apart() {
    assert!(matches!(
        refusal(&elf(b"x", LOAD_AT, false)),
        KernelProblem::NoPvhEntry
    ));
    assert!(matches!(
        refusal(&elf(b"x", 0x1000, true)),
        KernelProblem::NoPvhEntry
    ));
    assert!(matches!(
        refusal(&elf(b"x", 64 << 20, true)),
        KernelProblem::NeedsMemory { .. }
    ));
    let whole = elf(&[7; 4096], LOAD_AT, true);
    assert!(matches!(refusal(&whole[..1000]), KernelProblem::Segment));
    assert!(matches!(
        refusal(&whole[..80]),
        KernelProblem::Unreadable(_)
    ));
}

/// Where the program header `index` of a file by [`elf`] has the field at `offset`.
fn header_field(index: usize, offset: usize) -> std::ops::Range<usize> {
    let at = 64 + index * 56 + offset;
    at..at + 8
}

#[test]
fn notes_without_end_are_refused_before_they_are_read() {
    let mut file = elf(b"x", LOAD_AT, true);
    file[header_field(1, 32)].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let (_dir, path) = stored(&file);
    // Sparse: the notes are all zeros, of which each twelve are one.
    let opened = File::options().write(true).open(&path).unwrap();
    opened.set_len(1 << 41).unwrap();
    let problem = load_file(&path, &memory()).unwrap_err();
    assert!(
        matches!(&problem, KernelProblem::Damaged(text) if text.contains("notes")),
        "{problem}"
    );
}

#[test]
fn memory_that_no_byte_of_the_file_fills_belongs_to_the_kernel_too() {
    let mut file = elf(b"", LOAD_AT, true);
    file[header_field(0, 40)].copy_from_slice(&(2u64 << 20).to_le_bytes());
    let (_dir, path) = stored(&file);
    let loaded = load_file(&path, &memory()).unwrap();
    assert_eq!(loaded.end, LOAD_AT + (2 << 20));
    file[header_field(0, 40)].copy_from_slice(&(4u64 << 20).to_le_bytes());
    assert!(matches!(refusal(&file), KernelProblem::NeedsMemory { .. }));
    file[header_field(0, 40)].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(refusal(&file), KernelProblem::NeedsMemory { .. }));
}

#[test]
fn a_program_of_this_machine_is_no_kernel() {
    let error = load_file(Path::new("/proc/self/exe"), &memory()).unwrap_err();
    assert!(
        matches!(
            error,
            KernelProblem::NoPvhEntry | KernelProblem::NeedsMemory { .. }
        ),
        "{error}"
    );
}
