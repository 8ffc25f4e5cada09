//! Port 0 from the guest: the console's output, into the sink.
//!
//! The kernel writes to the console with interrupts off and spins until the host has used the
//! buffer, so chains are served at the kick and always completed, malformed ones too.

use forebay_virtio::{ChainVerdict, RingFault, Virtqueue};

use crate::gate::ConsoleSink;
use crate::queues::MAX_CHAIN_BYTES;

/// Bytes moved out of guest memory at a time.
const PIECE: usize = 4096;

/// The console's output queue.
#[derive(Debug, Default)]
pub(crate) struct ConsolePort {
    pub(crate) from_guest: Option<Virtqueue>,
    /// Chains taken.
    pub(crate) chains: u64,
    /// Bytes given to the sink.
    pub(crate) bytes: u64,
    /// Chains whose bytes were dropped: malformed, or absurdly long.
    pub(crate) dropped_chains: u64,
}

impl ConsolePort {
    /// Moves one chain into `sink` and returns its number of bytes; `None` if there is none.
    pub(crate) fn serve_one(&mut self, sink: &dyn ConsoleSink) -> Result<Option<usize>, RingFault> {
        let Some(queue) = &mut self.from_guest else {
            return Ok(None);
        };
        let Some(chain) = queue.peek()? else {
            return Ok(None);
        };
        self.chains += 1;
        let len = chain.remaining();
        if chain.fault().is_some() || len > MAX_CHAIN_BYTES {
            self.dropped_chains += 1;
            chain.consume(ChainVerdict::Drop).complete();
            return Ok(Some(0));
        }
        let mut taken = chain.consume(ChainVerdict::Use);
        let mut piece = [0; PIECE];
        while taken.remaining() > 0 {
            let (piece, _) = piece.split_at_mut(taken.remaining().min(PIECE));
            if !taken.read(piece) {
                break;
            }
            sink.write(piece);
        }
        taken.complete();
        self.bytes += len as u64;
        Ok(Some(len))
    }
}
