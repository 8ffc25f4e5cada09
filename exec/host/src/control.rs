//! Signals and kill, for a handle that stays and one that moved away.

use std::sync::Arc;

use forebay_exec_proto::host;
use forebay_exec_proto::host::Terminal;

use crate::ExecId;
use crate::error::ControlError;
use crate::lease::Lease;
use crate::signal::Signal;

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
    /// further caller waits for its turn, in call order. Dropping the future before it is
    /// ready sends nothing. Signals of one caller arrive in their order.
    ///
    /// # Errors
    /// [`ControlError::Ended`] when the execution has ended, which can be while waiting; it
    /// never reaches another process. [`ControlError::VmGone`].
    pub async fn signal(&self, signal: Signal) -> Result<(), ControlError> {
        self.lease.signal(signal).await
    }

    /// Kills everything in the execution, descendants included, with SIGKILL.
    ///
    /// Unlike tokio's `Child::kill` this neither waits nor
    /// fails: it needs no room in any queue, is remembered before the program has started, and
    /// does nothing when the execution has ended. How it ended is told by its exit.
    pub fn kill(&self) {
        self.lease.kill();
    }
}

impl Lease {
    pub(crate) async fn signal(&self, signal: Signal) -> Result<(), ControlError> {
        // The one whose turn it is waits for room, the others for their turn, so that nobody
        // is overtaken. The semaphore is never closed; if it were, order alone would be lost.
        let _turn = self.hub().control_turn.acquire().await;
        loop {
            // Registered before looking, so that nothing in between is missed.
            let room = self.hub().control_room.notified();
            let refused = self.step(|inner, id| {
                let error = inner.conn.signal(id, signal.number()).err()?;
                Some(match (error, inner.conn.terminal(id)) {
                    (_, Some(Terminal::Lost(reason))) => Some(ControlError::VmGone {
                        reason: reason.clone(),
                    }),
                    (host::ControlError::Full, _) => None,
                    // A control exists only once the program has started.
                    (host::ControlError::Ended | host::ControlError::NotStarted, _) => {
                        Some(ControlError::Ended)
                    }
                    (host::ControlError::Closed, _) => Some(ControlError::VmGone {
                        reason: inner.gone_reason(),
                    }),
                })
            });
            match refused {
                None => return Ok(()),
                Some(Some(error)) => return Err(error),
                Some(None) => room.await,
            }
        }
    }
}
