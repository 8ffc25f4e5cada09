//! One output stream of an execution, as a byte stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use forebay_exec_proto::Stream;
use forebay_exec_proto::host::Read;
use futures_core::Stream as FuturesStream;
use tokio::io::{AsyncRead, ReadBuf};

use crate::ExecId;
use crate::hub::Inner;
use crate::lease::{Lease, outcome};
use crate::sync::Arc;
use crate::waiting::Half;

/// Most that one poll copies while it holds the hub's lock, in bytes.
const READ_MAX: usize = 64 * 1024;

/// Reads one output stream of a command: as [`AsyncRead`], or as a [`Stream`](FuturesStream) of
/// chunks that are not copied.
///
/// The end comes when the command has exited and everything was read. When the VM is gone, or
/// the guest broke the protocol, what had arrived is read first and then comes an error that
/// holds an [`ExecError`](crate::ExecError); it is never taken for the end.
///
/// Both streams of a command share one allowance (`output_limit`, 1 MiB unless the VM was given
/// another): reading one to its end while nobody reads the other can wait for ever, as it can
/// with two pipes. Read both at once, or drop the one that is not wanted.
///
/// Dropping the reader discards its stream, what has arrived and what will come, so that the
/// command never waits for it.
#[derive(Debug)]
pub struct ExecReader {
    lease: Arc<Lease>,
    stream: Stream,
}

impl ExecReader {
    pub(crate) fn new(lease: Arc<Lease>, stream: Stream) -> Self {
        Self { lease, stream }
    }

    /// Which of the two streams this is.
    #[must_use]
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// The execution's id.
    #[must_use]
    pub fn id(&self) -> ExecId {
        self.lease.id()
    }

    fn half(&self) -> Half {
        match self.stream {
            Stream::Stdout => Half::Stdout,
            Stream::Stderr => Half::Stderr,
        }
    }
}

impl Drop for ExecReader {
    fn drop(&mut self) {
        self.lease.discard(self.stream);
    }
}

impl AsyncRead for ExecReader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let room = buf.initialize_unfilled_to(buf.remaining().min(READ_MAX));
        let read = self.lease.poll(cx, self.half(), |inner, id| {
            match inner.conn.read(id, self.stream, room) {
                Read::Data(n) => Some(Ok(n)),
                Read::Empty => None,
                Read::End => Some(end(inner, id).map(|()| 0)),
            }
        });
        read.map(|outcome| outcome.map(|n| buf.advance(n)))
    }
}

impl FuturesStream for ExecReader {
    type Item = io::Result<Bytes>;

    /// Chunks as the guest sent them, at most `output_chunk_size` bytes each. After an error
    /// every further poll gives the error again.
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.lease.poll(cx, self.half(), |inner, id| {
            if let Some(chunk) = inner.conn.take_chunk(id, self.stream) {
                return Some(Some(Ok(chunk)));
            }
            inner.conn.terminal(id)?;
            Some(end(inner, id).err().map(Err))
        })
    }
}

/// What stands at the end of a stream of which everything was read.
fn end(inner: &Inner, id: ExecId) -> io::Result<()> {
    match inner.conn.terminal(id).map(outcome) {
        None | Some(Ok(_)) => Ok(()),
        Some(Err(error)) => Err(io::Error::from(error)),
    }
}

#[cfg(test)]
#[path = "reader_test.rs"]
mod tests;
