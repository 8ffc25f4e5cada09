use proptest::prelude::*;

use super::*;
use crate::mock::{INDIRECT, NEXT, WRITE};

const TABLE: GuestAddress = GuestAddress(0x1000);
const INDIRECT_TABLE: GuestAddress = GuestAddress(0x8000);
const SIZE: u16 = 8;
/// Two regions with a hole between them, as above and below 4 GiB.
const HOLE: u64 = 0x10_0000;
const BEHIND_HOLE: u64 = 0x20_0000;
const END: u64 = 0x30_0000;

fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[
        (GuestAddress(0), HOLE as usize),
        (GuestAddress(BEHIND_HOLE), (END - BEHIND_HOLE) as usize),
    ])
    .unwrap()
}

fn put(mem: &GuestMemoryMmap, table: GuestAddress, entries: &[(u64, u32, u16, u16)]) {
    for (index, (address, len, flags, next)) in entries.iter().enumerate() {
        let descriptor = Descriptor::new(*address, *len, *flags, *next);
        let at = table.unchecked_add(16 * index as u64);
        mem.write_obj(descriptor, at).unwrap();
    }
}

fn walk(direction: Direction) -> Walk {
    Walk {
        table: TABLE,
        size: SIZE,
        direction,
        indirect: true,
    }
}

/// The walk's result for a chain from the guest that starts at entry 0.
fn collect(entries: &[(u64, u32, u16, u16)]) -> (Result<usize, ChainFault>, Vec<(u64, usize)>) {
    let mem = memory();
    put(&mem, TABLE, entries);
    collect_from(&mem, walk(Direction::FromGuest))
}

fn collect_from(
    mem: &GuestMemoryMmap,
    walk: Walk,
) -> (Result<usize, ChainFault>, Vec<(u64, usize)>) {
    let mut segments = Vec::new();
    let total = walk
        .collect(mem, 0, &mut segments)
        .map(|walked| walked.bytes);
    let segments = segments
        .iter()
        .map(|segment| (segment.address.0, segment.len))
        .collect();
    (total, segments)
}

#[test]
fn a_chain_is_walked_in_the_order_of_its_links() {
    let (total, segments) = collect(&[
        (0x2000, 1, NEXT, 2),
        (0x4000, 4, 0, 0),
        (0x3000, 2, NEXT, 1),
    ]);
    assert_eq!(total, Ok(7));
    assert_eq!(segments, [(0x2000, 1), (0x3000, 2), (0x4000, 4)]);
}

// B44: a chain with a cycle.
#[test]
fn a_cycle_is_found_however_long() {
    let to_itself = [(0x2000, 1, NEXT, 0)];
    assert_eq!(collect(&to_itself).0, Err(ChainFault::Cycle));
    let around: Vec<_> = (0..SIZE)
        .map(|index| (0x2000, 1, NEXT, (index + 1) % SIZE))
        .collect();
    let (total, segments) = collect(&around);
    assert_eq!(total, Err(ChainFault::Cycle));
    assert!(segments.is_empty(), "a bad chain has no bytes");
}

#[test]
fn a_chain_through_the_whole_table_is_no_cycle() {
    let mut all: Vec<_> = (0..SIZE)
        .map(|index| (0x2000, 1, NEXT, index + 1))
        .collect();
    all[7].2 = 0;
    assert_eq!(collect(&all).0, Ok(8));
}

#[test]
fn a_link_past_the_table_is_not_an_end() {
    for next in [SIZE, u16::MAX] {
        assert_eq!(
            collect(&[(0x2000, 1, NEXT, next)]).0,
            Err(ChainFault::NextOutOfRange {
                next,
                size: usize::from(SIZE)
            }),
        );
    }
}

