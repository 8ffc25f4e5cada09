//! One live split ring, seen from the device: peek, judge, consume, complete.
//!
//! ```text
//! Virtqueue ── peek ──► Peeked ── consume(verdict) ──► Taken ── complete ──► used ring
//!                         │ drop: ring unchanged          │ drop: returned with what was written
//! ```
//!
//! [`Peeked`] borrows the queue and may read the first bytes of a chain, but a chain leaves the
//! available ring only with a [`ChainVerdict`]. Not consuming is how a device holds a chain back.
//!
//! Kicks and interrupts follow the event index: after draining, [`Virtqueue::rearm`] asks for the
//! next kick and tells whether one slipped in before; after completing, one
//! [`Virtqueue::take_interrupt`] per batch tells whether the driver wants to hear of it.

use std::fmt;
use std::mem;
use std::num::Wrapping;
use std::sync::atomic::{Ordering, fence};

use virtio_queue::{Queue, QueueT};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

use crate::chain::{ChainFault, Segment, Walk};
use crate::cursor::Cursor;
use crate::device::Direction;

/// Bytes of flags and index in front of the available ring's entries.
const AVAILABLE_HEADER: u64 = 4;

/// Why a ring cannot be trusted any more. The queue stays dead until the device is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingFault {
    /// The driver claims to have added more chains than the ring has entries.
    #[error("available index jumped from {from} to {to} in a ring of {size}")]
    AvailableIndex {
        /// Where this device stands.
        from: u16,
        /// What the driver wrote.
        to: u16,
        /// Entries of the ring.
        size: u16,
    },
    /// The available ring names a head that the descriptor table does not have.
    #[error("head {head} is outside the descriptor table of {size}")]
    Head {
        /// What the driver wrote.
        head: u16,
        /// Entries of the table.
        size: u16,
    },
    /// The ring cannot be read or written.
    #[error("the rings are not accessible in guest memory")]
    Inaccessible,
}

/// Whether the bytes of a chain may be used. Says so once: it is neither `Clone` nor `Copy`.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum ChainVerdict {
    /// The chain's bytes may be read, or written.
    Use,
    /// The chain goes back as it is: from here on it has no bytes.
    Drop,
}

/// A live virtqueue. Made by the transport from addresses that lie inside guest memory.
///
/// Not shared: the device wraps it in the lock of its own choice.
pub struct Virtqueue {
    mem: GuestMemoryMmap,
    pub(crate) queue: Queue,
    direction: Direction,
    indirect: bool,
    /// The driver's index as last read; chains up to it are peeked without reading it again.
    pub(crate) seen_available: Wrapping<u16>,
    pub(crate) fault: Option<RingFault>,
    /// Index of the used ring when it was last asked whether the driver waits for room.
    pub(crate) used_when_asked: Wrapping<u16>,
    /// Since then a chain was seen that takes several entries, or nobody knows how many.
    scattered: bool,
    /// Scratch for the chain at hand. Holds at most one table's worth of entries.
    segments: Vec<Segment>,
}

/// A queue's cursors, for a person who debugs.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct QueueView {
    /// Entries, as the driver chose.
    pub size: u16,
    /// Index, modulo 2^16, of the next chain to be peeked.
    pub next_available: u16,
    /// Index, modulo 2^16, of the next entry of the used ring.
    pub next_used: u16,
    /// Why the queue is dead, if it is.
    pub fault: Option<String>,
}

impl Virtqueue {
    /// Wraps a queue whose rings were checked.
    pub(crate) fn new(
        mem: GuestMemoryMmap,
        queue: Queue,
        direction: Direction,
        indirect: bool,
    ) -> Self {
        let seen_available = Wrapping(queue.next_avail());
        Self {
            mem,
            queue,
            direction,
            indirect,
            seen_available,
            fault: None,
            used_when_asked: seen_available,
            scattered: false,
            segments: Vec::new(),
        }
    }

    /// Entries of the ring.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// Why the queue is dead, if it is.
    #[must_use]
    pub fn fault(&self) -> Option<RingFault> {
        self.fault
    }

    /// The queue's cursors.
    #[must_use]
    pub fn view(&self) -> QueueView {
        QueueView {
            size: self.queue.size(),
            next_available: self.queue.next_avail(),
            next_used: self.queue.next_used(),
            fault: self.fault.map(|fault| fault.to_string()),
        }
    }

