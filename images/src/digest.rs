//! SHA-256 of files, and content keys: the names under which built things are cached.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// The SHA-256 of a file's contents, as 64 hexadecimal digits.
///
/// # Errors
/// [`Error::File`] if it cannot be read.
pub fn file_sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(Error::file("open", path))?;
    let mut hash = Sha256::new();
    copy_into(&mut file, &mut hash).map_err(Error::file("read", path))?;
    Ok(hex(&hash.finalize()))
}

/// A digest over everything that decides what a build gives.
///
/// Parts are length-prefixed, so that two different lists of parts never give the same key.
#[derive(Debug, Clone)]
pub struct ContentKey(Sha256);

impl ContentKey {
    /// Starts a key of one kind of thing (`"kernel"`), so that kinds never share keys.
    pub fn new(kind: &str) -> Self {
        Self(Sha256::new()).text(kind)
    }

    /// Adds a part.
    #[must_use]
    pub fn text(mut self, part: &str) -> Self {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part.as_bytes());
        self
    }

    /// Adds a file's contents (not its name, owner, mode or time).
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read.
    pub fn file(self, path: &Path) -> Result<Self> {
        Ok(self.text(&file_sha256(path)?))
    }

    /// The whole key, 64 hexadecimal digits.
    pub fn digest(self) -> String {
        hex(&self.0.finalize())
    }

    /// The first 16 digits: enough to tell cache entries apart, short enough to read.
    pub fn short(self) -> String {
        let mut key = self.digest();
        key.truncate(16);
        key
    }
}

fn copy_into(reader: &mut impl Read, hash: &mut Sha256) -> io::Result<()> {
    let mut block = vec![0; 256 * 1024];
    loop {
        match reader.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(n) => hash.update(&block[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
#[path = "digest_test.rs"]
mod tests;
