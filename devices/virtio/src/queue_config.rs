//! What the driver wrote about one queue, before anybody believed it.
//!
//! The transport fills a [`QueueConfig`] register by register and turns it into a live
//! [`Virtqueue`] at `DRIVER_OK`; nothing is judged earlier, since the registers may be written in
//! any order and several times.

use virtio_queue::{Queue, QueueT};
use vm_memory::{GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

use crate::device::QueueSpec;
use crate::queue::Virtqueue;

/// Why a queue's configuration cannot become a live queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueConfigError {
    /// The size is no power of two, is zero, or is above what the device offers.
    #[error("queue size {size} is not a power of two of at most {max}")]
    Size {
        /// What the driver wrote.
        size: u32,
        /// What the device offers.
        max: u16,
    },
    /// A ring address breaks its alignment.
    #[error("{part} at {address:#x} is not aligned to {align} bytes")]
    Alignment {
        /// Which of the three parts.
        part: &'static str,
        /// Its guest physical address.
        address: u64,
        /// What the specification demands, in bytes.
        align: u64,
    },
    /// A ring does not lie inside guest memory.
    #[error("{part} at {address:#x}, {len} bytes, is not inside guest memory")]
    OutsideMemory {
        /// Which of the three parts.
        part: &'static str,
        /// Its guest physical address.
        address: u64,
        /// Its length in bytes.
        len: usize,
    },
}

/// The queue registers of one queue, as written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueConfig {
    pub(crate) size: u32,
    pub(crate) ready: bool,
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

impl QueueConfig {
    /// The state after reset.
    pub(crate) fn new(spec: QueueSpec) -> Self {
        Self {
            size: u32::from(spec.max_size),
            ready: false,
            descriptors: 0,
            available: 0,
            used: 0,
        }
    }

    /// Checks everything and builds the live queue. Call only if `ready`.
    pub(crate) fn build(
        &self,
        spec: QueueSpec,
        mem: &GuestMemoryMmap,
        event_idx: bool,
        indirect: bool,
    ) -> Result<Virtqueue, QueueConfigError> {
        let bad_size = || QueueConfigError::Size {
            size: self.size,
            max: spec.max_size,
        };
        let size = u16::try_from(self.size).map_err(|_| bad_size())?;
        let mut queue = Queue::new(spec.max_size).map_err(|_| bad_size())?;
        queue.try_set_size(size).map_err(|_| bad_size())?;

        // Section 2.7: 16 bytes per descriptor; flags, index and event word (6 bytes) around 2
        // bytes per available and 8 per used entry. A u16 times 16 cannot overflow.
        let n = usize::from(size);
        for (part, address, align, len) in [
            ("descriptor table", self.descriptors, 16, 16 * n),
            ("available ring", self.available, 2, 6 + 2 * n),
            ("used ring", self.used, 4, 6 + 8 * n),
        ] {
            if address % align != 0 {
                return Err(QueueConfigError::Alignment {
                    part,
                    address,
                    align,
                });
            }
            if !mem.check_range(
                GuestAddress(address),
                len,
                Permissions::Read | Permissions::Write,
            ) {
                return Err(QueueConfigError::OutsideMemory { part, address, len });
            }
        }
        queue.set_desc_table_address(Some(low(self.descriptors)), Some(high(self.descriptors)));
        queue.set_avail_ring_address(Some(low(self.available)), Some(high(self.available)));
        queue.set_used_ring_address(Some(low(self.used)), Some(high(self.used)));
        queue.set_event_idx(event_idx);
        queue.set_ready(true);
        Ok(Virtqueue::new(mem.clone(), queue, spec.direction, indirect))
    }
}

pub(crate) fn low(value: u64) -> u32 {
    value as u32
}

pub(crate) fn high(value: u64) -> u32 {
    (value >> 32) as u32
}
