//! Contents of files on their way into an image: one temporary file without a name, so that a build
//! that is killed leaves nothing.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

/// Takes contents, one behind the other.
#[derive(Debug)]
pub(crate) struct Spool {
    file: Arc<File>,
    len: u64,
}

impl Spool {
    /// An empty one, in a directory of a file system with room.
    pub(crate) fn within(directory: &Path) -> io::Result<Self> {
        Ok(Self {
            file: Arc::new(tempfile::tempfile_in(directory)?),
            len: 0,
        })
    }

    /// Takes all that `reader` gives.
    pub(crate) fn take(&mut self, mut reader: impl Read) -> io::Result<Stretch> {
        let offset = self.len;
        let len = io::copy(&mut reader, &mut &*self.file)?;
        (&*self.file).flush()?;
        self.len += len;
        Ok(Stretch {
            file: Arc::clone(&self.file),
            offset,
            len,
        })
    }
}

/// The contents of one file in a spool.
#[derive(Debug, Clone)]
pub(crate) struct Stretch {
    file: Arc<File>,
    offset: u64,
    len: u64,
}

impl Stretch {
    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Reads it from its beginning.
    pub(crate) fn read(&self) -> impl Read + use<> {
        StretchReader::of(self)
    }

    /// As [`read`](Self::read), for readers that skip.
    pub(crate) fn seekable(&self) -> impl Read + Seek + use<> {
        StretchReader::of(self)
    }

    /// A part of it, if it is that long.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Option<Self> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        fits.then(|| Self {
            file: Arc::clone(&self.file),
            offset: self.offset + offset,
            len,
        })
    }

    /// A part of a file that is not a spool, as long as nobody changes the file.
    pub(crate) fn of_file(file: Arc<File>, offset: u64, len: u64) -> Self {
        Self { file, offset, len }
    }
}

struct StretchReader {
    stretch: Stretch,
    /// Where in it the next byte is.
    at: u64,
}

impl StretchReader {
    fn of(stretch: &Stretch) -> Self {
        Self {
            stretch: stretch.clone(),
            at: 0,
        }
    }
}

impl Read for StretchReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.stretch.len.saturating_sub(self.at);
        let most = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let part = buffer.get_mut(..most).unwrap_or_default();
        let read = self
            .stretch
            .file
            .read_at(part, self.stretch.offset + self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for StretchReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.stretch.len.checked_add_signed(by),
        };
        // Reading behind the end finds nothing, as with files.
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
