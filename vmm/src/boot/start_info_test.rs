use super::*;
use crate::boot::memory_map;
use crate::memory::{self, MIB};
use vm_memory::Bytes as _;

#[test]
fn the_entry_point_finds_everything_by_address() {
    let memory = memory::map(64 * MIB).unwrap();
    let initramfs = LoadedInitramfs {
        start: 63 * MIB,
        len: 12,
    };
    let map = memory_map::of(64 * MIB);
    write(&memory, &map, Some(initramfs), 0xe_0000).unwrap();
    let word = |at| memory.read_obj::<u32>(GuestAddress(at)).unwrap();
    let long = |at| memory.read_obj::<u64>(GuestAddress(at)).unwrap();
    assert_eq!(word(START_INFO), 0x336e_c578);
    assert_eq!(word(START_INFO + 4), 1);
    assert_eq!(word(START_INFO + 12), 1);
    assert_eq!(long(long(START_INFO + 16)), 63 * MIB);
    assert_eq!(long(long(START_INFO + 16) + 8), 12);
    assert_eq!(long(START_INFO + 24), COMMAND_LINE);
    assert_eq!(long(START_INFO + 32), 0xe_0000);
    assert_eq!(long(START_INFO + 40), MEMORY_MAP);
    assert_eq!(word(START_INFO + 48), 3);
}

#[test]
fn without_an_initramfs_no_module_is_announced() {
    let memory = memory::map(64 * MIB).unwrap();
    write(&memory, &memory_map::of(64 * MIB), None, 0).unwrap();
    let word = |at| memory.read_obj::<u32>(GuestAddress(at)).unwrap();
    assert_eq!(word(START_INFO + 12), 0);
    assert_eq!(word(START_INFO + 16), 0);
}
