use super::*;
use crate::memory::MIB;

#[test]
fn the_map_covers_ram_without_overlap_and_keeps_the_tables() {
    for mib in [64, 256, 3072, 3073, 8192] {
        let map = memory_map(mib * MIB);
        let mut end = 0;
        for entry in &map {
            assert!(entry.addr >= end, "{map:?} overlaps");
            end = entry.addr + entry.size;
        }
        let total: u64 = map.iter().map(|e| e.size).sum();
        assert_eq!(total, mib * MIB, "of {mib} MiB");
        let tables = map
            .iter()
            .find(|e| {
                e.addr <= crate::layout::ACPI_TABLES
                    && e.addr + e.size > crate::layout::GENERATION_ID
            })
            .unwrap();
        assert_eq!(tables.type_, RESERVED);
    }
}

#[test]
fn the_entry_point_finds_everything_by_address() {
    let memory = memory::map(64 * MIB).unwrap();
    let cmdline = CommandLine::new(["a=b"]).unwrap();
    let initramfs = LoadedInitramfs {
        start: 63 * MIB,
        len: 12,
    };
    write(&memory, 64 * MIB, &cmdline, Some(initramfs), 0xe_0000).unwrap();
    let word = |at| memory.read_obj::<u32>(GuestAddress(at)).unwrap();
    let long = |at| memory.read_obj::<u64>(GuestAddress(at)).unwrap();
    assert_eq!(word(START_INFO), 0x336e_c578);
    assert_eq!(word(START_INFO + 4), 1);
    assert_eq!(word(START_INFO + 12), 1);
    assert_eq!(long(long(START_INFO + 16)), 63 * MIB);
    assert_eq!(long(long(START_INFO + 16) + 8), 12);
    let mut line = vec![0; cmdline.as_bytes_with_nul().len()];
    memory
        .read_slice(&mut line, GuestAddress(long(START_INFO + 24)))
        .unwrap();
    assert_eq!(line, cmdline.as_bytes_with_nul());
    assert_eq!(long(START_INFO + 32), 0xe_0000);
    assert_eq!(long(START_INFO + 40), MEMORY_MAP);
    assert_eq!(word(START_INFO + 48), 3);
}

#[test]
fn without_an_initramfs_no_module_is_announced() {
    let memory = memory::map(64 * MIB).unwrap();
    write(&memory, 64 * MIB, &CommandLine::new([]).unwrap(), None, 0).unwrap();
    let word = |at| memory.read_obj::<u32>(GuestAddress(at)).unwrap();
    assert_eq!(word(START_INFO + 12), 0);
    assert_eq!(word(START_INFO + 16), 0);
}

// The parts in low memory do not overlap.
const _: () = {
    assert!(START_INFO + 56 <= MODULE_LIST);
    assert!(MODULE_LIST + 32 <= MEMORY_MAP);
    assert!(MEMORY_MAP + 24 * 8 <= COMMAND_LINE);
    assert!(COMMAND_LINE + (crate::layout::COMMAND_LINE_MAX as u64) < RESERVED_START);
};
