//! Copying memory into a file without its zeros: pages that are zero are left out, so that the file,
//! which was empty, has holes there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::PAGE;
use super::runs::Runs;
use crate::error::HostError;

/// How much is copied at a time: it should stay in the processor's cache between two steps.
const CHUNK: u64 = 128 << 10;

/// Is told how many bytes have been dealt with, of how many; its error is the end of the copy.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<(), HostError>;

/// Makes `to` an empty file of `len` bytes, all of it a hole, and lets `fill` fill it. After an error
/// it is empty, so that nobody takes it for a memory file.
pub(super) fn fill(
    to: &File,
    len: u64,
    fill: impl FnOnce() -> Result<(), HostError>,
) -> Result<(), HostError> {
    let resize = |len| {
        to.set_len(len)
            .map_err(|e| HostError::on("ftruncate", len, e))
    };
    resize(0)?;
    resize(len).and_then(|()| fill()).inspect_err(|_| {
        // The error that is already on its way says more.
        let _ = to.set_len(0);
    })
}

/// Copies `runs`, which `read` reads at an offset, to the same offsets of `to`. Pages of zeros are
/// left out. `step` is told of each piece's length, and may end it there. Returns how many bytes
/// were written.
pub(super) fn copy(
    runs: &Runs,
    to: &File,
    read: impl Fn(&mut [u8], u64) -> Result<(), HostError>,
    mut step: impl FnMut(u64) -> Result<(), HostError>,
) -> Result<u64, HostError> {
    let mut buffer = vec![0; CHUNK as usize];
    let mut written = 0;
    for run in runs.iter() {
        let mut at = run.start;
        while at < run.end {
            let len = (run.end - at).min(CHUNK);
            let Some(piece) = buffer.get_mut(..len as usize) else {
                break; // it is at most CHUNK
            };
            read(piece, at)?;
            written +=
                write_sparse(to, piece, at).map_err(|e| HostError::new("write memory", e))?;
            at += len;
            step(len)?;
        }
    }
    Ok(written)
}

/// Writes the pages of `bytes` that are not zero, neighbours at once.
fn write_sparse(to: &File, bytes: &[u8], offset: u64) -> io::Result<u64> {
    const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
    let is_zero = |page: &[u8]| page == ZEROS;
    let mut written = 0;
    let mut at = offset;
    let pages: Vec<_> = bytes.chunks(PAGE as usize).collect();
    for group in pages.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
        let len: usize = group.iter().map(|page| page.len()).sum();
        if group.first().is_some_and(|page| !is_zero(page)) {
            let start = (at - offset) as usize;
            to.write_all_at(bytes.get(start..start + len).unwrap_or_default(), at)?;
            written += len as u64;
        }
        at += len as u64;
    }
    Ok(written)
}

/// Where `file` has data, as far as its file system tells. `len` is how long it is to be.
pub(super) fn data(file: &File, len: u64) -> Result<Runs, HostError> {
    let mut runs = Runs::default();
    let mut at = 0;
    while at < len {
        let start = seek(file, SeekFrom::Data(at), len)?;
        let end = if start < len {
            seek(file, SeekFrom::Hole(start), len)?
        } else {
            len
        };
        // File systems may have smaller units than pages.
        runs.push(start / PAGE * PAGE..end.next_multiple_of(PAGE).min(len));
        at = end.max(at + 1);
    }
    Ok(runs)
}

/// Large holes of `file`, of `len` bytes; not all of them. The larger the file, the larger the units
/// in which it is looked at, so that this takes no longer: whoever starts a VM waits for it.
pub(super) fn large_holes(file: &File, len: u64) -> Result<Runs, HostError> {
    /// Smallest unit, in bytes, and how many of them at most.
    const UNIT: u64 = 2 << 20;
    const UNITS: u64 = 512;
    let unit = len.div_ceil(UNITS).next_multiple_of(UNIT);
    let mut holes = Runs::default();
    let mut at = 0;
    while at < len {
        let next = seek(file, SeekFrom::Data(at), len)?;
        let end = next / unit * unit;
        let end = if next == len { len } else { end };
        if end > at {
            holes.push(at..end);
        }
        at = end.max(at) + unit;
    }
    Ok(holes)
}

/// Where the next data or hole begins, `len` if there is none.
fn seek(file: &File, to: SeekFrom, len: u64) -> Result<u64, HostError> {
    match (rustix::fs::seek(file, to), to) {
        (Ok(at), _) => Ok(at.min(len)),
        (Err(Errno::NXIO), _) => Ok(len),
        // The file system does not know: all of it is data.
        (Err(Errno::INVAL), SeekFrom::Data(at)) => Ok(at),
        (Err(Errno::INVAL), _) => Ok(len),
        (Err(e), _) => Err(HostError::new("find the data of a memory file", e)),
    }
}

/// Lets the file system copy `runs` of `from` to the same offsets of `to`, which may cost it no
/// block. Returns what it did not copy, because it cannot between these two.
pub(super) fn clone_data(
    runs: &Runs,
    from: &File,
    to: &File,
    mut step: impl FnMut(u64) -> Result<(), HostError>,
) -> Result<Runs, HostError> {
    /// So that the progress is seen to move.
    const MOST: u64 = 64 << 20;
    let mut rest = Runs::default();
    let mut able = true;
    for run in runs.iter() {
        let (mut source, mut target) = (run.start, run.start);
        while able && source < run.end {
            let len = (run.end - source).min(MOST) as usize;
            let at = source;
            let failed = |e| HostError::on("copy memory file", format!("at byte {at}"), e);
            match rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), len) {
                Ok(0) => return Err(failed(cut())),
                Ok(copied) => step(copied as u64)?,
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => able = false,
                Err(Errno::INTR) => {}
                Err(e) => return Err(failed(e.into())),
            }
        }
        rest.push(source..run.end);
    }
    Ok(rest)
}

/// The error of a file that ends where it did not.
pub(super) fn cut() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the memory file is shorter than it was: something cut it while it was in use",
    )
}

#[cfg(test)]
#[path = "sparse_test.rs"]
mod tests;
