//! Signals, sizes and kill, for a handle that stays and one that moved away.

use forebay_exec_proto::host;
use forebay_exec_proto::host::{Conn, Terminal};

use crate::ExecId;
use crate::error::ControlError;
use crate::hub::Inner;
use crate::lease::Lease;
use crate::signal::Signal;
use crate::sync::Arc;
use crate::terminal::TerminalSize;

/// Controls an execution whose handle is elsewhere. Clones are equal.
///
/// As long as one lives, the command is not killed by the drop of its handle; see
/// [`ExecHandle`](crate::ExecHandle).
#[derive(Debug, Clone)]
pub struct ExecControl {
    lease: Arc<Lease>,
}

impl ExecControl {
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        Self { lease }
    }

    /// The execution's id.
    #[must_use]
    pub fn id(&self) -> ExecId {
        self.lease.id()
    }

    /// Sends a signal to the command's process group.
    ///
    /// Ready when the signal is in line for the guest. At most sixteen of a VM wait there; a
    /// further caller waits for room. Callers that wait try in the order in which they began
    /// to, but hold no place: one that is not polled is overtaken and delays nobody. Dropping
    /// the future before it is ready sends nothing. Signals that are awaited one after another
    /// arrive in that order.
    ///
    /// # Errors
    /// [`ControlError::Ended`] when the execution has ended, also while waiting; it never
    /// reaches another process. [`ControlError::VmGone`], likewise.
    pub async fn signal(&self, signal: Signal) -> Result<(), ControlError> {
        self.lease.signal(signal).await
    }

    /// Gives the command's [terminal](crate::Exec::terminal) another size, which sends SIGWINCH to
    /// its foreground process group.
    ///
    /// Waits for room and may be cancelled as [`signal`](Self::signal), and sizes that are awaited one
    /// after another arrive in that order. Over an attach socket they wait apart from signals while the
    /// VM's queue is full: signals go first, and of the sizes only the newest is kept.
    ///
    /// # Errors
    /// [`ControlError::NoTerminal`]; [`ControlError::InvalidSize`] for one without rows or
    /// columns; else as [`signal`](Self::signal).
    pub async fn resize(&self, size: TerminalSize) -> Result<(), ControlError> {
        self.lease.resize(size).await
    }

    /// Kills everything in the execution, descendants included, with SIGKILL.
    ///
    /// Unlike tokio's `Child::kill` this neither waits nor fails: it needs no room in any
    /// queue, is remembered before the program has started, and does nothing when the execution
    /// has ended. How it ended is told by its exit.
    pub fn kill(&self) {
        self.lease.kill();
    }
}

impl Lease {
    pub(crate) async fn signal(&self, signal: Signal) -> Result<(), ControlError> {
        self.control(|conn, id| conn.signal(id, signal.number()))
            .await
    }

    pub(crate) async fn resize(&self, size: TerminalSize) -> Result<(), ControlError> {
        if !self.on_terminal() {
            return Err(ControlError::NoTerminal);
        }
        if !size.is_possible() {
            let TerminalSize { rows, cols } = size;
            return Err(ControlError::InvalidSize { rows, cols });
        }
        self.control(|conn, id| conn.resize(id, size.into())).await
    }

    async fn control(
        &self,
        put: impl Fn(&mut Conn, ExecId) -> Result<(), host::ControlError>,
    ) -> Result<(), ControlError> {
        loop {
            // Registered before looking, so that nothing in between is missed. Nobody holds a
            // turn while waiting: a future that is never polled again delays no other.
            let changed = self.hub().control_room.notified();
            let sent = self.step(|inner, id| {
                let outcome = put(&mut inner.conn, id);
                in_line(inner, id, outcome)
            });
            if let Some(outcome) = sent {
                return outcome;
            }
            changed.await;
        }
    }
}

/// What putting a control in line came to; `None` while there is no room.
fn in_line(
    inner: &Inner,
    id: ExecId,
    outcome: Result<(), host::ControlError>,
) -> Option<Result<(), ControlError>> {
    let Err(error) = outcome else {
        return Some(Ok(()));
    };
    if let Some(Terminal::Lost(reason)) = inner.conn.terminal(id) {
        let reason = reason.clone();
        return Some(Err(ControlError::VmGone { reason }));
    }
    match error {
        host::ControlError::Full => None,
        // A control exists only once the program has started.
        host::ControlError::Ended | host::ControlError::NotStarted => {
            Some(Err(ControlError::Ended))
        }
        host::ControlError::Closed => Some(Err(ControlError::VmGone {
            reason: inner.gone_reason(),
        })),
    }
}

#[cfg(test)]
#[path = "control_test.rs"]
mod tests;