// B44: a buffer outside of memory.
#[test]
fn a_buffer_that_leaves_memory_anywhere_is_refused() {
    for (address, len) in [
        (END, 1),
        (END - 4, 5),
        (HOLE - 1, 2),
        (HOLE, 1),
        (HOLE - 1, (BEHIND_HOLE - HOLE) as u32 + 2),
        (u64::MAX, 1),
        (u64::MAX - 1, u32::MAX),
        (0, u32::MAX),
    ] {
        assert_eq!(
            collect(&[(address, len, 0, 0)]).0,
            Err(ChainFault::BufferOutsideMemory { address, len }),
        );
    }
    assert_eq!(collect(&[(END - 4, 4, 0, 0)]).0, Ok(4));
}

// B44: zero length, and what Linux's splice leaves behind.
#[test]
fn empty_buffers_are_skipped_wherever_they_point() {
    let garbage = 0x5_8000_0000_0000;
    let (total, segments) = collect(&[
        (garbage, 0, NEXT, 1),
        (0x2000, 3, NEXT, 2),
        (garbage, 0, WRITE | NEXT, 3),
        (garbage, 0, 0, 0),
    ]);
    assert_eq!(total, Ok(3));
    assert_eq!(segments, [(0x2000, 3)]);
    assert_eq!(collect(&[(garbage, 0, 0, 0)]), (Ok(0), vec![]));
}

// B44: write-only where the device reads, and the reverse.
#[test]
fn a_buffer_for_the_other_direction_is_refused() {
    let mem = memory();
    for (direction, good, bad) in [
        (Direction::FromGuest, 0, WRITE),
        (Direction::ToGuest, WRITE, 0),
    ] {
        put(
            &mem,
            TABLE,
            &[(0x2000, 1, good | NEXT, 1), (0x3000, 1, bad, 0)],
        );
        let (total, _) = collect_from(&mem, walk(direction));
        assert_eq!(total, Err(ChainFault::WrongDirection));
        put(&mem, TABLE, &[(0x2000, 1, good, 0)]);
        assert_eq!(collect_from(&mem, walk(direction)).0, Ok(1));
    }
}

#[test]
fn an_indirect_table_may_end_a_chain_and_be_longer_than_the_queue() {
    let mem = memory();
    put(
        &mem,
        TABLE,
        &[
            (0x2000, 1, NEXT, 1),
            (INDIRECT_TABLE.0, 16 * 256, INDIRECT | WRITE, 0),
        ],
    );
    let mut entries: Vec<_> = (0..256).map(|index| (0x4000, 1, NEXT, index + 1)).collect();
    entries[255].2 = 0;
    put(&mem, INDIRECT_TABLE, &entries);
    let (total, segments) = collect_from(&mem, walk(Direction::FromGuest));
    assert_eq!(total, Ok(257));
    assert_eq!(segments.len(), 257);
}

#[test]
fn indirect_descriptors_are_refused_where_the_specification_forbids_them() {
    let mem = memory();
    let table = INDIRECT_TABLE.0;
    // With a successor.
    put(
        &mem,
        TABLE,
        &[(table, 16, INDIRECT | NEXT, 1), (0x2000, 1, 0, 0)],
    );
    let from_guest = walk(Direction::FromGuest);
    let refused = Err(ChainFault::IndirectNotAllowed);
    assert_eq!(collect_from(&mem, from_guest).0, refused);
    // Inside a table, here pointing to itself.
    put(&mem, TABLE, &[(table, 16, INDIRECT, 0)]);
    put(&mem, INDIRECT_TABLE, &[(table, 16, INDIRECT, 0)]);
    assert_eq!(collect_from(&mem, from_guest).0, refused);
    // Without the feature.
    put(&mem, INDIRECT_TABLE, &[(0x2000, 1, 0, 0)]);
    assert_eq!(collect_from(&mem, from_guest).0, Ok(1));
    let without = Walk {
        indirect: false,
        ..from_guest
    };
    assert_eq!(collect_from(&mem, without).0, refused);
}

