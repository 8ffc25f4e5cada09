//! Why a program did not run: from a step and an error number to a kind and a sentence.

use forebay_exec_proto::{Failure, FailureKind};
use rustix::io::Errno;

/// A step of a start that can fail. The discriminants travel from the child to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// The request itself.
    Request,
    /// Making the leaf.
    Cgroup,
    /// Making the pipes.
    Pipe,
    /// Making the process.
    Clone,
    /// Own session.
    Session,
    /// Putting the pipes in place.
    Streams,
    /// Limit on open files.
    OpenFiles,
    /// Entering the working directory.
    Cwd,
    /// Becoming the program.
    Exec,
}

impl Stage {
    const ALL: [Self; 9] = [
        Self::Request,
        Self::Cgroup,
        Self::Pipe,
        Self::Clone,
        Self::Session,
        Self::Streams,
        Self::OpenFiles,
        Self::Cwd,
        Self::Exec,
    ];

    pub(crate) fn from_wire(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| *stage as u8 == value)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Cgroup => "cgroup",
            Self::Pipe => "pipe2",
            Self::Clone => "clone3",
            Self::Session => "setsid",
            Self::Streams => "dup2",
            Self::OpenFiles => "setrlimit(NOFILE)",
            Self::Cwd => "chdir",
            Self::Exec => "execve",
        }
    }
}

/// What was found where the program should have been. Tells errors apart that share a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A directory.
    Directory,
    /// A file.
    File,
}

impl Found {
    pub(crate) fn from_wire(value: u8) -> Self {
        match value {
            1 => Self::Directory,
            2 => Self::File,
            _ => Self::Nothing,
        }
    }
}

/// A refused request; no system call was involved.
pub(crate) fn refused(kind: FailureKind, message: String) -> Failure {
    Failure {
        kind,
        errno: None,
        stage: Stage::Request.name().to_owned(),
        message,
    }
}

/// A failed step before or in the child, up to execve.
pub(crate) fn step(stage: Stage, errno: Errno, what: &str) -> Failure {
    let kind = match (stage, errno) {
        (_, Errno::NOMEM) => FailureKind::OutOfMemory,
        // Beyond pids.max, thread or descriptor limits.
        (_, Errno::AGAIN | Errno::MFILE | Errno::NFILE) => FailureKind::ResourceLimit,
        (Stage::Cwd, _) => FailureKind::BadCwd,
        (Stage::OpenFiles, _) => FailureKind::ResourceLimit,
        _ => FailureKind::Other,
    };
    let reason = describe(errno);
    let message = match stage {
        Stage::Cwd => format!("cannot enter the working directory {what}: {reason}"),
        _ => format!("cannot start {what}: {}: {reason}", stage.name()),
    };
    Failure {
        kind,
        errno: Some(errno.raw_os_error()),
        stage: stage.name().to_owned(),
        message,
    }
}

/// A failed execve, after the search in `path` (`None` if the program was given with a slash).
pub(crate) fn exec(errno: Errno, found: Found, program: &str, path: Option<&str>) -> Failure {
    let reason = describe(errno);
    let (kind, message) = match (errno, found) {
        (Errno::NOENT | Errno::NOTDIR, Found::File) => (
            FailureKind::NotFound,
            format!("{program} exists, but the interpreter or loader that it names does not"),
        ),
        (Errno::NOENT | Errno::NOTDIR, _) => (
            FailureKind::NotFound,
            match path {
                Some(path) => format!("{program} was not found in PATH ({path})"),
                None => format!("{program} was not found: {reason}"),
            },
        ),
        (Errno::ACCESS, Found::Directory) => (
            FailureKind::NotExecutable,
            format!("{program} is a directory"),
        ),
        (Errno::ACCESS | Errno::PERM, _) => (
            FailureKind::PermissionDenied,
            format!("{program} may not be executed: {reason}"),
        ),
        (Errno::NOEXEC, _) => (
            FailureKind::NotExecutable,
            format!(
                "{program} is no program: neither a known binary nor a script that begins with #!"
            ),
        ),
        (Errno::LIBBAD, _) => (
            FailureKind::NotExecutable,
            format!("the interpreter of {program} is no program"),
        ),
        (Errno::TOOBIG, _) => (
            FailureKind::TooLarge,
            format!("arguments and environment of {program} exceed the kernel's limit: {reason}"),
        ),
        (Errno::NAMETOOLONG | Errno::LOOP | Errno::INVAL, _) => (
            FailureKind::BadArgs,
            format!("{program} cannot be executed: {reason}"),
        ),
        (Errno::NOMEM, _) => (
            FailureKind::OutOfMemory,
            format!("no memory to execute {program}"),
        ),
        (Errno::AGAIN | Errno::MFILE | Errno::NFILE, _) => (
            FailureKind::ResourceLimit,
            format!("{program} cannot be executed: {reason}"),
        ),
        _ => (
            FailureKind::Other,
            format!("{program} cannot be executed: {reason}"),
        ),
    };
    Failure {
        kind,
        errno: Some(errno.raw_os_error()),
        stage: Stage::Exec.name().to_owned(),
        message,
    }
}

/// The kernel's words and name for an error.
pub(crate) fn describe(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    // std adds the number in brackets; the name says more.
    let words = text.split(" (os error").next().unwrap_or(&text);
    format!("{words} ({})", name(errno))
}

/// The symbolic name of an error.
pub(crate) fn name(errno: Errno) -> String {
    let known = match errno {
        Errno::TOOBIG => "E2BIG",
        Errno::ACCESS => "EACCES",
        Errno::AGAIN => "EAGAIN",
        Errno::BADF => "EBADF",
        Errno::BUSY => "EBUSY",
        Errno::EXIST => "EEXIST",
        Errno::FAULT => "EFAULT",
        Errno::INVAL => "EINVAL",
        Errno::IO => "EIO",
        Errno::ISDIR => "EISDIR",
        Errno::LIBBAD => "ELIBBAD",
        Errno::LOOP => "ELOOP",
        Errno::MFILE => "EMFILE",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::NFILE => "ENFILE",
        Errno::NODEV => "ENODEV",
        Errno::NOENT => "ENOENT",
        Errno::NOEXEC => "ENOEXEC",
        Errno::NOMEM => "ENOMEM",
        Errno::NOSPC => "ENOSPC",
        Errno::NOSYS => "ENOSYS",
        Errno::NOTDIR => "ENOTDIR",
        Errno::NXIO => "ENXIO",
        Errno::PERM => "EPERM",
        Errno::PIPE => "EPIPE",
        Errno::ROFS => "EROFS",
        Errno::STALE => "ESTALE",
        Errno::TXTBSY => "ETXTBSY",
        other => return format!("errno {}", other.raw_os_error()),
    };
    known.to_owned()
}

#[cfg(test)]
#[path = "failure_test.rs"]
mod tests;
