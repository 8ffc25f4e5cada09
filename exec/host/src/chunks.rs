//! Allocations of whole chunks, used again.
//!
//! Output at full rate allocates a chunk in one thread and frees it in another, some thousand times
//! a second. An allocator that gives the memory back to the system in between makes every chunk cost
//! its page faults once more, which was a tenth of what a stream costs. So the last few allocations
//! are kept, for as long as an execution is active. Chunks that are not whole, and everything else, go
//! straight to the allocator: an allocation is never larger than what the chunk was charged.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use forebay_exec_proto::CHUNK_CHARGE;

/// Allocations kept at most: a default window, for a reader that has fallen behind and catches up.
const KEPT: usize = 64;

/// The allocations that wait for their next use.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// Bytes of a whole chunk.
    whole: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Since the last release something was allocated.
    keeping: bool,
    free: Vec<Vec<u8>>,
}

impl Chunks {
    /// For chunks of at most `whole` bytes.
    pub(crate) fn new(whole: usize) -> Arc<Self> {
        Arc::new(Self {
            whole,
            kept: Mutex::default(),
        })
    }

    /// An empty buffer with room for `len` bytes and less than a chunk's charge more.
    pub(crate) fn room_for(&self, len: usize) -> Vec<u8> {
        if !self.is_whole(len) {
            return Vec::with_capacity(len);
        }
        let mut kept = self.kept();
        kept.keeping = true;
        let used = kept.free.pop();
        drop(kept);
        used.unwrap_or_else(|| Vec::with_capacity(self.whole))
    }

    /// Nothing is going on: gives everything back, and keeps nothing until the next chunk comes.
    pub(crate) fn release(&self) {
        // Taken out under the lock and freed behind it.
        drop(std::mem::take(&mut *self.kept()));
    }

    /// The same bytes; the last drop of them keeps the allocation, if it is one of ours.
    pub(crate) fn shared(self: &Arc<Self>, bytes: Vec<u8>) -> Bytes {
        if bytes.capacity() != self.whole {
            return Bytes::from(bytes.into_boxed_slice());
        }
        Bytes::from_owner(Chunk {
            bytes,
            home: Arc::clone(self),
        })
    }

    /// A quarter of the charge pays for room that stays empty, as where a frame is a power of two
    /// with its header; the rest is for bookkeeping.
    fn is_whole(&self, len: usize) -> bool {
        len <= self.whole && self.whole - len <= CHUNK_CHARGE as usize / 4
    }

    /// Held for a push or a pop; taken by whoever drops a chunk, under whatever lock of theirs.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Chunk {
    bytes: Vec<u8>,
    home: Arc<Chunks>,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.clear();
        let mut kept = self.home.kept();
        if kept.keeping && kept.free.len() < KEPT {
            kept.free.push(bytes);
        }
    }
}

#[cfg(test)]
#[path = "chunks_test.rs"]
mod tests;
