//! The walk of a descriptor chain: from a head index to a list of checked segments.
//!
//! Each descriptor is read from guest memory exactly once, so that what was checked is what is
//! used. `virtio-queue` ends its iterator alike at the end of a chain and at a malformed
//! descriptor; a gate must tell these apart, hence this walk.
//!
//! Bounds, whatever the guest wrote: at most as many descriptors as a table has (a longer walk
//! has met one twice), tables of at most [`MAX_DESCRIPTORS`] entries, one level of indirection.

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

use crate::device::Direction;

/// Most descriptors an indirect table may have.
///
/// Linux splices a pipe into one chain with a descriptor per page; a pipe of its default maximum
/// (1 MiB) needs 256. The specification's own limit, the queue size, is one Linux does not keep
/// to for indirect tables.
pub const MAX_DESCRIPTORS: usize = 1024;

/// Bytes of one descriptor.
const DESCRIPTOR_LEN: usize = size_of::<Descriptor>();

/// Most bytes of one chain (section 2.7.5.2: not longer than 2^32 bytes).
const MAX_CHAIN_BYTES: usize = u32::MAX as usize;

/// What is wrong with one chain. The ring it came from is still sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainFault {
    /// The chain meets a descriptor twice, or is longer than its table.
    #[error("descriptor chain has a cycle")]
    Cycle,
    /// A descriptor's `next` points past its table.
    #[error("descriptor {next} is past its table of {size}")]
    NextOutOfRange {
        /// The index found.
        next: u16,
        /// Entries of the table.
        size: usize,
    },
    /// A buffer does not lie inside guest memory.
    #[error("buffer at {address:#x}, {len} bytes, is not inside guest memory")]
    BufferOutsideMemory {
        /// Guest physical address.
        address: u64,
        /// Length in bytes.
        len: u32,
    },
    /// A descriptor lets the device write where it should read, or the reverse.
    #[error("descriptor is for the other direction than its queue")]
    WrongDirection,
    /// An indirect descriptor without the feature, inside an indirect table, or with a successor.
    #[error("indirect descriptor where none is allowed")]
    IndirectNotAllowed,
    /// An indirect table is empty, too large, not a whole number of entries, or outside memory.
    #[error("indirect table at {address:#x}, {len} bytes, is not a valid table")]
    IndirectTable {
        /// Guest physical address.
        address: u64,
        /// Length in bytes.
        len: u32,
    },
    /// The chain's buffers add up to more than 2^32 bytes.
    #[error("descriptor chain is longer than the specification allows")]
    TooLong,
}

/// One buffer of a chain, known to lie inside guest memory. Never empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) address: GuestAddress,
    pub(crate) len: usize,
}

/// What a chain comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Sum of its buffers' lengths.
    pub(crate) bytes: usize,
    /// Entries of the queue's own table that it takes.
    pub(crate) entries: usize,
}

/// Where and how to walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk {
    /// The queue's descriptor table.
    pub(crate) table: GuestAddress,
    /// Its number of entries.
    pub(crate) size: u16,
    pub(crate) direction: Direction,
    /// Whether `INDIRECT_DESC` was negotiated.
    pub(crate) indirect: bool,
}

impl Walk {
    /// Collects the chain that starts at `head` (below `size`) into `segments`, which is cleared
    /// first. After an error `segments` is empty.
    pub(crate) fn collect(
        self,
        mem: &GuestMemoryMmap,
        head: u16,
        segments: &mut Vec<Segment>,
    ) -> Result<Walked, ChainFault> {
        segments.clear();
        let walked = self.collect_into(mem, head, segments);
        if walked.is_err() {
            segments.clear();
        }
        walked
    }

    fn collect_into(
        self,
        mem: &GuestMemoryMmap,
        head: u16,
        segments: &mut Vec<Segment>,
    ) -> Result<Walked, ChainFault> {
        let mut table = self.table;
        let mut size = usize::from(self.size);
        let mut inside_indirect = false;
        let mut index = head;
        let mut visited = 0;
        let mut entries = 0;
        let mut total = 0_usize;
        loop {
            if usize::from(index) >= size {
                return Err(ChainFault::NextOutOfRange { next: index, size });
            }
            if visited == size {
                return Err(ChainFault::Cycle);
            }
            visited += 1;
            if !inside_indirect {
                entries = visited;
            }
            let descriptor = read_descriptor(mem, table, index)?;
            let len = descriptor.len();

            if descriptor.refers_to_indirect_table() {
                if !self.indirect || inside_indirect || descriptor.has_next() {
                    return Err(ChainFault::IndirectNotAllowed);
                }
                size = indirect_table_size(mem, &descriptor)?;
                table = descriptor.addr();
                inside_indirect = true;
                index = 0;
                visited = 0;
                continue;
            }

            // An empty buffer is skipped before its address is looked at: Linux's splice fills the
            // end of a table with entries of length 0 whose addresses are garbage.
            if len > 0 {
                let to_guest = self.direction == Direction::ToGuest;
                if descriptor.is_write_only() != to_guest {
                    return Err(ChainFault::WrongDirection);
                }
                let bytes = len as usize;
                if !mem.check_range(descriptor.addr(), bytes, access(self.direction)) {
                    return Err(ChainFault::BufferOutsideMemory {
                        address: descriptor.addr().raw_value(),
                        len,
                    });
                }
                total = total
                    .checked_add(bytes)
                    .filter(|total| *total <= MAX_CHAIN_BYTES)
                    .ok_or(ChainFault::TooLong)?;
                segments.push(Segment {
                    address: descriptor.addr(),
                    len: bytes,
                });
            }
            if !descriptor.has_next() {
                return Ok(Walked {
                    bytes: total,
                    entries,
                });
            }
            index = descriptor.next();
        }
    }
}

fn access(direction: Direction) -> Permissions {
    match direction {
        Direction::ToGuest => Permissions::Write,
        Direction::FromGuest => Permissions::Read,
    }
}

/// The number of entries of the table that `descriptor` points to.
fn indirect_table_size(
    mem: &GuestMemoryMmap,
    descriptor: &Descriptor,
) -> Result<usize, ChainFault> {
    let len = descriptor.len() as usize;
    let entries = len / DESCRIPTOR_LEN;
    let whole = len.is_multiple_of(DESCRIPTOR_LEN);
    if !whole
        || !(1..=MAX_DESCRIPTORS).contains(&entries)
        || !mem.check_range(descriptor.addr(), len, Permissions::Read)
    {
        return Err(ChainFault::IndirectTable {
            address: descriptor.addr().raw_value(),
            len: descriptor.len(),
        });
    }
    Ok(entries)
}

/// Reads entry `index` of a table that is known to lie inside guest memory.
fn read_descriptor(
    mem: &GuestMemoryMmap,
    table: GuestAddress,
    index: u16,
) -> Result<Descriptor, ChainFault> {
    let outside = |address: u64| ChainFault::BufferOutsideMemory {
        address,
        len: DESCRIPTOR_LEN as u32,
    };
    let address = table
        .checked_add(u64::from(index) * DESCRIPTOR_LEN as u64)
        .ok_or(outside(table.raw_value()))?;
    mem.read_obj(address)
        .map_err(|_| outside(address.raw_value()))
}

#[cfg(test)]
#[path = "chain_test.rs"]
mod tests;
