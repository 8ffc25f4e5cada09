//! Telling the reader of a stream at full rate less often.
//!
//! A reader that is faster than its command would be woken for every write of the guest, and a wake with
//! the switch to the reader and back is a sixth of all that such a write costs (docs/figures.md). So the
//! notice of bulk output is held back, and covers what follows.
//!
//! A chain of 32 KiB is as much as the guest's driver takes in one write
//! (`drivers/char/virtio_console.c`, `port_fops_write`): the agent had more to send than went into it,
//! and sends the rest at once. Bulk is what such a chain holds of a pipe that was not read to its end:
//! its frames of full size, and the last one, which the chain may have cut. A shorter one before others
//! is a short read, and is told at once. The notice of bulk comes
//!
//! * when a quarter of the window is under way, or 256 KiB where the window is wider than 1 MiB;
//! * with the first output that is not bulk, which is how a burst ends unless its length happens to
//!   fill its last chain, and with everything else that a notice is given of;
//! * [`WITHIN`] after the first that was held back, whatever the guest does. The time is not taken back
//!   when all were told before, which costs one look in so much time;
//! * when the guest stands still.
//!
//! So nothing is decided here about bytes or credit, only about when a reader that sleeps is told.
//! One that looks by itself finds all that has come. An application behind a relay is told by the
//! relay, which is such a reader; its own connection has frames, and no chains.

use alloc::collections::BTreeSet;
use core::mem;
use core::time::Duration;

use super::Conn;
use crate::frame::{FRAME_MAX, HEADER_LEN};
use crate::id::ExecId;

/// The longest for which a notice is held back: long enough for 256 KiB at 50 MiB/s. Of a slower stream
/// the reader is told at this pace.
pub const WITHIN: Duration = Duration::from_millis(5);

/// A window beyond which no more is held back.
const WIDEST: u32 = 1 << 20;

/// What is held back, and what the chain under way is like.
#[derive(Debug, Default)]
pub(super) struct Coalesced {
    chain: Chain,
    /// Executions of which a notice was held back since the last time that none was. They may have
    /// been told since.
    execs: BTreeSet<ExecId>,
    /// When they are told at last; `None` if there are none.
    due: Option<Duration>,
}

/// The chain whose frames are being judged.
#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    /// It is as long as any that the guest's driver makes.
    full: bool,
    /// Bytes of it behind the frame that was judged last.
    behind: usize,
}

impl Chain {
    /// A frame of `len` bytes begins, and the chain holds `rest` bytes behind its header.
    fn frame(&mut self, len: usize, rest: usize) {
        let here = rest.saturating_add(HEADER_LEN);
        self.full = here == FRAME_MAX || (self.full && here == self.behind);
        self.behind = rest.saturating_sub(len);
    }

    /// Whether the frame that was judged last, with this payload, is one of more to come. `chunk` is
    /// the largest payload of any; a sender may count the header in.
    fn is_bulk(self, len: usize, chunk: usize) -> bool {
        let whole = len.saturating_add(HEADER_LEN) >= chunk;
        let cut = self.behind == 0 && len.saturating_mul(4) >= chunk;
        self.full && (whole || cut)
    }
}

impl Conn {
    /// Takes note of the frame that is judged, to know its chain.
    pub(super) fn note_frame(&mut self, len: usize, rest: usize) {
        self.coalesced.chain.frame(len, rest);
    }

    /// Gives notice of output of this length, of which `bit` says where it is: now or later.
    pub(super) fn notice_output(&mut self, id: ExecId, bit: u16, len: usize) {
        let chunk = self.config.limits.output_chunk_size as usize;
        if self.relayed || !self.coalesced.chain.is_bulk(len, chunk) || !self.hold_back(id, bit) {
            self.notice(id, bit);
        }
    }

    /// Holds a notice back, unless so much is under way that it is due.
    fn hold_back(&mut self, id: ExecId, bit: u16) -> bool {
        let most = u64::from(self.config.limits.output_limit.min(WIDEST) / 4);
        let Some(exec) = self.execs.get_mut(&id) else {
            return false;
        };
        // Of one that is about to be told there is nothing to hold back.
        if exec.notice != 0 || exec.window.outstanding() >= most || self.time.is_held() {
            return false;
        }
        if exec.held_back == 0 {
            if self.coalesced.due.is_none() {
                self.coalesced.due = Some(self.time.now().saturating_add(WITHIN));
            }
            self.coalesced.execs.insert(id);
        }
        exec.held_back |= bit;
        true
    }

    /// A connection begins, and no chain of the last one goes on.
    pub(super) fn forget_chain(&mut self) {
        self.coalesced.chain = Chain::default();
    }

    /// When notices that are held back are due, in the connection's time.
    pub(super) fn coalesced_until(&self) -> Option<Duration> {
        self.coalesced.due
    }

    /// Gives every notice that is held back.
    pub(super) fn notice_held_back(&mut self) {
        self.coalesced.due = None;
        for id in mem::take(&mut self.coalesced.execs) {
            // Its bits go with any notice.
            if self.execs.get(&id).is_some_and(|exec| exec.held_back != 0) {
                self.notice(id, 0);
            }
        }
    }
}
