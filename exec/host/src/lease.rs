//! What keeps an execution's command from being killed: every handle part holds the lease, and
//! the last one to go ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay_exec_proto::host::{Conn, ControlError, Terminal};
use forebay_exec_proto::{ExecId, Stream};

use crate::attach;
use crate::error::ExecError;
use crate::failure::{Failure, FailureKind};
use crate::hub::{Hub, Inner};
use crate::output::ExecOutput;
use crate::status::ExitStatus;
use crate::sync::{self, AtomicBool, Semaphore};
use crate::waiting::Half;

/// One execution, shared by its handle, readers, sink and controls.
///
/// Dropping the last one kills the command unless it was detached, discards its output, and
/// leaves the slot to be freed by the guest's confirmation; unless it was left.
#[derive(Debug)]
pub(crate) struct Lease {
    hub: Arc<Hub>,
    id: ExecId,
    detached: AtomicBool,
    /// It is whoever's who adopts it: nothing that is left of this lease does anything to it.
    left: AtomicBool,
    /// Whose write or close it is: callers in the order in which they came.
    pub(crate) stdin_turn: Semaphore,
}

impl Lease {
    pub(crate) fn new(hub: Arc<Hub>, id: ExecId) -> sync::Arc<Self> {
        sync::Arc::new(Self {
            hub,
            id,
            detached: AtomicBool::new(false),
            left: AtomicBool::new(false),
            stdin_turn: Semaphore::new(1),
        })
    }

    pub(crate) fn id(&self) -> ExecId {
        self.id
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Does one thing with this execution under the hub's lock.
    pub(crate) fn step<T>(&self, change: impl FnOnce(&mut Inner, ExecId) -> T) -> T {
        self.hub.step(|inner| change(inner, self.id))
    }

    /// Looks for something under the hub's lock; if it is not there, `half` is woken when that
    /// may have changed. Looking and registering are one step, so no wake-up is lost.
    pub(crate) fn poll<T>(
        &self,
        cx: &Context<'_>,
        half: Half,
        look: impl FnOnce(&mut Inner, ExecId) -> Option<T>,
    ) -> Poll<T> {
        // Cloning and dropping a waker run its executor's code, so both happen out here; what
        // is not needed comes back.
        let mut waker = Some(cx.waker().clone());
        self.step(|inner, id| match look(inner, id) {
            Some(found) => Poll::Ready(found),
            None => {
                inner.register(id, half, &mut waker);
                Poll::Pending
            }
        })
    }

    /// Waits for the end. Output may still be unread then.
    pub(crate) async fn ended(&self) -> Result<ExitStatus, ExecError> {
        let end = std::future::poll_fn(|cx| {
            self.poll(cx, Half::Exit, |inner, id| End::of(&inner.conn, id))
        });
        let result = end.await.result(Vec::new(), Vec::new());
        result.map(|output| output.status)
    }

    /// From here on the command outlives its handles.
    pub(crate) fn detach(&self) {
        self.detached.store(true, Ordering::Relaxed);
    }

    /// The command has a terminal, which a size can be meant for.
    pub(crate) fn on_terminal(&self) -> bool {
        self.step(|inner, id| inner.conn.on_terminal(id))
    }

    /// Lets go of the execution for whoever adopts it. Facing a relay this only asks.
    pub(crate) fn leave(&self) -> Result<(), ControlError> {
        let (here, waiting) = self.step(Inner::leave)?;
        self.left.store(here, Ordering::Relaxed);
        // The wakers go outside the lock.
        drop(waiting);
        Ok(())
    }

    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    pub(crate) fn discard(&self, stream: Stream) {
        if self.is_left() {
            return;
        }
        self.step(|inner, id| inner.conn.discard(id, stream));
    }

    pub(crate) fn kill(&self) {
        // Refused only when it has ended, which is what was wanted.
        let _ = self.step(|inner, id| inner.conn.kill(id));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_left() {
            return;
        }
        let kill = !self.detached.load(Ordering::Relaxed);
        // Whoever waited cannot any more; the wakers go outside the lock.
        let waiting = self.hub.step(|inner| inner.release(self.id, kill));
        drop(waiting);
    }
}

/// What whoever waits for a result has waited for.
#[derive(Debug)]
pub(crate) enum End {
    /// The end.
    Known(Terminal),
    /// It was given this time, killed, and its end not confirmed in the time for that.
    Unconfirmed(Duration),
}

impl End {
    /// `None` while it is waited for.
    pub(crate) fn of(conn: &Conn, id: ExecId) -> Option<Self> {
        match conn.terminal(id) {
            Some(terminal) => Some(Self::Known(terminal.clone())),
            None => conn.unconfirmed(id).map(Self::Unconfirmed),
        }
    }

    /// The result, with the output that was collected.
    pub(crate) fn result(self, stdout: Vec<u8>, stderr: Vec<u8>) -> Result<ExecOutput, ExecError> {
        let terminal = match self {
            Self::Known(terminal) => terminal,
            Self::Unconfirmed(limit) => {
                return Err(ExecError::Unconfirmed {
                    limit,
                    stdout,
                    stderr,
                });
            }
        };
        let output = ExecOutput {
            status: outcome(&terminal)?,
            stdout,
            stderr,
        };
        match terminal {
            Terminal::TimedOut { limit, .. } => Err(ExecError::TimedOut {
                limit,
                output: Box::new(output),
            }),
            _ => Ok(output),
        }
    }
}

/// What an end is: an exit, also one by its deadline, or that there was none.
pub(crate) fn outcome(terminal: &Terminal) -> Result<ExitStatus, ExecError> {
    match terminal {
        Terminal::Exited(status) | Terminal::TimedOut { status, .. } => {
            let mut status = ExitStatus::from_wire(status).ok_or_else(|| {
                ExecError::Protocol(Failure::protocol(
                    "the guest reported an exit that no process can have",
                ))
            })?;
            status.timed_out = matches!(terminal, Terminal::TimedOut { .. });
            Ok(status)
        }
        Terminal::Failed(failure) => {
            if let Some(refused) = attach::capacity(failure) {
                return Err(refused);
            }
            let failure = Failure::from(failure);
            Err(match failure.kind {
                FailureKind::Protocol => ExecError::Protocol(failure),
                _ => ExecError::NotStarted(failure),
            })
        }
        Terminal::Lost(reason) => Err(ExecError::VmGone {
            reason: reason.clone(),
        }),
    }
}
