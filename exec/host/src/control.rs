//! Signals and kill, for a handle that stays and one that moved away.

use forebay_exec_proto::host;
use forebay_exec_proto::host::Terminal;

use crate::ExecId;
use crate::error::ControlError;
use crate::hub::Inner;
use crate::lease::Lease;
use crate::signal::Signal;
use crate::sync::Arc;

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
        loop {
            // Registered before looking, so that nothing in between is missed. Nobody holds a
            // turn while waiting: a future that is never polled again delays no other.
            let changed = self.hub().control_room.notified();
            let sent = self.step(|inner, id| try_signal(inner, id, signal));
            if let Some(outcome) = sent {
                return outcome;
            }
            changed.await;
        }
    }
}

/// Puts the signal in line; `None` while there is no room.
fn try_signal(inner: &mut Inner, id: ExecId, signal: Signal) -> Option<Result<(), ControlError>> {
    let Err(error) = inner.conn.signal(id, signal.number()) else {
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
