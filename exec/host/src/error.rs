//! What can go wrong, one enum per operation: running a command, writing its stdin, controlling
//! it, leaving it and taking it over, bringing the guest to rest, renewing it. "Never ran", "ran and exited" and "connection lost" are different things here, and a
//! program that exits with 1 is none of them.

use std::io;
use std::time::Duration;

use forebay_exec_proto::host as proto;

use crate::ExecId;
use crate::failure::{Failure, StdinError};
use crate::handle::ExecHandle;
use crate::output::ExecOutput;

/// A command could not be run, or its result cannot be known.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The VM runs as many executions as it may, over all clients together. Nothing was sent. A
    /// slot comes free when an execution has exited and its output was read or dropped.
    /// One that was [left](crate::ExecHandle::leave) keeps its slot until somebody has adopted it.
    #[error(
        "the VM already runs {active} of at most {limit} executions (max_executions){}; wait for \
         one to end and read or drop its output, or give the VM a higher limit",
        of_them_left(*.left)
    )]
    AtCapacity {
        /// The VM's `max_executions`.
        limit: u32,
        /// Executions that hold a slot now.
        active: u32,
        /// How many of them nobody holds, so that they can be [adopted](crate::Client::adopt).
        left: u32,
    },
    /// The encoded request is larger than one may be. Nothing was sent.
    #[error(
        "the request takes {size} bytes, at most {limit} are possible; shorten arguments and \
         environment, or send the data by stdin"
    )]
    TooLarge {
        /// Encoded size of the request in bytes, with 16 more for each argument and variable; that
        /// of its words alone if they are too large already.
        size: usize,
        /// Largest size in bytes.
        limit: usize,
    },
    /// The request cannot be given to any program. Nothing was sent.
    #[error("{field} {why}")]
    InvalidRequest {
        /// The part of the request, such as `args[2]` or `env`.
        field: String,
        /// What is wrong with it: its value, and what would do.
        why: String,
    },
    /// The request [demands bounds](crate::Exec::require_bounds), and the guest's agent keeps
    /// none. Nothing was sent.
    #[error(
        "the request demands bounds on what is outstanding, and the agent in this guest is too \
         old to keep any; rebuild the guest image"
    )]
    Unbounded,
    /// The agent in the guest has not reported ready yet. Nothing was sent.
    #[error("the guest's agent is not ready; wait for the VM's start to finish first")]
    NotReady,
    /// The program never ran; the guest says why.
    #[error("the program did not start: {0}")]
    NotStarted(Failure),
    /// The command took longer than its [timeout](crate::Exec::timeout) and was killed for it; the
    /// guest has confirmed its end.
    #[error("the command took longer than its timeout of {limit:?} and was killed")]
    TimedOut {
        /// The timeout.
        limit: Duration,
        /// How it ended, which is by SIGKILL, and the output that was collected: none unless the
        /// error comes from [`collect`](crate::ExecHandle::collect) or
        /// [`output`](crate::Exec::output).
        output: Box<ExecOutput>,
    },
    /// The command took longer than its [timeout](crate::Exec::timeout), and the guest did not
    /// confirm within 5 s that it is dead: it may still run, and holds its slot until the guest does
    /// or the VM ends. Of these 5 s none counts in which the guest waits for output to be read.
    #[error(
        "the command took longer than its timeout of {limit:?}, and the guest has not confirmed \
         within 5 s that it is dead; it may still run: if the VM answers nothing else either, stop \
         it"
    )]
    Unconfirmed {
        /// The timeout.
        limit: Duration,
        /// What was collected of its stdout so far, as with [`TimedOut`](Self::TimedOut).
        stdout: Vec<u8>,
        /// The same of its stderr.
        stderr: Vec<u8>,
    },
    /// The guest broke the protocol for this execution, which was killed. Other executions go on.
    #[error("the guest broke the exec protocol, the execution was killed: {0}")]
    Protocol(Failure),
    /// The VM, or the agent in it, is gone. Whether the command ran to its end is not known.
    #[error("the VM is gone: {reason}")]
    VmGone {
        /// Why.
        reason: String,
    },
}

fn of_them_left(left: u32) -> String {
    match left {
        0 => String::new(),
        left => format!(
            ", {left} of which were left and keep their places until they are adopted and have ended \
             (forebay adopt lists them and takes one over)"
        ),
    }
}

