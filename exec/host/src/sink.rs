//! Writing a command's stdin.
//!
//! A write is submitted to the connection as it is and frames are cut from it as the command
//! makes room: no byte is copied into a queue here. One write is under way at a time. Two ways
//! of waiting lead there, and they share the connection's one place for a pending write:
//!
//! * [`ExecSink::write`] and [`ExecSink::close`] take turns, in call order;
//! * `AsyncWrite` needs `&mut`, so no turn can be taken meanwhile; its accepted bytes count as
//!   written, and what is called after it waits until they are handed over.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use forebay_exec_proto::host;
use forebay_exec_proto::host::Terminal;
use tokio::io::AsyncWrite;

use crate::ExecId;
use crate::error::WriteError;
use crate::hub::Inner;
use crate::lease::Lease;
use crate::sync::{Arc, SemaphorePermit};
use crate::waiting::Half;

/// Most that [`ExecSink::write_all`] copies ahead of the channel, in bytes.
const PIECE: usize = 64 * 1024;

/// Writes a command's stdin; from [`ExecHandle::take_stdin`](crate::ExecHandle::take_stdin).
///
/// A write is ready when its last byte was handed to the channel towards the guest, which needs
/// the command to read: at most `input_limit` bytes (64 KiB unless the VM was given another
/// limit) are under way beside what the guest's pipe holds. Ready does not mean that the command
/// has read them.
///
/// Writes that run at the same time (`&self` allows it) go one after another in the order in
/// which they were first polled, and the bytes of each are contiguous. One that is neither
/// polled nor dropped holds up those behind it, and no other execution. The end of stdin comes
/// after every byte written before it.
///
/// The sink's own methods have names that tokio's `AsyncWriteExt` has too, and do more. Rust
/// prefers a type's own methods, so with that trait in scope `sink.write(…)` is still the one
/// below; generic code such as `tokio::io::copy` uses the trait.
///
/// | call | ready when | of `data` | cancelled |
/// |---|---|---|---|
/// | [`ExecSink::write`], gives `()` | handed over | all, not copied | a prefix arrives |
/// | [`ExecSink::write_all`] | handed over | all, copied as it leaves | a prefix arrives |
/// | [`ExecSink::close`] | all before it handed over | | stays closed |
/// | `AsyncWriteExt::write`, gives a count | accepted | at most one chunk, copied | nothing arrives |
/// | `AsyncWriteExt::write_all` | accepted | all, copied | a prefix arrives |
/// | `AsyncWriteExt::flush` | what was accepted is handed over | | nothing changes |
/// | `AsyncWriteExt::shutdown` | as `close` | | stays closed |
///
/// Accepted bytes are delivered even if nothing is called any more. They are at most one chunk
/// (16 KiB unless the VM was given another limit), so `write_all` of the trait is ready when all
/// but the last chunk was handed over, and an error that comes later shows at the next call.
///
/// Dropping the sink closes stdin, behind the bytes that were accepted.
#[derive(Debug)]
pub struct ExecSink {
    lease: Arc<Lease>,
    /// `AsyncWrite` accepted bytes that were not seen to be handed over.
    unflushed: bool,
}

impl ExecSink {
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        Self {
            lease,
            unflushed: false,
        }
    }

    /// The execution's id.
    #[must_use]
    pub fn id(&self) -> ExecId {
        self.lease.id()
    }

    /// Writes all of `data`, without copying it. Empty data does nothing.
    ///
    /// Dropping the future takes back what was not handed over: what arrives is a prefix, and
    /// the next write follows it.
    ///
    /// # Errors
    /// [`WriteError::Closed`] after a close; [`WriteError::Broken`] when the command no longer
    /// reads; [`WriteError::Ended`]; [`WriteError::VmGone`]. A prefix may have been delivered.
    pub async fn write(&self, data: impl Into<Bytes>) -> Result<(), WriteError> {
        self.write_pieces([data.into()]).await
    }

    /// As [`write`](Self::write), for bytes that cannot be given away; they are copied piece
    /// by piece as they leave, at most 64 KiB ahead.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_all(&self, data: &[u8]) -> Result<(), WriteError> {
        self.write_pieces(data.chunks(PIECE).map(Bytes::copy_from_slice))
            .await
    }

    /// Closes stdin after every byte of the writes called before. Ready when those were handed
    /// over.
    ///
    /// The close is committed when the future is first polled and stays so if it is dropped:
    /// later writes fail with [`WriteError::Closed`], later closes succeed. A command that
    /// ended, or closed its stdin itself, is no error.
    ///
    /// # Errors
    /// [`WriteError::VmGone`].
    pub async fn close(&self) -> Result<(), WriteError> {
        commit_close(&self.lease);
        // The semaphore is never closed, so this only waits for the writes before.
        let _turn = self.lease.stdin_turn.acquire().await;
        poll_fn(|cx| self.lease.poll(cx, Half::Stdin, closed)).await
    }

    async fn write_pieces(
        &self,
        pieces: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), WriteError> {
        let mut pieces = pieces
            .into_iter()
            .filter(|piece| !piece.is_empty())
            .peekable();
        if pieces.peek().is_none() {
            return Ok(());
        }
        let mut write = Write::enter(&self.lease)?;
        write.turn = self.lease.stdin_turn.acquire().await.ok();
        for piece in pieces {
            write.submit(piece).await?;
            write.handed_over().await?;
        }
        Ok(())
    }
}

impl ExecSink {
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
}

impl Drop for ExecSink {
    fn drop(&mut self) {
        commit_close(&self.lease);
    }
}

