//! SHA-256, to compare streams that are too long to print.

use std::fmt::Write as _;

use sha2::Digest as _;

/// The hash of bytes that come in pieces, and how many there were.
#[derive(Debug, Clone, Default)]
pub struct Sha256 {
    state: sha2::Sha256,
    seen: u64,
}

impl Sha256 {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.seen += bytes.len() as u64;
    }

    /// How many bytes there were.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The hash as 64 hexadecimal digits, as `sha256sum` prints it.
    #[must_use]
    pub fn finish(self) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.state.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// The hash of these bytes, as 64 hexadecimal digits.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(bytes);
    hash.finish()
}

#[cfg(test)]
#[path = "digest_test.rs"]
mod tests;
