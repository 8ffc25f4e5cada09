//! The agent port's bytes, both ways.
//!
//! What the driver of a virtio-console port asks of its reader and writer:
//! * one `write` is one chain, so a buffer of whole frames goes out with one `write` of at most
//!   32 KiB, and never with `writev`;
//! * a `read` gives at most 4 KiB, however much was asked for;
//! * before the host has opened its end, `read` gives 0 and epoll reports a hang-up that cannot be
//!   masked. Epoll is therefore edge-triggered, and 0 means "lost" only after something was heard;
//! * a `write` may find the ring full (`EAGAIN`) or the kernel short of a large block (`ENOMEM`):
//!   the one buffer is kept, and reading goes on.

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

/// Where the write buffer stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// It is empty.
    All,
    /// The ring is full; epoll will tell when it is not.
    Blocked,
    /// The kernel had no memory for the write; nothing will tell, try again shortly.
    Starved,
}

/// The open port and the one buffer on its way to it.
pub(crate) struct Link {
    port: OwnedFd,
    /// Something has come from the host since the port was opened.
    heard: bool,
    input: Box<[u8]>,
    output: Box<[u8]>,
    /// Bytes of whole frames in `output`.
    filled: usize,
    /// Bytes of them that were written.
    written: usize,
}

impl Link {
    /// A link over `port`, which must not block.
    pub(crate) fn new(port: OwnedFd) -> Self {
        let buffer = || vec![0; FRAME_MAX].into_boxed_slice();
        Self {
            port,
            heard: false,
            input: buffer(),
            output: buffer(),
            filled: 0,
            written: 0,
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

    /// The free end of the write buffer. Only for an empty or partly filled buffer that has not
    /// begun to leave.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.output.get_mut(self.filled..).unwrap_or_default()
    }

    /// `frame` bytes were put at the start of [`room`](Self::room).
    pub(crate) fn commit(&mut self, frame: usize) {
        self.filled = self.filled.saturating_add(frame).min(self.output.len());
    }

    /// Whether nothing waits to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Writes the buffer.
    pub(crate) fn flush(&mut self) -> Result<Flushed, Lost> {
        while let Some(rest) = self
            .output
            .get(self.written..self.filled)
            .filter(|r| !r.is_empty())
        {
            match write(&self.port, rest) {
                Ok(0) => return Err(Lost::Closed),
                Ok(taken) => self.written = self.written.saturating_add(taken),
                Err(Errno::AGAIN) => return Ok(Flushed::Blocked),
                Err(Errno::NOMEM) => return Ok(Flushed::Starved),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => return Err(Lost::Closed),
                Err(errno) => return Err(Lost::Port(errno)),
            }
        }
        self.filled = 0;
        self.written = 0;
        Ok(Flushed::All)
    }
}