/// One call of `write`, from its first poll to its end or cancellation.
struct Write<'a> {
    lease: &'a Lease,
    /// A piece was submitted and not seen to be handed over.
    submitted: bool,
    /// Given back last, so that nobody submits before this write has cleaned up behind itself.
    turn: Option<SemaphorePermit<'a>>,
}

impl<'a> Write<'a> {
    /// Counts the write in, unless the sink was closed or there is nobody to read it.
    fn enter(lease: &'a Lease) -> Result<Self, WriteError> {
        lease.step(|inner, id| {
            if let Err(error) = inner.conn.stdin_state(id) {
                return Err(refusal(inner, id, error));
            }
            match inner.sink(id) {
                Some(sink) if !sink.closing => {
                    sink.writes = sink.writes.saturating_add(1);
                    Ok(())
                }
                _ => Err(WriteError::Closed),
            }
        })?;
        Ok(Self {
            lease,
            submitted: false,
            turn: None,
        })
    }

    async fn submit(&mut self, piece: Bytes) -> Result<(), WriteError> {
        poll_fn(|cx| {
            self.lease
                .poll(cx, Half::Stdin, |inner, id| submit(inner, id, &piece))
        })
        .await?;
        self.submitted = true;
        Ok(())
    }

    async fn handed_over(&mut self) -> Result<(), WriteError> {
        poll_fn(|cx| self.lease.poll(cx, Half::Stdin, handed_over)).await?;
        self.submitted = false;
        Ok(())
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        self.lease.step(|inner, id| {
            if self.submitted {
                inner.conn.cancel_write(id);
            }
            let Some(sink) = inner.sink(id) else { return };
            sink.writes = sink.writes.saturating_sub(1);
            if sink.closing && sink.writes == 0 {
                // Refused only when there is no stdin left to close.
                let _ = inner.conn.close_stdin(id);
            }
        });
    }
}

impl AsyncWrite for ExecSink {
    /// Accepts at most one stdin chunk (16 KiB unless the VM was given another limit), which is
    /// copied, and only when nothing else is pending.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let accepted = self.lease.poll(cx, Half::Stdin, |inner, id| {
            if inner.sink(id).is_none_or(|sink| sink.closing) {
                return Some(Err(WriteError::Closed));
            }
            if inner.conn.pending_stdin(id) > 0 {
                return None;
            }
            let most = usize::try_from(inner.conn.limits().stdin_chunk_size).unwrap_or(usize::MAX);
            let data = buf.get(..most).unwrap_or(buf);
            let accepted = submit(inner, id, &Bytes::copy_from_slice(data))?;
            Some(accepted.map(|()| data.len()))
        });
        self.unflushed |= matches!(accepted, Poll::Ready(Ok(_)));
        accepted.map_err(io::Error::from)
    }

    /// Ready when everything accepted was handed to the channel.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.unflushed {
            return Poll::Ready(Ok(()));
        }
        let flushed = self.lease.poll(cx, Half::Stdin, handed_over);
        self.unflushed = flushed.is_pending();
        flushed.map_err(io::Error::from)
    }

    /// [`ExecSink::close`].
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        commit_close(&self.lease);
        self.lease
            .poll(cx, Half::Stdin, closed)
            .map_err(io::Error::from)
    }
}

/// Takes no further write; the EOF follows the writes that were called before.
fn commit_close(lease: &Lease) {
    if lease.is_left() {
        return;
    }
    lease.step(|inner, id| {
        let Some(sink) = inner.sink(id) else { return };
        sink.closing = true;
        if sink.writes == 0 {
            // Refused only when there is no stdin left to close.
            let _ = inner.conn.close_stdin(id);
        }
    });
}

/// Makes `piece` the pending write, `None` while another one is.
fn submit(inner: &mut Inner, id: ExecId, piece: &Bytes) -> Option<Result<(), WriteError>> {
    match inner.conn.write_stdin(id, piece.clone()) {
        Ok(()) => {
            if let Some(sink) = inner.sink(id) {
                sink.handed_over = false;
            }
            Some(Ok(()))
        }
        Err(host::WriteError::Busy) => None,
        Err(error) => Some(Err(refusal(inner, id, error))),
    }
}

/// Whether the pending write went to the channel whole.
fn handed_over(inner: &mut Inner, id: ExecId) -> Option<Result<(), WriteError>> {
    if inner.sink(id).is_some_and(|sink| sink.handed_over) {
        return Some(Ok(()));
    }
    match inner.conn.stdin_state(id) {
        Ok(()) | Err(host::WriteError::Busy | host::WriteError::Closed) => None,
        Err(error) => Some(Err(refusal(inner, id, error))),
    }
}

/// Whether nothing is left that a close has to wait for.
fn closed(inner: &mut Inner, id: ExecId) -> Option<Result<(), WriteError>> {
    if let Some(Terminal::Lost(reason)) = inner.conn.terminal(id) {
        return Some(Err(WriteError::VmGone {
            reason: reason.clone(),
        }));
    }
    (inner.conn.pending_stdin(id) == 0).then_some(Ok(()))
}

fn refusal(inner: &Inner, id: ExecId, error: host::WriteError) -> WriteError {
    if let Some(Terminal::Lost(reason)) = inner.conn.terminal(id) {
        return WriteError::VmGone {
            reason: reason.clone(),
        };
    }
    match error {
        host::WriteError::Closed => WriteError::Closed,
        host::WriteError::Broken(error) => WriteError::Broken((&error).into()),
        // Only a caller that handles `Busy` itself gets it, and all here do.
        host::WriteError::Ended | host::WriteError::Busy => WriteError::Ended,
    }
}

#[cfg(test)]
#[path = "sink_test.rs"]
mod tests;
