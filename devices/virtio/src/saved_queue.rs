//! A live queue in a snapshot: where it stands, and whether it is dead.
//!
//! One number says where. A chain that was consumed is completed before the queue can be saved,
//! since [`Taken`](crate::Taken) borrows the queue, so both rings stand at the same index. The
//! rings themselves are guest memory, their addresses the transport's, the driver's index is read
//! anew, and of interrupts there is nothing to know: the device raises one after the restore.
//!
//! Whether the index fits the driver's is judged where it always is, at the next look at the ring:
//! that a guest spoiled its ring and nobody has looked yet is a state that a live queue can have.

use std::num::Wrapping;

use minicbor::{Decode, Encode};
use virtio_queue::QueueT;

use crate::queue::{RingFault, Virtqueue};
use crate::saved::must;

/// A queue at one moment; part of version 1 of a device's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SavedQueueV1 {
    /// Index, modulo 2^16, of the next chain and of the next entry of the used ring.
    #[n(0)]
    next: u16,
    #[n(1)]
    fault: Option<FaultV1>,
}

/// A [`RingFault`], without the ring's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
enum FaultV1 {
    /// The driver's index, seen from `next`.
    #[n(0)]
    AvailableIndex(#[n(0)] u16),
    /// The head at `next`.
    #[n(1)]
    Head(#[n(0)] u16),
    #[n(2)]
    Inaccessible,
}

impl Virtqueue {
    /// The queue as it stands.
    #[must_use]
    pub fn save(&self) -> SavedQueueV1 {
        SavedQueueV1 {
            next: self.queue.next_avail(),
            fault: self.fault.map(|fault| match fault {
                RingFault::AvailableIndex { to, .. } => FaultV1::AvailableIndex(to),
                RingFault::Head { head, .. } => FaultV1::Head(head),
                RingFault::Inaccessible => FaultV1::Inaccessible,
            }),
        }
    }

    /// Puts a queue that was just built where the saved one stood. The driver's wish for kicks is
    /// in guest memory and as old as the snapshot, and a kick may have been lost with it: look at
    /// the ring as if kicked, [re-arm](Self::rearm) it, and raise one interrupt.
    ///
    /// # Errors
    /// The rule that a live queue of this size could not have broken.
    pub fn restore(&mut self, saved: SavedQueueV1) -> Result<(), &'static str> {
        let SavedQueueV1 { next, fault } = saved;
        let size = self.queue.size();
        self.fault = match fault {
            None => None,
            Some(FaultV1::AvailableIndex(to)) => {
                must(
                    to.wrapping_sub(next) > size,
                    "a queue is dead of an index that is in order",
                )?;
                let from = next;
                Some(RingFault::AvailableIndex { from, to, size })
            }
            Some(FaultV1::Head(head)) => {
                must(head >= size, "a queue is dead of a head that is in order")?;
                Some(RingFault::Head { head, size })
            }
            Some(FaultV1::Inaccessible) => Some(RingFault::Inaccessible),
        };
        self.queue.set_next_avail(next);
        self.queue.set_next_used(next);
        self.seen_available = Wrapping(next);
        self.used_when_asked = Wrapping(next);
        Ok(())
    }
}

#[cfg(test)]
#[path = "saved_queue_test.rs"]
mod tests;
