//! Random numbers that can be had again.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Sets the seed, in decimal or as `0x…`.
const VARIABLE: &str = "FOREBAY_SEED";

/// A generator (splitmix64) that says what it was seeded with.
#[derive(Debug, Clone)]
pub struct Seed {
    start: u64,
    state: u64,
}

impl Seed {
    /// Seeded from `FOREBAY_SEED`, else from the clock. Prints the seed with what it is for, so
    /// that a failure's output says how to repeat it.
    ///
    /// # Panics
    /// If the variable holds no number.
    #[must_use]
    pub fn announced(purpose: &str) -> Self {
        let start = match std::env::var(VARIABLE) {
            Ok(text) => number(&text)
                .unwrap_or_else(|| panic!("{VARIABLE} is {text:?}; it has to be a number")),
            Err(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(1, |now| now.as_nanos() as u64),
        };
        println!("{purpose}: {VARIABLE}={start:#x} repeats it");
        Self::new(start)
    }

    /// With this seed.
    #[must_use]
    pub fn new(start: u64) -> Self {
        Self {
            start,
            state: start,
        }
    }

    /// What it was seeded with.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = len.div_ceil(8);
        let mut bytes: Vec<u8> = (0..words).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.start)
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
#[path = "seed_test.rs"]
mod tests;