#[test]
fn an_indirect_table_of_absurd_shape_is_refused() {
    let too_many = 16 * (MAX_DESCRIPTORS as u32 + 1);
    for (address, len) in [
        (INDIRECT_TABLE.0, 0),
        (INDIRECT_TABLE.0, 15),
        (INDIRECT_TABLE.0, 17),
        (INDIRECT_TABLE.0, too_many),
        (INDIRECT_TABLE.0, !15),
        (END - 16, 32),
        (u64::MAX - 15, 16),
    ] {
        assert_eq!(
            collect(&[(address, len, INDIRECT, 0)]).0,
            Err(ChainFault::IndirectTable { address, len }),
        );
    }
}

#[test]
fn a_cycle_inside_an_indirect_table_is_found() {
    let mem = memory();
    put(&mem, TABLE, &[(INDIRECT_TABLE.0, 32, INDIRECT, 0)]);
    put(
        &mem,
        INDIRECT_TABLE,
        &[(0x2000, 1, NEXT, 1), (0x2000, 1, NEXT, 0)],
    );
    let (total, _) = collect_from(&mem, walk(Direction::FromGuest));
    assert_eq!(total, Err(ChainFault::Cycle));
}

#[test]
fn a_chain_of_more_than_4_gib_is_refused() {
    // Real memory, many times over: 2 GiB, of which no page is touched.
    let mem = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 2 << 30)]).unwrap();
    let half = 1 << 30;
    let mut entries: Vec<_> = (0..4).map(|index| (0, half, NEXT, index + 1)).collect();
    entries[3].2 = 0;
    entries[3].1 = half - 1;
    put(&mem, TABLE, &entries);
    let from_guest = walk(Direction::FromGuest);
    assert_eq!(collect_from(&mem, from_guest).0, Ok(u32::MAX as usize));
    entries[3].1 = half;
    put(&mem, TABLE, &entries);
    assert_eq!(collect_from(&mem, from_guest).0, Err(ChainFault::TooLong));
}

/// The same walk written the slow and obvious way: follow the links in a list, with a set of what
/// was met.
fn naive(entries: &[(u64, u32, u16, u16)]) -> Option<Vec<(u64, usize)>> {
    let mut met = std::collections::HashSet::new();
    let mut segments = Vec::new();
    let mut index = 0;
    loop {
        let (address, len, flags, next) = *entries.get(usize::from(index))?;
        if !met.insert(index) || flags & INDIRECT != 0 {
            return None;
        }
        if len > 0 {
            let end = address.checked_add(u64::from(len))?;
            let inside = end <= HOLE || (address >= BEHIND_HOLE && end <= END);
            if !inside || flags & WRITE != 0 {
                return None;
            }
            segments.push((address, len as usize));
        }
        if flags & NEXT == 0 {
            return Some(segments);
        }
        index = next;
    }
}

proptest! {
    #[test]
    fn random_tables_are_walked_like_the_naive_walk(
        entries in prop::collection::vec(
            (
                prop_oneof![8 => 0_u64..HOLE, 1 => BEHIND_HOLE..END, 1 => any::<u64>()],
                prop_oneof![8 => 0_u32..0x100, 1 => any::<u32>()],
                prop_oneof![8 => Just(NEXT), 4 => Just(0), 1 => 0_u16..8],
                0_u16..SIZE + 1,
            ),
            usize::from(SIZE)..=usize::from(SIZE),
        )
    ) {
        let mem = memory();
        put(&mem, TABLE, &entries);
        // The table may be overwritten by no buffer: a walk only reads.
        let without_indirect = Walk { indirect: false, ..walk(Direction::FromGuest) };
        let (total, segments) = collect_from(&mem, without_indirect);
        match naive(&entries) {
            Some(expected) => {
                prop_assert_eq!(total.unwrap(), expected.iter().map(|(_, len)| len).sum::<usize>());
                prop_assert_eq!(segments, expected);
            }
            None => {
                prop_assert!(total.is_err());
                prop_assert!(segments.is_empty());
            }
        }
    }
}
