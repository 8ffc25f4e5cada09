//! Layers as they are kept: plain, or compressed by gzip or zstd; told apart by their first bytes,
//! whatever their media type says. Bounds how much comes out.

use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use sha2::{Digest as _, Sha256};

use crate::digest::hex;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// What other compressions begin with, for the error.
const UNKNOWN: [(&[u8], &str); 3] = [
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"),
];
/// Frames of zstd that hold no data begin with one of 16 numbers from this on.
const SKIPPABLE: u32 = 0x184d_2a50;
/// What is looked at a time.
const BUFFER: usize = 128 * 1024;

/// The plain contents of a stream.
///
/// # Errors
/// Those of `reader`; later also [`io::ErrorKind::InvalidData`] where it is not what it began as.
pub(crate) fn plain<'a>(reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut reader = BufReader::with_capacity(BUFFER, reader);
    let begin = reader.fill_buf()?;
    if begin.starts_with(GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(reader)));
    }
    if begin.starts_with(&ZSTD)
        || begin
            .first_chunk()
            .is_some_and(|magic| is_skippable(*magic))
    {
        return Ok(Box::new(Zstd::Between(Some(reader))));
    }
    if let Some((_, name)) = UNKNOWN.iter().find(|(magic, _)| begin.starts_with(magic)) {
        let what = format!("it is compressed by {name}; gzip and zstd are understood");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(Box::new(reader))
}

fn is_skippable(magic: [u8; 4]) -> bool {
    u32::from_le_bytes(magic) & !0xf == SKIPPABLE
}

/// The frame that a magic number begins, which was read to tell it from others.
type Frame<R> = StreamingDecoder<Chain<Cursor<[u8; 4]>, R>, FrameDecoder>;

/// Frames of zstd, one after the other.
enum Zstd<R: Read> {
    Between(Option<R>),
    Frame(Box<Frame<R>>),
}

impl<R: Read> Zstd<R> {
    /// Begins the next frame with data; whether there is one.
    fn begin(&mut self, mut reader: R) -> io::Result<bool> {
        loop {
            let mut magic = [0; 4];
            if !read_or_end(&mut reader, &mut magic)? {
                return Ok(false);
            }
            if is_skippable(magic) {
                let mut len = [0; 4];
                reader.read_exact(&mut len)?;
                let len = u64::from(u32::from_le_bytes(len));
                io::copy(&mut reader.by_ref().take(len), &mut io::sink())?;
                continue;
            }
            let frame = StreamingDecoder::new(Cursor::new(magic).chain(reader))
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            *self = Self::Frame(Box::new(frame));
            return Ok(true);
        }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let reader = match self {
                Self::Frame(frame) => match frame.read(buffer)? {
                    0 => match std::mem::replace(self, Self::Between(None)) {
                        Self::Frame(frame) => Some(frame.into_inner().into_inner().1),
                        Self::Between(reader) => reader,
                    },
                    read => return Ok(read),
                },
                Self::Between(reader) => reader.take(),
            };
            let Some(reader) = reader else {
                return Ok(0);
            };
            if !self.begin(reader)? {
                return Ok(0);
            }
        }
    }
}

/// Fills a buffer, or finds the end where it would begin.
fn read_or_end(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut first = [0];
    loop {
        match reader.read(&mut first) {
            Ok(0) => return Ok(false),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if let Some((head, rest)) = buffer.split_first_mut() {
        *head = first[0];
        reader.read_exact(rest)?;
    }
    Ok(true)
}

/// Gives an error in the place of the byte after the last that is allowed: what expands without end
/// costs what was allowed.
#[derive(Debug)]
pub(crate) struct Bounded<'a, R> {
    pub(crate) inner: R,
    /// Counted down; several streams may share it.
    pub(crate) left: &'a mut u64,
    /// What it was, for the error.
    pub(crate) limit: u64,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        *self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            let what = format!("more than {} bytes come out of it", self.limit);
            io::Error::new(io::ErrorKind::FileTooLarge, what)
        })?;
        Ok(read)
    }
}

/// Takes the SHA-256 of what is read through it.
#[derive(Debug)]
pub(crate) struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
        }
    }

    /// Reads what is left and gives the digest of all, hexadecimal.
    pub(crate) fn finish(mut self) -> io::Result<String> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(hex(&self.hash.finalize()))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

#[cfg(test)]
#[path = "compression_test.rs"]
mod tests;
