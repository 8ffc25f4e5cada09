use super::*;
use crate::memory::{self, MIB};

/// What a processor finds for a linear address.
fn translated(memory: &GuestMemoryMmap, address: u64) -> Option<u64> {
    let entry = |table: u64, shift: u64| {
        let index = address >> shift & (ENTRIES - 1);
        let entry: u64 = memory.read_obj(GuestAddress(table + index * 8)).unwrap();
        (entry & PRESENT == PRESENT).then_some(entry)
    };
    let base = |entry: u64| entry & !(TABLE_LEN - 1);
    let pointers = entry(PAGE_TABLES, 39)?;
    let directory = entry(base(pointers), 30)?;
    let page = entry(base(directory), 21)?;
    assert_ne!(page & LARGE, 0);
    Some((page & !((1 << LARGE_SHIFT) - 1)) | (address & ((1 << LARGE_SHIFT) - 1)))
}

#[test]
fn the_first_four_gib_are_mapped_one_to_one_and_nothing_else() {
    let memory = memory::map(64 * MIB).unwrap();
    write_tables(&memory).unwrap();
    for address in [0, 0x7000, 16 << 20, (1 << 30) - 1, 1 << 30, HOLE_END - 1] {
        assert_eq!(translated(&memory, address), Some(address), "{address:#x}");
    }
    assert_eq!(translated(&memory, HOLE_END), None);
    assert_eq!(translated(&memory, 1 << 39), None);
}

#[test]
fn selectors_name_64_bit_code_and_flat_data() {
    let memory = memory::map(64 * MIB).unwrap();
    write_tables(&memory).unwrap();
    let descriptor = |selector: u16| {
        memory
            .read_obj::<u64>(GuestAddress(GDT + u64::from(selector)))
            .unwrap()
    };
    const LONG: u64 = 1 << 53;
    const EXECUTABLE: u64 = 1 << 43;
    const RING_0_PRESENT: u64 = 0b1001 << 44;
    let code = descriptor(CODE_SELECTOR);
    let data = descriptor(DATA_SELECTOR);
    assert_eq!(code & (LONG | EXECUTABLE), LONG | EXECUTABLE);
    assert_eq!(data & (LONG | EXECUTABLE), 0);
    for descriptor in [code, data] {
        assert_eq!(descriptor & (0b1111 << 44), RING_0_PRESENT);
    }
}