    /// Looks at the next chain without taking it; `None` if the driver has added no more.
    ///
    /// # Errors
    /// The ring is broken, now or since an earlier call. No chain will ever come again.
    pub fn peek(&mut self) -> Result<Option<Peeked<'_>>, RingFault> {
        if !self.available()? {
            return Ok(None);
        }
        let head = self.next_head()?;
        let walk = Walk {
            table: GuestAddress(self.queue.desc_table()),
            size: self.queue.size(),
            direction: self.direction,
            indirect: self.indirect,
        };
        let walked = walk.collect(&self.mem, head, &mut self.segments);
        self.scattered |= walked.is_err() || walked.is_ok_and(|walked| walked.entries > 1);
        let (fault, left) = match walked {
            Ok(walked) => (None, walked.bytes),
            Err(fault) => (Some(fault), 0),
        };
        Ok(Some(Peeked {
            head,
            fault,
            cursor: Cursor::new(left),
            queue: self,
        }))
    }

    /// Whether the driver has added a chain that was not consumed yet.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn available(&mut self) -> Result<bool, RingFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let next = Wrapping(self.queue.next_avail());
        if self.seen_available != next {
            return Ok(true);
        }
        // Acquire: the driver wrote the chain before the index.
        let Ok(index) = self.queue.avail_idx(&self.mem, Ordering::Acquire) else {
            return Err(self.break_ring(RingFault::Inaccessible));
        };
        if (index - next).0 > self.queue.size() {
            return Err(self.break_ring(RingFault::AvailableIndex {
                from: next.0,
                to: index.0,
                size: self.queue.size(),
            }));
        }
        self.seen_available = index;
        Ok(index != next)
    }

    /// Asks the driver to kick when it adds the next chain, then looks again: `true` if a chain is
    /// there already, which may have come without a kick. Drain and re-arm until it says `false`.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn rearm(&mut self) -> Result<bool, RingFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        // Stores the event word, fences, and only then is the index read: either we see the
        // driver's chain, or the driver sees our wish.
        if self.queue.enable_notification(&self.mem).is_err() {
            return Err(self.break_ring(RingFault::Inaccessible));
        }
        self.available()
    }

    /// Tells the driver that kicks are not needed until [`rearm`](Self::rearm). With the event
    /// index this costs nothing and does nothing: a wish that was met suppresses all kicks after
    /// it, but for one in 65536, which the caller must bear.
    pub fn disarm(&mut self) {
        if self.fault.is_none() && self.queue.disable_notification(&self.mem).is_err() {
            self.break_ring(RingFault::Inaccessible);
        }
    }

    /// Whether the driver wants an interrupt for the chains completed since the last call of this
    /// or of [`forget_interrupt`](Self::forget_interrupt). Never, once the queue is dead.
    #[must_use = "an interrupt the driver waits for must be raised"]
    pub fn take_interrupt(&mut self) -> bool {
        self.fault.is_none() && self.queue.needs_notification(&self.mem).unwrap_or(false)
    }

    /// As [`take_interrupt`](Self::take_interrupt), of a driver that wants to hear of completed chains
    /// only when it waits for room: not if it cannot have found the ring full since the last call. Ask
    /// when chains were completed.
    ///
    /// A driver that found it full had added as many chains as there are entries beyond those that it
    /// had seen completed, which were at least all of the last call, and adds none while it waits. So
    /// half as many are not enough, where each takes one entry. For a chain that takes more the answer
    /// is yes, whatever the driver asked: it may have asked before chains that were passed over here.
    #[must_use = "an interrupt the driver waits for must be raised"]
    pub fn take_interrupt_for_room(&mut self) -> bool {
        // The index of completed chains is written before the driver's is read: either the driver sees
        // room, or it is seen here how far it had come.
        fence(Ordering::SeqCst);
        let used = Wrapping(self.queue.next_used());
        let before = mem::replace(&mut self.used_when_asked, used);
        let added = self.queue.avail_idx(&self.mem, Ordering::Acquire);
        let may_wait = added.is_ok_and(|index| (index - before).0 >= self.queue.size() / 2);
        if mem::take(&mut self.scattered) {
            self.forget_interrupt();
            return self.fault.is_none();
        }
        // Asked in any case, so that the next answer is about the chains completed from now on.
        self.take_interrupt() && may_wait
    }

    /// Decides that the chains completed so far need no interrupt, whatever the driver asked.
    pub fn forget_interrupt(&mut self) {
        // Asking resets the count of chains the next question covers.
        let _asked = self.take_interrupt();
    }

    fn break_ring(&mut self, fault: RingFault) -> RingFault {
        // Debug, not warn: the guest can bring this about as often as it likes.
        tracing::debug!(%fault, "virtqueue is dead");
        *self.fault.get_or_insert(fault)
    }

    /// The head index of the next chain. Call only if one is available.
    fn next_head(&mut self) -> Result<u16, RingFault> {
        let size = self.queue.size();
        // The size is a power of two of at least 1, so the remainder exists.
        let slot = u64::from(self.queue.next_avail() % size);
        let head = GuestAddress(self.queue.avail_ring())
            .checked_add(AVAILABLE_HEADER + 2 * slot)
            .and_then(|address| self.mem.load::<u16>(address, Ordering::Relaxed).ok())
            .map(u16::from_le);
        match head {
            Some(head) if head < size => Ok(head),
            Some(head) => Err(self.break_ring(RingFault::Head { head, size })),
            None => Err(self.break_ring(RingFault::Inaccessible)),
        }
    }
}