/// A write to a command's stdin, or its close, failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// This sink was closed before.
    #[error("stdin closed: the sink was closed before this write")]
    Closed,
    /// The command closed its stdin or stopped reading it. It goes on running.
    #[error("the command no longer reads its stdin: {0}")]
    Broken(StdinError),
    /// The execution has ended; its exit tells how.
    #[error("the execution has ended, nobody reads its stdin")]
    Ended,
    /// The VM, or the agent in it, is gone.
    #[error("the VM is gone: {reason}")]
    VmGone {
        /// Why.
        reason: String,
    },
}

/// A signal or a terminal's new size could not be sent.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The command runs without a [terminal](crate::Exec::terminal). Nothing was sent.
    #[error("the command has no terminal that could have a size")]
    NoTerminal,
    /// No terminal can have this size. Nothing was sent.
    #[error("a terminal of {rows} rows and {cols} columns: there must be at least one of each")]
    InvalidSize {
        /// Lines.
        rows: u16,
        /// Characters in a line.
        cols: u16,
    },
    /// The execution has ended. No other process was reached.
    #[error("the execution has ended")]
    Ended,
    /// The VM, or the agent in it, is gone.
    #[error("the VM is gone: {reason}")]
    VmGone {
        /// Why.
        reason: String,
    },
}

/// An execution was not left running for somebody else. Nothing happened to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaveError {
    /// A sink or control of it lives elsewhere, which could act on it when it is somebody else's.
    #[error(
        "a sink or control of the execution lives elsewhere; put the sink back into the handle, and \
         drop the control, before leaving"
    )]
    Shared(ExecHandle),
    /// Over an attach socket alone: of what was given to its stdin not all can go, since the command
    /// may be waiting for its output to be read.
    #[error(
        "not all of its stdin has gone, and the command may be waiting for its output to be read; \
         read some before leaving"
    )]
    Unread(ExecHandle),
    /// It has ended, or its VM is gone: the handle tells which, with the output that is left. Over
    /// an attach socket also: it is being killed, as by its timeout.
    #[error("the execution has ended, or is being killed: there is nothing to leave running")]
    Ended(ExecHandle),
}

impl LeaveError {
    /// The handle, which is as it was.
    #[must_use]
    pub fn into_handle(self) -> ExecHandle {
        match self {
            Self::Shared(handle) | Self::Unread(handle) | Self::Ended(handle) => handle,
        }
    }
}

/// An execution could not be taken over, or looked for. Nothing happened to it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// There is none with this id: it never was, or has ended and was read.
    #[error("the VM has no execution {id}; ids are those that leaving it gave")]
    Unknown {
        /// The id.
        id: ExecId,
    },
    /// Somebody holds it: it was not left, or was adopted before.
    #[error("execution {id} is somebody else's; only what was left running can be adopted")]
    Held {
        /// The id.
        id: ExecId,
    },
    /// It was detached, or discarded after a restore: its output is thrown away.
    #[error(
        "execution {id} was detached, and nobody can hold it again; leave what is to be adopted"
    )]
    Discarded {
        /// The id.
        id: ExecId,
    },
    /// This connection has as many executions as the VM allows, and none was adopted.
    #[error("the client already has {active} of at most {limit} executions (max_executions)")]
    AtCapacity {
        /// The VM's `max_executions`.
        limit: u32,
        /// Executions of this connection.
        active: u32,
    },
    /// The VM's program gave another reason.
    #[error("the execution was not handed over: {0}")]
    Refused(Failure),
    /// The VM, or the connection to it, is gone.
    #[error("the VM is gone: {reason}")]
    VmGone {
        /// Why.
        reason: String,
    },
}

impl From<proto::StartError> for AdoptError {
    fn from(error: proto::StartError) -> Self {
        match error {
            proto::StartError::AtCapacity { limit, active } => Self::AtCapacity { limit, active },
            proto::StartError::Closed(reason) => Self::VmGone { reason },
            other => Self::VmGone {
                reason: other.to_string(),
            },
        }
    }
}

