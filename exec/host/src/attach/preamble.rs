//! The server's first words on a connection: who it is and what the VM's limits are.
//!
//! ```text
//!  0            8              12         16       20                 40
//!  ┌────────────┬──────────────┬──────────┬────────┬──────────────────┬─────────┐
//!  │ "forebay\n"│ generation   │ answer   │ most   │ five limits      │ zero …  │
//!  │ 8 bytes    │ u32 LE       │ u32 LE   │ u32 LE │ 5 × u32 LE       │ to 64   │
//!  └────────────┴──────────────┴──────────┴────────┴──────────────────┴─────────┘
//! ```
//!
//! `answer` is 0 for a client that is taken and 1 for one too many, `most` the number of clients
//! that are possible. The layout up to `generation` never changes, so that two versions can tell
//! each other apart. What follows is the client's bootstrap.

use forebay_exec_proto::Limits;

/// Version of what a client and the server say to each other beyond what a port carries: since 2 an
/// acknowledgement says what of each stream it stands for, and executions are left and adopted.
pub(super) const GENERATION: u32 = 2;

/// Bytes of a preamble.
pub(super) const LEN: usize = 64;

const MAGIC: &[u8; 8] = b"forebay\n";
const WELCOME: u32 = 0;
const FULL: u32 = 1;

/// What the server says to a new client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preamble {
    /// Go ahead under these limits.
    Welcome(Limits),
    /// This many clients are attached, and no more are possible.
    Full { most: u32 },
}

/// Why a preamble is none that this end can go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Something else listens there.
    Foreign,
    /// It speaks this other generation.
    Generation(u32),
}

impl Preamble {
    pub(super) fn encode(self) -> [u8; LEN] {
        let (answer, most, limits) = match self {
            Self::Welcome(limits) => (WELCOME, 0, limits),
            Self::Full { most } => (FULL, most, Limits::default()),
        };
        let numbers = [
            GENERATION,
            answer,
            most,
            limits.max_executions,
            limits.input_limit,
            limits.output_limit,
            limits.stdin_chunk_size,
            limits.output_chunk_size,
        ];
        let bytes = MAGIC
            .iter()
            .copied()
            .chain(numbers.into_iter().flat_map(u32::to_le_bytes));
        let mut preamble = [0; LEN];
        for (to, from) in preamble.iter_mut().zip(bytes) {
            *to = from;
        }
        preamble
    }

    pub(super) fn decode(bytes: &[u8; LEN]) -> Result<Self, Unusable> {
        let Some((MAGIC, rest)) = bytes.split_first_chunk() else {
            return Err(Unusable::Foreign);
        };
        let (words, _) = rest.as_chunks::<4>();
        let mut numbers = words.iter().copied().map(u32::from_le_bytes);
        let mut next = || numbers.next().unwrap_or_default();
        match next() {
            GENERATION => {}
            other => return Err(Unusable::Generation(other)),
        }
        let (answer, most) = (next(), next());
        let limits = Limits {
            max_executions: next(),
            input_limit: next(),
            output_limit: next(),
            stdin_chunk_size: next(),
            output_chunk_size: next(),
        };
        match answer {
            WELCOME => Ok(Self::Welcome(limits)),
            FULL => Ok(Self::Full { most }),
            _ => Err(Unusable::Foreign),
        }
    }
}

#[cfg(test)]
#[path = "preamble_test.rs"]
mod tests;
