//! What a relay needs, on either side of it.
//!
//! A relay stands between this VM's connection and a client of its own that keeps the same
//! protocol: it is the host here and the guest there. It passes credit on end to end, so passing
//! output on must release nothing:
//!
//! ```text
//!  guest ── output ──► host::Conn ── take_forwarded ──► relay ──► guest::Conn ══► the client's
//!  guest ◄─ OutputAck ─ host::Conn ◄─ release_forwarded ─ relay ◄─ acked ─────── ◄══ host::Conn
//! ```
//!
//! The client's own end is made by [`Conn::facing_relay`].

use bytes::Bytes;

use super::{Config, Conn};
use crate::credit::CreditError;
use crate::frame::{CHUNK_CHARGE, Stream};
use crate::id::ExecId;
use crate::message::StdinError;

impl Conn {
    /// As [`new`](Self::new), for a client whose other end is a relay instead of a guest. What
    /// is different:
    ///
    /// * output is acknowledged to the last unit also after the execution's end, and before the
    ///   next request: only so does the relay know when the slot is free;
    /// * an execution that runs may fail, and a failure may say that the VM is gone.
    #[must_use]
    pub fn facing_relay(config: Config) -> Self {
        Self {
            relayed: true,
            ..Self::new(config)
        }
    }

    /// Whether a chunk of this stream is held.
    #[must_use]
    pub fn has_output(&self, id: ExecId, stream: Stream) -> bool {
        self.execs.get(&id).is_some_and(|exec| match stream {
            Stream::Stdout => !exec.stdout.chunks.is_empty(),
            Stream::Stderr => !exec.stderr.chunks.is_empty(),
        })
    }

    /// Takes a whole chunk of one stream to pass it on. Releases nothing: its bytes and its
    /// [`CHUNK_CHARGE`] stay charged, and the slot stays held, until
    /// [`release_forwarded`](Self::release_forwarded) or [`forget`](Self::forget). As long as that
    /// is so it is kept here, too, for whoever takes the execution over when the relay's reader is
    /// gone: see [`leave`](Self::leave). Pass it on as one chunk, so that both ends count the same
    /// units.
    pub fn take_forwarded(&mut self, id: ExecId, stream: Stream) -> Option<Bytes> {
        let exec = self.execs.get_mut(&id)?;
        let data = exec.output(stream).pass()?;
        let units = (data.len() as u64).saturating_add(u64::from(CHUNK_CHARGE));
        // Bounded by the window that the chunk was charged to.
        exec.forwarded = exec.forwarded.saturating_add(units);
        Some(data)
    }

    /// The reader behind the relay has consumed each stream up to this byte, counted from the
    /// execution's start: stdout, then stderr. Gives the units that this releases.
    ///
    /// # Errors
    /// It goes back, or beyond what was passed on; nothing was released. Whoever says so is not
    /// believed again: let go of the execution.
    pub fn release_forwarded(
        &mut self,
        id: ExecId,
        consumed: [u64; 2],
    ) -> Result<u64, CreditError> {
        let exec = self.execs.get_mut(&id).ok_or(CreditError)?;
        // Both are looked at first: a refusal must leave nothing half done.
        let [stdout, stderr] = consumed;
        let stdout = exec.stdout.newly_consumed(stdout).ok_or(CreditError)?;
        let stderr = exec.stderr.newly_consumed(stderr).ok_or(CreditError)?;
        let units = exec.stdout.drop_passed(stdout);
        let units = units.saturating_add(exec.stderr.drop_passed(stderr));
        exec.release_passed(units);
        self.schedule_ack(id);
        self.settle(id);
        Ok(units)
    }

    /// The program's process id, once and when it runs, if nobody was told of its start yet.
    pub fn take_started(&mut self, id: ExecId) -> Option<u32> {
        let exec = self.execs.get_mut(&id)?;
        core::mem::take(&mut exec.started_event).then_some(exec.pid)?
    }

    /// Stdin bytes that the guest has written into the command's stdin so far; a
    /// [`STDIN_ACKED`](super::what::STDIN_ACKED) notice tells when there are more.
    #[must_use]
    pub fn stdin_acked(&self, id: ExecId) -> u64 {
        self.execs
            .get(&id)
            .map_or(0, |exec| exec.input.credit.acked())
    }

    /// Takes the report that the command no longer reads its stdin, once, apart from the other
    /// events.
    pub fn take_stdin_error(&mut self, id: ExecId) -> Option<StdinError> {
        let (_, error) = self.execs.get_mut(&id)?.stdin_event.take()?;
        Some(error)
    }
}

#[cfg(test)]
#[path = "forward_test.rs"]
mod tests;
