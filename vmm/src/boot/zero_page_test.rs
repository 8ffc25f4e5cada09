use super::*;
use crate::boot::memory_map;
use crate::memory::{self, MIB};
use vm_memory::Bytes as _;

fn written(initramfs: Option<LoadedInitramfs>, mib: u64) -> GuestMemoryMmap {
    let memory = memory::map(mib * MIB).unwrap();
    let header = setup_header {
        header: 0x5372_6448,
        version: 0x20f,
        ..Default::default()
    };
    write(
        &memory,
        header,
        &memory_map::of(mib * MIB),
        initramfs,
        0xe_0000,
    )
    .unwrap();
    memory
}

/// The offsets are those of Documentation/arch/x86/zero-page.rst and boot.rst of the kernel.
#[test]
fn the_kernel_finds_everything_at_the_documented_offsets() {
    let initramfs = LoadedInitramfs {
        start: 63 * MIB,
        len: 12,
    };
    let memory = written(Some(initramfs), 4096);
    let byte = |at| memory.read_obj::<u8>(GuestAddress(ZERO_PAGE + at)).unwrap();
    let word = |at| {
        memory
            .read_obj::<u32>(GuestAddress(ZERO_PAGE + at))
            .unwrap()
    };
    let long = |at| {
        memory
            .read_obj::<u64>(GuestAddress(ZERO_PAGE + at))
            .unwrap()
    };
    assert_eq!(long(0x070), 0xe_0000, "RSDP");
    assert_eq!(byte(0x1e8), 4, "entries of the memory map");
    assert_eq!(byte(0x1ef), 0, "sentinel: the page was cleared");
    assert_eq!(word(0x202), 0x5372_6448, "the file's own header");
    assert_eq!(byte(0x210), 0xff, "type of loader");
    assert_eq!(word(0x218), 63 << 20, "initramfs");
    assert_eq!(word(0x21c), 12, "its length");
    assert_eq!(u64::from(word(0x228)), COMMAND_LINE);
    let map: Vec<_> = (0..4)
        .map(|n| 0x2d0 + n * 20)
        .map(|at| (long(at), long(at + 8), word(at + 16)))
        .collect();
    assert_eq!(
        map,
        [
            (0, 0x9_fc00, 1),
            (0x9_fc00, 0x6_0400, 2),
            (MIB, 3071 * MIB, 1),
            (4096 * MIB, 1024 * MIB, 1)
        ]
    );
}

#[test]
fn without_an_initramfs_none_is_announced() {
    let memory = written(None, 64);
    let word = |at| {
        memory
            .read_obj::<u32>(GuestAddress(ZERO_PAGE + at))
            .unwrap()
    };
    assert_eq!((word(0x218), word(0x21c)), (0, 0));
}
