//! Moving bytes out of a chain's buffers and into them.

use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

use crate::chain::Segment;

/// A place in a chain's segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor {
    segment: usize,
    offset: usize,
    /// Bytes from here to the chain's end.
    pub(crate) left: usize,
}

impl Cursor {
    pub(crate) fn new(left: usize) -> Self {
        Self {
            segment: 0,
            offset: 0,
            left,
        }
    }

    /// Takes the next contiguous piece of at most `limit` bytes. `None` at the end of the chain.
    fn next_piece(&mut self, segments: &[Segment], limit: usize) -> Option<(GuestAddress, usize)> {
        let segment = segments.get(self.segment)?;
        let len = (segment.len - self.offset).min(limit).min(self.left);
        if len == 0 {
            return None;
        }
        // Inside the segment, which was checked to lie inside guest memory.
        let address = segment.address.unchecked_add(self.offset as u64);
        self.left -= len;
        self.offset += len;
        if self.offset == segment.len {
            self.segment += 1;
            self.offset = 0;
        }
        Some((address, len))
    }

    pub(crate) fn read(
        &mut self,
        mem: &GuestMemoryMmap,
        segments: &[Segment],
        mut buf: &mut [u8],
    ) -> bool {
        if buf.len() > self.left {
            return false;
        }
        let mut next = *self;
        while let Some((address, len)) = next.next_piece(segments, buf.len()) {
            let (piece, rest) = std::mem::take(&mut buf).split_at_mut(len);
            if mem.read_slice(piece, address).is_err() {
                return false;
            }
            buf = rest;
        }
        *self = next;
        true
    }

    pub(crate) fn read_onto(
        &mut self,
        mem: &GuestMemoryMmap,
        segments: &[Segment],
        buf: &mut Vec<u8>,
        n: usize,
    ) -> bool {
        if n > self.left {
            return false;
        }
        let mut left = n;
        let mut next = *self;
        while let Some((address, len)) = next.next_piece(segments, left) {
            if mem.write_all_volatile_to(address, buf, len).is_err() {
                return false;
            }
            left -= len;
        }
        *self = next;
        true
    }

    pub(crate) fn skip(&mut self, segments: &[Segment], n: usize) -> bool {
        if n > self.left {
            return false;
        }
        let mut left = n;
        while let Some((_, len)) = self.next_piece(segments, left) {
            left -= len;
        }
        true
    }

    pub(crate) fn write(
        &mut self,
        mem: &GuestMemoryMmap,
        segments: &[Segment],
        buf: &[u8],
    ) -> usize {
        let mut rest = buf;
        while let Some((address, len)) = self.next_piece(segments, rest.len()) {
            let (piece, behind) = rest.split_at(len);
            if mem.write_slice(piece, address).is_err() {
                break;
            }
            rest = behind;
        }
        buf.len() - rest.len()
    }
}
