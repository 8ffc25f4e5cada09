use super::*;
use crate::layout::{HOLE_END, HOLE_START};
use crate::memory::MIB;

#[test]
fn the_map_covers_ram_without_overlap_and_keeps_the_tables() {
    for mib in [64, 256, 3072, 3073, 8192] {
        let map = of(mib * MIB);
        let mut end = 0;
        for entry in &map {
            assert!(entry.start >= end, "{map:?} overlaps");
            end = entry.start + entry.len;
        }
        let total: u64 = map.iter().map(|e| e.len).sum();
        assert_eq!(total, mib * MIB, "of {mib} MiB");
        let tables = map
            .iter()
            .find(|e| {
                e.start <= crate::layout::ACPI_TABLES
                    && e.start + e.len > crate::layout::GENERATION_ID
            })
            .unwrap();
        assert_eq!(tables.kind, Kind::Reserved);
    }
}

// B42
#[test]
fn one_range_above_the_first_mebibyte_lies_below_the_hole_and_the_rest_in_one_above_it() {
    for (mib, above) in [
        (64, 0),
        (3071, 0),
        (3072, 0),
        (3073, 1),
        (3328, 256),
        (4097, 1025),
    ] {
        let map = of(mib * MIB);
        let high: Vec<_> = map.iter().filter(|e| e.start >= HOLE_END).collect();
        let low: Vec<_> = map
            .iter()
            .filter(|e| (HIGH_MEMORY_START..HOLE_END).contains(&e.start))
            .collect();
        let [low] = low[..] else {
            panic!("{mib} MiB: {map:?}");
        };
        assert!(low.start + low.len <= HOLE_START, "{mib} MiB: {map:?}");
        let in_high: u64 = high.iter().map(|e| e.len).sum();
        assert_eq!((high.len(), in_high), (usize::from(above > 0), above * MIB));
    }
}
