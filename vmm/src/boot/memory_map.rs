//! What of the guest's physical addresses is RAM, as both boot protocols tell the kernel.

use crate::layout::{HIGH_MEMORY_START, RESERVED_START};
use crate::memory::{self, Range};

/// A range of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) kind: Kind,
}

/// What a range is; the numbers are those of both protocols (e820 types).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Ram = 1,
    Reserved = 2,
}

/// RAM as the guest may use it: all but what lies behind its back below 1 MiB. Four entries at most.
pub(crate) fn of(memory_len: u64) -> Vec<Entry> {
    let entry = |start: u64, end: u64, kind| Entry {
        start,
        len: end - start,
        kind,
    };
    let mut map = vec![
        entry(0, RESERVED_START, Kind::Ram),
        entry(RESERVED_START, HIGH_MEMORY_START, Kind::Reserved),
    ];
    for Range { start, len } in memory::ranges(memory_len) {
        map.push(entry(start.max(HIGH_MEMORY_START), start + len, Kind::Ram));
    }
    map
}

#[cfg(test)]
#[path = "memory_map_test.rs"]
mod tests;
