use super::*;
use crate::testing::{LOAD_AT, elf};

fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 4 << 20)]).unwrap()
}

fn refusal(bytes: &[u8]) -> KernelProblem {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kernel");
    std::fs::write(&path, bytes).unwrap();
    load_file(&path, &memory()).unwrap_err()
}

/// A file with these bytes at this offset.
fn with(offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 0x400];
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn what_is_no_kernel_is_said_to_be_what_it_is() {
    let arm64 = {
        let mut file = with(56, b"ARM\x64");
        file[..2].copy_from_slice(b"MZ");
        file
    };
    for (file, said) in [
        (Vec::new(), "empty"),
        (b"#!/bin/sh\n".to_vec(), "script"),
        (b"this is no kernel".to_vec(), "no kernel's header"),
        (with(0, b"\x1f\x8b\x08"), "compressed"),
        (with(0, b"\xfd7zXZ\0"), "compressed"),
        (with(0, b"\x28\xb5\x2f\xfd"), "compressed"),
        (with(0, b"070701"), "an initramfs"),
        (with(0, b"!<arch>\ndebian-binary"), "a package"),
        (with(0, b"MZ"), "an EFI program"),
        (arm64, "another architecture"),
    ] {
        match refusal(&file) {
            KernelProblem::NotAKernel(what) => assert!(what.contains(said), "{said}: {what}"),
            other => panic!("{said}: {other}"),
        }
    }
}

#[test]
fn an_elf_file_for_another_machine_is_told_from_one_without_an_entry_point() {
    let mut arm = elf(b"x", LOAD_AT, true);
    arm[18] = 183;
    assert!(matches!(refusal(&arm), KernelProblem::WrongMachine));
    let mut of_32_bits = elf(b"x", LOAD_AT, true);
    of_32_bits[4] = 1;
    assert!(matches!(refusal(&of_32_bits), KernelProblem::WrongMachine));
    let problem = refusal(&elf(b"x", LOAD_AT, false));
    assert!(problem.to_string().contains("CONFIG_PVH=y"), "{problem}");
}

#[test]
fn a_fifo_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    let error = load(&path, &memory()).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

#[test]
fn a_missing_file_and_a_directory_are_unreadable_and_the_error_names_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let error = load(&dir.path().join("vmlinux"), &memory()).unwrap_err();
    assert!(error.to_string().contains("vmlinux: "), "{error}");
    let error = load(dir.path(), &memory()).unwrap_err();
    assert!(error.to_string().contains("it is a directory"), "{error}");
}
