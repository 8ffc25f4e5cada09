use super::*;
use std::path::PathBuf;

use tempfile::TempDir;
use vm_memory::Bytes as _;

const ENTRY: u32 = 0x10_0040;
const LOAD_AT: u64 = 0x10_0000;

/// A minimal ELF kernel: one segment with `content`, and a PVH note if `note`.
fn elf(content: &[u8], load_at: u64, note: bool) -> Vec<u8> {
    let note_bytes = if note {
        let mut bytes = Vec::new();
        for word in [4u32, 4, 18] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(b"Xen\0");
        bytes.extend(ENTRY.to_le_bytes());
        bytes
    } else {
        Vec::new()
    };
    let content_at = 64 + 2 * 56u64;
    let note_at = content_at + content.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(2u16.to_le_bytes());
    file.extend(62u16.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend(load_at.to_le_bytes()); // entry
    file.extend(64u64.to_le_bytes()); // program headers
    file.extend(0u64.to_le_bytes());
    file.extend(0u32.to_le_bytes());
    for field in [64u16, 56, 2, 0, 0, 0] {
        file.extend(field.to_le_bytes());
    }
    for (kind, offset, address, len, in_memory) in [
        (1u32, content_at, load_at, content.len() as u64, 0x2000),
        (4, note_at, 0, note_bytes.len() as u64, 0),
    ] {
        file.extend(kind.to_le_bytes());
        file.extend(5u32.to_le_bytes());
        for field in [offset, address, address, len, in_memory, 0] {
            file.extend(u64::to_le_bytes(field));
        }
    }
    file.extend(content);
    file.extend(note_bytes);
    file
}

fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 4 << 20)]).unwrap()
}

fn stored(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kernel");
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
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
        LoadedKernel {
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
    assert!(matches!(refusal(b"#!/bin/sh\n"), KernelProblem::NotElf));
    assert!(matches!(refusal(b""), KernelProblem::NotElf));
    let mut bzimage = vec![0; 0x300];
    bzimage[0x202..0x206].copy_from_slice(b"HdrS");
    assert!(matches!(refusal(&bzimage), KernelProblem::BzImage));
    let mut arm = elf(b"x", LOAD_AT, true);
    arm[18] = 183;
    assert!(matches!(refusal(&arm), KernelProblem::WrongMachine));
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
        KernelProblem::Segment
    ));
    let whole = elf(&[7; 4096], LOAD_AT, true);
    assert!(matches!(refusal(&whole[..1000]), KernelProblem::Segment));
    assert!(matches!(
        refusal(&whole[..80]),
        KernelProblem::Unreadable(_)
    ));
}

#[test]
fn a_missing_file_and_a_directory_are_unreadable_and_the_error_names_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let error = load(&dir.path().join("vmlinux"), &memory()).unwrap_err();
    assert!(error.to_string().contains("vmlinux: "), "{error}");
    assert!(matches!(
        load_file(dir.path(), &memory()),
        Err(KernelProblem::Unreadable(_))
    ));
}

#[test]
fn a_program_of_this_machine_is_no_kernel() {
    let error = load_file(Path::new("/proc/self/exe"), &memory()).unwrap_err();
    assert!(
        matches!(error, KernelProblem::NoPvhEntry | KernelProblem::Segment),
        "{error}"
    );
}
