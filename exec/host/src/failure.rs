//! Why a program never ran, and why a command no longer takes its stdin: what the guest reported,
//! in the host's own types.

use std::fmt;

use forebay_exec_proto as proto;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

/// What kind of fault kept a program from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// No such program, or the interpreter that its first line names is missing.
    NotFound,
    /// It may not be executed, or a directory on the way may not be searched.
    PermissionDenied,
    /// A directory, or a file that is no program.
    NotExecutable,
    /// The working directory cannot be entered.
    BadCwd,
    /// Arguments that no program can be given.
    BadArgs,
    /// Arguments and environment together exceed what the guest's kernel takes.
    TooLarge,
    /// A resource limit could not be set, or was hit.
    ResourceLimit,
    /// The user or its groups could not be set.
    UserSetup,
    /// The guest had no memory for the process.
    OutOfMemory,
    /// The terminal could not be set up.
    PtySetup,
    /// The guest already runs as many executions as the limits allow, or, said to an attached
    /// client, has not read the requests that came before.
    AtCapacity,
    /// The guest broke the protocol for this execution, which was killed. The program may have
    /// run.
    Protocol,
    /// The VM or its agent is gone. The program may have run.
    VmGone,
    /// Anything else; errno and message say what. Also what a kind of a newer version is read as.
    #[serde(other)]
    Other,
}

impl From<proto::FailureKind> for FailureKind {
    fn from(kind: proto::FailureKind) -> Self {
        use proto::FailureKind as Wire;
        match kind {
            Wire::NotFound => Self::NotFound,
            Wire::PermissionDenied => Self::PermissionDenied,
            Wire::NotExecutable => Self::NotExecutable,
            Wire::BadCwd => Self::BadCwd,
            Wire::BadArgs => Self::BadArgs,
            Wire::TooLarge => Self::TooLarge,
            Wire::ResourceLimit => Self::ResourceLimit,
            Wire::UserSetup => Self::UserSetup,
            Wire::OutOfMemory => Self::OutOfMemory,
            Wire::PtySetup => Self::PtySetup,
            Wire::AtCapacity => Self::AtCapacity,
            Wire::Protocol => Self::Protocol,
            _ => Self::Other,
        }
    }
}

/// An execution that ended without an exit: the program never ran, the guest broke the protocol,
/// or the VM is gone. Shown as `execve: No such file or directory (errno 2)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Failure {
    /// What kind of fault.
    pub kind: FailureKind,
    /// The guest kernel's error number, if one was the cause.
    pub errno: Option<i32>,
    /// The step that failed, such as `execve`, `chdir` or `protocol`.
    pub stage: String,
    /// A sentence for people.
    pub message: String,
}

impl Failure {
    /// The name of the error number, such as `ENOENT`; `None` if there is none, or Linux has no
    /// such error.
    #[must_use]
    pub fn errno_name(&self) -> Option<String> {
        match Errno::from_raw(self.errno?) {
            Errno::UnknownErrno => None,
            known => Some(format!("{known:?}")),
        }
    }

    /// Whether it never ran because its [timeout](crate::Exec::timeout) was over before the guest
    /// had taken its request.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind == FailureKind::Other && self.stage == proto::host::TIMEOUT_STAGE
    }

    pub(crate) fn vm_gone(reason: &str) -> Self {
        Self {
            kind: FailureKind::VmGone,
            errno: None,
            stage: "vm".to_owned(),
            message: reason.to_owned(),
        }
    }

    pub(crate) fn protocol(message: &str) -> Self {
        Self {
            kind: FailureKind::Protocol,
            errno: None,
            stage: "protocol".to_owned(),
            message: message.to_owned(),
        }
    }
}

impl From<&proto::Failure> for Failure {
    fn from(failure: &proto::Failure) -> Self {
        Self {
            kind: failure.kind.into(),
            errno: failure.errno,
            stage: failure.stage.clone(),
            message: failure.message.clone(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.message)?;
        match self.errno {
            Some(errno) => write!(f, " (errno {errno})"),
            None => Ok(()),
        }
    }
}

/// The command no longer reads its stdin. Not an end: the execution goes on and its exit will
/// still be reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StdinError {
    /// The guest kernel's error number, usually that of `EPIPE`.
    pub errno: i32,
    /// Its name.
    pub name: String,
    /// A sentence for people.
    pub message: String,
}

impl From<&proto::StdinError> for StdinError {
    fn from(error: &proto::StdinError) -> Self {
        Self {
            errno: error.errno,
            name: error.name.clone(),
            message: error.message.clone(),
        }
    }
}

impl fmt::Display for StdinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.name)
    }
}
