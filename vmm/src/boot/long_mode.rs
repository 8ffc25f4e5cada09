//! What a kernel that is entered in 64-bit mode stands on until it has tables of its own: segment
//! descriptors, and page tables that map the first 4 GiB one to one.
//!
//! The registers that point here are [`crate::vcpu::registers`]'.

use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

use crate::error::HostError;
use crate::layout::{GDT, HOLE_END, PAGE_TABLES};

/// Selector of the code segment: `__BOOT_CS`.
pub(crate) const CODE_SELECTOR: u16 = 0x10;
/// Selector of the data segment: `__BOOT_DS`.
pub(crate) const DATA_SELECTOR: u16 = 0x18;
/// Length of the segment table, in bytes.
pub(crate) const GDT_LEN: u64 = 4 * 8;
/// Length of all page tables together, in bytes: the root, the next level, one per GiB.
pub(crate) const PAGE_TABLES_LEN: u64 = (2 + DIRECTORIES) * TABLE_LEN;

const DIRECTORIES: u64 = HOLE_END >> 30;
const TABLE_LEN: u64 = 4096;
const ENTRIES: u64 = TABLE_LEN / 8;
/// 64-bit code, readable, all of memory.
const CODE: u64 = 0x00af_9b00_0000_ffff;
/// Data, writable, the first 4 GiB.
const DATA: u64 = 0x00cf_9300_0000_ffff;
/// Page table bits: present and writable; and the page is one of 2 MiB.
const PRESENT: u64 = 0b11;
const LARGE: u64 = 1 << 7;
const LARGE_SHIFT: u64 = 21;

/// Writes both.
pub(crate) fn write_tables(memory: &GuestMemoryMmap) -> Result<(), HostError> {
    let write = |address: u64, words: &mut dyn Iterator<Item = u64>| {
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        memory
            .write_slice(&bytes, GuestAddress(address))
            .map_err(|e| HostError::on("write boot data", "tables", std::io::Error::other(e)))
    };
    write(GDT, &mut [0, 0, CODE, DATA].into_iter())?;
    let pointers = PAGE_TABLES + TABLE_LEN;
    let directories = pointers + TABLE_LEN;
    write(PAGE_TABLES, &mut std::iter::once(pointers | PRESENT))?;
    write(
        pointers,
        &mut (0..DIRECTORIES).map(|n| (directories + n * TABLE_LEN) | PRESENT),
    )?;
    write(
        directories,
        &mut (0..DIRECTORIES * ENTRIES).map(|n| n << LARGE_SHIFT | LARGE | PRESENT),
    )
}

#[cfg(test)]
#[path = "long_mode_test.rs"]
mod tests;
