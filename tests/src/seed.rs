//! Random numbers that can be had again.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_guest_helper::pattern::Pattern;

/// Sets the seed, in decimal or as `0x…`.
const VARIABLE: &str = "FOREBAY_SEED";

/// A generator that says what it was seeded with. Its bytes are those of the [`Pattern`].
#[derive(Debug, Clone)]
pub struct Seed {
    start: u64,
    pattern: Pattern,
}

impl Seed {
    /// Seeded from `FOREBAY_SEED`, else from the clock.
    ///
    /// # Panics
    /// If the variable holds no number.
    #[must_use]
    pub fn chosen() -> Self {
        Self::new(match std::env::var(VARIABLE) {
            Ok(text) => Self::parse(&text)
                .unwrap_or_else(|| panic!("{VARIABLE} is {text:?}; it has to be a number")),
            Err(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(1, |now| now.as_nanos() as u64),
        })
    }

    /// [`chosen`](Self::chosen), and printed with what it is for, so that a failure's output says how
    /// to repeat it.
    ///
    /// # Panics
    /// As `chosen`.
    #[must_use]
    pub fn announced(purpose: &str) -> Self {
        let seed = Self::chosen();
        println!("{purpose}: {VARIABLE}={seed} repeats it");
        seed
    }

    /// A seed as a person writes it, in decimal or as `0x…`.
    pub(crate) fn parse(text: &str) -> Option<u64> {
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// With this seed.
    #[must_use]
    pub fn new(start: u64) -> Self {
        Self {
            start,
            pattern: Pattern::new(start),
        }
    }

    /// What it was seeded with.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        let mut word = [0; 8];
        self.pattern.fill(&mut word);
        u64::from_le_bytes(word)
    }

    /// The next number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.pattern.take(len)
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.start)
    }
}

#[cfg(test)]
#[path = "seed_test.rs"]
mod tests;
