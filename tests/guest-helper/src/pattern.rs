//! A seeded stream of pseudo-random bytes that both sides can make at any length.
//!
//! The generator is SplitMix64 (Steele, Lea and Flood, 2014): word `k` of the stream is the mix of
//! `seed + (k + 1) · 0x9e3779b97f4a7c15`, written with its lowest byte first. The bytes do not
//! depend on the sizes of the pieces in which they are taken. Not for secrets.

/// The stream of one seed.
#[derive(Debug, Clone)]
pub struct Pattern {
    state: u64,
    /// The word that was begun, and how many of its bytes are used.
    word: [u8; 8],
    used: usize,
}

impl Pattern {
    /// The stream of `seed`, at its first byte.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            state: seed,
            word: [0; 8],
            used: 8,
        }
    }

    /// Fills `bytes` with the next bytes of the stream.
    pub fn fill(&mut self, mut bytes: &mut [u8]) {
        let begun = self.word.get(self.used..).unwrap_or_default();
        let now = begun.len().min(bytes.len());
        let (head, rest) = bytes.split_at_mut(now);
        head.copy_from_slice(&begun[..now]);
        self.used += now;
        bytes = rest;
        let mut words = bytes.chunks_exact_mut(8);
        for chunk in &mut words {
            chunk.copy_from_slice(&next(&mut self.state).to_le_bytes());
        }
        let tail = words.into_remainder();
        if !tail.is_empty() {
            self.word = next(&mut self.state).to_le_bytes();
            self.used = tail.len();
            tail.copy_from_slice(&self.word[..self.used]);
        }
    }

    /// The next `n` bytes of the stream.
    #[must_use]
    pub fn take(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.fill(&mut bytes);
        bytes
    }

    /// Compares `bytes` with the next bytes of the stream. Returns the index of the first
    /// difference, if there is one; the stream has moved past all of `bytes` either way.
    pub fn first_difference(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut expected = [0; 4096];
        let mut before = 0;
        let mut found = None;
        for piece in bytes.chunks(expected.len()) {
            let expected = &mut expected[..piece.len()];
            self.fill(expected);
            if found.is_none() && piece != expected {
                let at = piece
                    .iter()
                    .zip(&*expected)
                    .position(|(got, want)| got != want);
                found = at.map(|at| before + at);
            }
            before += piece.len();
        }
        found
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
#[path = "pattern_test.rs"]
mod tests;
