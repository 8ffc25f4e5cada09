//! Numbers out of the text files by which the kernel tells them, in `/proc` and in control groups.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{pread, retry_on_intr};

/// Bytes read of a file: the lines that matter come early in all of them.
const ROOM: usize = 512;

/// The beginning of one such file.
pub(crate) struct Figures {
    room: [u8; ROOM],
    length: usize,
}

impl Figures {
    /// Reads the file at `path` below `dir`. What a command put over it is not followed: that could
    /// make PID 1 wait.
    pub(crate) fn open(dir: BorrowedFd<'_>, path: &str) -> Option<Self> {
        let within = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat2(dir, path, flags, Mode::empty(), within).ok()?;
        Self::read(file)
    }

    /// Reads an open file from its beginning.
    pub(crate) fn read(file: impl AsFd) -> Option<Self> {
        let mut room = [0; ROOM];
        let length = retry_on_intr(|| pread(&file, &mut room, 0)).ok()?;
        Some(Self { room, length })
    }

    /// The number behind `label`, which begins a line; an empty one for a file that is a number.
    pub(crate) fn get(&self, label: &str) -> Option<u64> {
        let text = self.room.get(..self.length)?;
        let mut lines = text.split(|byte| *byte == b'\n');
        let number = lines.find_map(|line| line.strip_prefix(label.as_bytes()))?;
        std::str::from_utf8(number).ok()?.parse().ok()
    }
}

#[cfg(test)]
#[path = "figures_test.rs"]
mod tests;
