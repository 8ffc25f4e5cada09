//! The agent port's bytes, both ways.
//!
//! What the driver of a virtio-console port asks of its reader and writer:
//! * one `write` is one chain, so a buffer of whole frames goes out with one `write` of at most
//!   32 KiB, and never with `writev`. There are two buffers, for what one read of a full pipe gives;
//! * a `read` gives at most 4 KiB, however much was asked for;
//! * before the host has opened its end, `read` gives 0 and epoll reports a hang-up that cannot be
//!   masked. Epoll is therefore edge-triggered, and 0 means "lost" only after something was heard;
//! * a `write` may find the ring full (`EAGAIN`) or the kernel short of a large block (`ENOMEM`):
//!   what is in the buffers is kept, and reading goes on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_exec_proto::guest::Conn;
use forebay_exec_proto::{FRAME_MAX, PeerFault};
use rustix::io::{Errno, read, write};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Lost {
    /// The host's end is closed.
    #[error("the host closed the agent port")]
    Closed,
    /// The port failed.
    #[error("the agent port failed: {0}")]
    Port(Errno),
    /// The host's bytes make no sense.
    #[error(transparent)]
    Peer(#[from] PeerFault),
}

/// What a read of the port gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Bytes; there may be more.
    Some,
    /// Nothing now; epoll will tell.
    Nothing,
}

/// Where the writes stand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Both are empty.
    All,
    /// The ring is full; epoll will tell when it is not.
    Blocked,
    /// The kernel had no memory for the write; nothing will tell, try again shortly.
    Starved,
}

/// The open port and the two writes on their way to it.
pub(crate) struct Link {
    port: OwnedFd,
    /// Something has come from the host since the port was opened.
    heard: bool,
    input: Box<[u8]>,
    /// In the order in which they are written.
    writes: [Write; 2],
}

/// Whole frames that go out with one `write`.
struct Write {
    bytes: Box<[u8]>,
    /// Bytes of whole frames in it.
    filled: usize,
    /// Bytes of them that were written.
    written: usize,
}

/// Which of the two writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The one that is filled by whatever is due.
    First,
    /// The one behind it, for more of the stream that filled the first.
    Second,
}

fn buffer() -> Box<[u8]> {
    vec![0; FRAME_MAX].into_boxed_slice()
}

impl Write {
    fn new() -> Self {
        Self {
            bytes: buffer(),
            filled: 0,
            written: 0,
        }
    }

    fn room(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.filled..).unwrap_or_default()
    }

    /// What is still to be written.
    fn rest(&self) -> Option<&[u8]> {
        let rest = self.bytes.get(self.written..self.filled);
        rest.filter(|rest| !rest.is_empty())
    }
}

impl Link {
    /// A link over `port`, which must not block.
    pub(crate) fn new(port: OwnedFd) -> Self {
        Self {
            port,
            heard: false,
            input: buffer(),
            writes: [Write::new(), Write::new()],
        }
    }

    /// For epoll.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }

    /// Reads once and hands the bytes to the connection.
    pub(crate) fn receive(&mut self, conn: &mut Conn) -> Result<Received, Lost> {
        match read(&self.port, &mut *self.input) {
            Ok(0) if self.heard => Err(Lost::Closed),
            Ok(0) | Err(Errno::AGAIN) => Ok(Received::Nothing),
            Ok(got) => {
                self.heard = true;
                conn.handle_bytes(self.input.get(..got).unwrap_or_default())?;
                Ok(Received::Some)
            }
            Err(Errno::INTR) => Ok(Received::Some),
            Err(errno) => Err(Lost::Port(errno)),
        }
    }

    /// The free ends of both writes. Only while neither has begun to leave; the first has no room once
    /// something is in the second.
    pub(crate) fn rooms(&mut self) -> [&mut [u8]; 2] {
        let [first, second] = &mut self.writes;
        let first = match second.filled {
            0 => first.room(),
            _ => Default::default(),
        };
        [first, second.room()]
    }

    /// The free end of one of them.
    pub(crate) fn room(&mut self, which: Which) -> &mut [u8] {
        let [first, second] = self.rooms();
        match which {
            Which::First => first,
            Which::Second => second,
        }
    }

    /// `frame` bytes were put at the start of its [`room`](Self::room).
    pub(crate) fn commit(&mut self, which: Which, frame: usize) {
        let [first, second] = &mut self.writes;
        let write = match which {
            Which::First => first,
            Which::Second => second,
        };
        write.filled = write.filled.saturating_add(frame).min(write.bytes.len());
    }

    /// Whether nothing waits to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.iter().all(|write| write.filled == 0)
    }

    /// Writes what is in the buffers.
    pub(crate) fn flush(&mut self) -> Result<Flushed, Lost> {
        for buffer in &mut self.writes {
            while let Some(rest) = buffer.rest() {
                match write(&self.port, rest) {
                    Ok(0) => return Err(Lost::Closed),
                    Ok(taken) => buffer.written = buffer.written.saturating_add(taken),
                    Err(Errno::AGAIN) => return Ok(Flushed::Blocked),
                    Err(Errno::NOMEM) => return Ok(Flushed::Starved),
                    Err(Errno::INTR) => {}
                    Err(Errno::PIPE) => return Err(Lost::Closed),
                    Err(errno) => return Err(Lost::Port(errno)),
                }
            }
        }
        for buffer in &mut self.writes {
            (buffer.filled, buffer.written) = (0, 0);
        }
        Ok(Flushed::All)
    }
}

#[cfg(test)]
#[path = "link_test.rs"]
mod tests;
