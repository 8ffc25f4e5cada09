//! The last page of a memory file, behind the guest's memory: which snapshot it belongs to. Without
//! it a file of the same length but another moment, or another VM, could not be told from it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::PAGE;
use crate::error::HostError;
use crate::random;

/// So that nobody takes the page for guest memory.
const MAGIC: [u8; 8] = *b"\x89FBAYMEM";

/// The identity of one memory file. No other has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileMark([u8; Self::LEN]);

impl FileMark {
    /// Length in bytes.
    pub(crate) const LEN: usize = 16;
    /// What it takes in the file, in bytes.
    pub(crate) const ROOM: u64 = PAGE;

    /// One that there has not been.
    pub(crate) fn new() -> Result<Self, HostError> {
        Ok(Self(random::bytes()?))
    }

    /// Writes it behind the `len` bytes of a guest's memory.
    pub(crate) fn write(self, file: &File, len: u64) -> Result<(), HostError> {
        let mut page = [0; PAGE as usize];
        for (to, from) in page.iter_mut().zip(MAGIC.iter().chain(&self.0)) {
            *to = *from;
        }
        file.write_all_at(&page, len)
            .map_err(|e| HostError::new("write memory", e))
    }

    /// What stands behind the `len` bytes of a guest's memory; `None` if that is no mark.
    pub(super) fn read(file: &File, len: u64) -> io::Result<Option<Self>> {
        let mut found = [0; MAGIC.len() + Self::LEN];
        file.read_exact_at(&mut found, len)?;
        let mark = found.split_first_chunk();
        Ok(mark.and_then(|(magic, id)| (*magic == MAGIC).then_some(Self(id.try_into().ok()?))))
    }
}

impl From<[u8; Self::LEN]> for FileMark {
    fn from(id: [u8; Self::LEN]) -> Self {
        Self(id)
    }
}

impl From<FileMark> for [u8; FileMark::LEN] {
    fn from(mark: FileMark) -> Self {
        mark.0
    }
}