impl fmt::Debug for Virtqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Virtqueue")
            .field("direction", &self.direction)
            .field("view", &self.view())
            .finish_non_exhaustive()
    }
}

/// A chain that is still in the ring. Dropping it changes nothing.
#[derive(Debug)]
pub struct Peeked<'q> {
    queue: &'q mut Virtqueue,
    head: u16,
    fault: Option<ChainFault>,
    cursor: Cursor,
}

impl<'q> Peeked<'q> {
    /// What is wrong with the chain. If anything is, it has no bytes.
    #[must_use]
    pub fn fault(&self) -> Option<ChainFault> {
        self.fault
    }

    /// Bytes of the chain behind what [`read`](Self::read) took.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.cursor.left
    }

    /// Copies the next bytes of the chain into `buf` and steps over them; a later
    /// [`consume`](Self::consume) goes on behind. `false`, with nothing moved, if fewer are left.
    pub fn read(&mut self, buf: &mut [u8]) -> bool {
        self.cursor.read(&self.queue.mem, &self.queue.segments, buf)
    }

    /// Takes the chain out of the available ring.
    pub fn consume(mut self, verdict: ChainVerdict) -> Taken<'q> {
        if verdict == ChainVerdict::Drop {
            self.cursor = Cursor::new(0);
        }
        let next = self.queue.queue.next_avail().wrapping_add(1);
        self.queue.queue.set_next_avail(next);
        Taken {
            queue: self.queue,
            head: self.head,
            cursor: self.cursor,
            written: 0,
        }
    }
}

/// A chain that left the available ring and goes into the used ring exactly once: with
/// [`complete`](Self::complete), or when dropped on an early return.
#[derive(Debug)]
#[must_use = "a taken chain is the driver's until it is completed"]
pub struct Taken<'q> {
    queue: &'q mut Virtqueue,
    head: u16,
    cursor: Cursor,
    written: u32,
}

impl Taken<'_> {
    /// Bytes of the chain not read, skipped or written yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.cursor.left
    }

    /// Copies the next bytes of the chain into `buf`. `false`, with nothing moved, if fewer are
    /// left.
    pub fn read(&mut self, buf: &mut [u8]) -> bool {
        self.cursor.read(&self.queue.mem, &self.queue.segments, buf)
    }

    /// Appends the next `n` bytes of the chain to `buf`. `false`, with nothing moved in the chain, if
    /// fewer are left or guest memory cannot be read; a part may have been appended then.
    pub fn read_onto(&mut self, buf: &mut Vec<u8>, n: usize) -> bool {
        self.cursor
            .read_onto(&self.queue.mem, &self.queue.segments, buf, n)
    }

    /// Steps over `n` bytes. `false`, with nothing moved, if fewer are left.
    pub fn skip(&mut self, n: usize) -> bool {
        self.cursor.skip(&self.queue.segments, n)
    }

    /// Writes as much of `buf` as the chain has room for and returns how much that was.
    pub fn write(&mut self, buf: &[u8]) -> usize {
        let n = self
            .cursor
            .write(&self.queue.mem, &self.queue.segments, buf);
        // A chain has at most u32::MAX bytes, and each is written once.
        self.written += n as u32;
        n
    }

    /// Returns the chain to the driver, with the number of bytes that were written to it.
    pub fn complete(self) {}
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let queue = &mut *self.queue;
        if queue
            .queue
            .add_used(&queue.mem, self.head, self.written)
            .is_err()
        {
            queue.break_ring(RingFault::Inaccessible);
        }
    }
}

#[cfg(test)]
#[path = "queue_test.rs"]
mod tests;