/// The guest's commands were not frozen. Nothing is.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum QuiesceError {
    /// The guest's agent is too old to freeze anything. Nothing was sent.
    #[error("the guest's agent does not have the capability \"quiesce\"; rebuild the guest image")]
    Unsupported,
    /// This process has no more than a connection to a VM of another. Nothing was sent.
    #[error("the VM is another program's, which alone can quiesce it; ask that program")]
    Attached,
    /// It is quiesced already, or somebody else waits for that. Nothing was sent.
    #[error("the guest is quiesced, or is being so, already; thaw it first")]
    Busy,
    /// The guest says why something does not stand still.
    #[error("the guest could not be quiesced: {reason}")]
    Failed {
        /// Why, with what goes on.
        reason: String,
    },
    /// The guest did not say within two seconds more than this that everything stands still.
    #[error("the guest did not say within {limit:?} that it is quiesced; it may be overloaded")]
    TimedOut {
        /// What the agent was given.
        limit: Duration,
    },
    /// The VM, or the agent in it, is gone.
    #[error("the VM is gone: {reason}")]
    VmGone {
        /// Why.
        reason: String,
    },
}

/// A guest was not made another one. What was frozen still is, unless the agent says so later.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// As [`QuiesceError::Unsupported`].
    #[error("the guest's agent does not have the capability \"quiesce\"; rebuild the guest image")]
    Unsupported,
    /// As [`QuiesceError::Attached`].
    #[error("the VM is another program's, which alone can renew it; ask that program")]
    Attached,
    /// Another renewal, or a thaw, is under way. Nothing was sent.
    #[error("the guest is being renewed already; wait for that")]
    Busy,
    /// The guest cannot have this hostname. Nothing was sent.
    #[error("the guest cannot have the hostname: {why}")]
    Hostname {
        /// Why not.
        why: String,
    },
    /// The guest says which step failed.
    #[error("the guest could not be renewed: {reason}")]
    Failed {
        /// Why.
        reason: String,
    },
    /// The guest did not say within two seconds more than this that it is done.
    #[error("the guest did not say within {limit:?} that it is renewed; it may be overloaded")]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// The VM, or the agent in it, is gone.
    #[error("the VM is gone: {reason}")]
    VmGone {
        /// Why.
        reason: String,
    },
}

/// `AtCapacity` is [`io::ErrorKind::QuotaExceeded`]; `TimedOut`, `Unconfirmed` and a `NotStarted`
/// that [is a timeout](Failure::is_timeout) are [`io::ErrorKind::TimedOut`]; `VmGone` is [`io::ErrorKind::ConnectionAborted`]; the error itself
/// is the source.
impl From<ExecError> for io::Error {
    fn from(error: ExecError) -> Self {
        let kind = match &error {
            ExecError::AtCapacity { .. } => io::ErrorKind::QuotaExceeded,
            ExecError::TooLarge { .. } => io::ErrorKind::ArgumentListTooLong,
            ExecError::InvalidRequest { .. } => io::ErrorKind::InvalidInput,
            ExecError::Unbounded => io::ErrorKind::Unsupported,
            ExecError::NotReady => io::ErrorKind::NotConnected,
            ExecError::NotStarted(failure) if failure.is_timeout() => io::ErrorKind::TimedOut,
            ExecError::NotStarted(failure) => match failure.kind {
                crate::FailureKind::NotFound => io::ErrorKind::NotFound,
                crate::FailureKind::PermissionDenied => io::ErrorKind::PermissionDenied,
                crate::FailureKind::OutOfMemory => io::ErrorKind::OutOfMemory,
                _ => io::ErrorKind::Other,
            },
            ExecError::TimedOut { .. } | ExecError::Unconfirmed { .. } => io::ErrorKind::TimedOut,
            ExecError::Protocol(_) => io::ErrorKind::InvalidData,
            ExecError::VmGone { .. } => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, error)
    }
}

/// All but `VmGone` are [`io::ErrorKind::BrokenPipe`], as for a pipe nobody reads.
impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = match &error {
            WriteError::Closed | WriteError::Broken(_) | WriteError::Ended => {
                io::ErrorKind::BrokenPipe
            }
            WriteError::VmGone { .. } => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, error)
    }
}

impl From<proto::StartError> for ExecError {
    fn from(error: proto::StartError) -> Self {
        match error {
            proto::StartError::AtCapacity { limit, active } => Self::AtCapacity {
                limit,
                active,
                left: 0,
            },
            proto::StartError::TooLarge { size, limit } => Self::TooLarge { size, limit },
            proto::StartError::Timeout { limit } => Self::InvalidRequest {
                field: "timeout".to_owned(),
                why: format!("is {limit:?}, it must be more than zero and at most 292 000 years"),
            },
            proto::StartError::Unbounded => Self::Unbounded,
            proto::StartError::NotReady => Self::NotReady,
            proto::StartError::Closed(reason) => Self::VmGone { reason },
        }
    }
}
