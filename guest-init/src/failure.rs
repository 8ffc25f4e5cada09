//! Why a program did not run: from a step and an error number to a kind and a sentence.
//!
//! | kind | when |
//! |---|---|
//! | `NotFound` | no such program, or the interpreter that its first line names is missing |
//! | `PermissionDenied` | it may not be executed, or a directory on the way not be searched |
//! | `NotExecutable` | a directory, or neither a known binary nor a script that begins with `#!` |
//! | `BadCwd` | the working directory cannot be entered, as the command's user |
//! | `BadArgs` | words that no program can be given |
//! | `TooLarge` | arguments and environment beyond what the kernel takes |
//! | `UserSetup` | no such user or group, or its files cannot be used |
//! | `ResourceLimit` | a limit that could not be set, or one that the start ran into (`EAGAIN`) |
//! | `OutOfMemory` | the guest had no memory for the process (`ENOMEM`) |
//! | `PtySetup` | no terminal |
//! | `Other` | anything else, such as a program that is open for writing (`ETXTBSY`) |

use forebay_exec_proto::{Failure, FailureKind};
use rustix::io::Errno;

use crate::command::Command;
use crate::rlimit;
use crate::user::Fault;

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
    /// Opening the agent's side of a terminal.
    Master,
    /// Opening the command's side of a terminal.
    Slave,
    /// Giving a terminal its size.
    WindowSize,
    /// Making the process.
    Clone,
    /// Own session.
    Session,
    /// Putting the pipes in place.
    Streams,
    /// Making a terminal that of the session.
    ControllingTerminal,
    /// Looking up the user.
    User,
    /// Setting a limit.
    Limit,
    /// Making the streams the user's.
    StreamOwner,
    /// The user's groups.
    Groups,
    /// The user's group.
    Gid,
    /// Becoming the user.
    Uid,
    /// Entering the working directory.
    Cwd,
    /// Becoming the program.
    Exec,
}

impl Stage {
    const ALL: [Self; 18] = [
        Self::Request,
        Self::Cgroup,
        Self::Pipe,
        Self::Master,
        Self::Slave,
        Self::WindowSize,
        Self::Clone,
        Self::Session,
        Self::Streams,
        Self::ControllingTerminal,
        Self::User,
        Self::Limit,
        Self::StreamOwner,
        Self::Groups,
        Self::Gid,
        Self::Uid,
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
            Self::Master => "open(/dev/pts/ptmx)",
            Self::Slave => "ioctl(TIOCGPTPEER)",
            Self::WindowSize => "ioctl(TIOCSWINSZ)",
            Self::Clone => "clone3",
            Self::Session => "setsid",
            Self::Streams => "dup2",
            Self::ControllingTerminal => "ioctl(TIOCSCTTY)",
            Self::User => "user",
            Self::Limit => "setrlimit",
            Self::StreamOwner => "fchown",
            Self::Groups => "setgroups",
            Self::Gid => "setresgid",
            Self::Uid => "setresuid",
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

/// What the child says of a start that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) stage: Stage,
    pub(crate) errno: Errno,
    /// What belongs to the stage: a [`Found`], a [`Fault`], the number of a limit.
    pub(crate) detail: u8,
}

impl Report {
    /// Bytes of a report on the status pipe: stage, detail, two of padding, error number.
    pub(crate) const LEN: usize = 8;

    pub(crate) fn to_wire(self) -> [u8; Self::LEN] {
        let [a, b, c, d] = self.errno.raw_os_error().to_ne_bytes();
        [self.stage as u8, self.detail, 0, 0, a, b, c, d]
    }

    pub(crate) fn from_wire(bytes: [u8; Self::LEN]) -> Self {
        let [stage, detail, _, _, a, b, c, d] = bytes;
        let errno = match i32::from_ne_bytes([a, b, c, d]) {
            errno @ 1..4096 => Errno::from_raw_os_error(errno),
            _ => Errno::INVAL,
        };
        Self {
            stage: Stage::from_wire(stage).unwrap_or(Stage::Exec),
            errno,
            detail,
        }
    }

    /// What the host is told.
    pub(crate) fn failure(self, command: &Command) -> Failure {
        let Self {
            stage,
            errno,
            detail,
        } = self;
        let program = command.shown_program();
        match stage {
            Stage::Exec => {
                let path = command.shown_path();
                exec(errno, Found::from_wire(detail), &program, path.as_deref())
            }
            Stage::User => user(Fault::from_wire(detail), errno, &command.shown_user()),
            Stage::Limit => limit(detail, errno, command),
            Stage::Cwd => step(stage, errno, &command.shown_cwd()),
            _ => step(stage, errno, &program),
        }
    }
}

impl From<(Stage, Errno)> for Report {
    fn from((stage, errno): (Stage, Errno)) -> Self {
        Self {
            stage,
            errno,
            detail: 0,
        }
    }
}

/// A user in a form that names nobody.
pub(crate) fn bad_user(text: &str) -> Failure {
    Failure {
        kind: FailureKind::UserSetup,
        errno: None,
        stage: Stage::User.name().to_owned(),
        message: format!(
            "{text:?} names no user: it takes a name or a number below 4294967295, and after a \
             colon a group likewise"
        ),
    }
}

/// A user that was not found.
fn user(fault: Option<Fault>, errno: Errno, who: &str) -> Failure {
    let unusable = |file| match errno {
        Errno::INVAL => format!("{file} of the guest is no regular file"),
        Errno::FBIG => format!("{file} of the guest is larger than 1 MiB"),
        Errno::RANGE => format!("the entry in {file} of the guest is longer than 4096 bytes"),
        Errno::TOOBIG => format!("{file} of the guest lists more than 65536 groups for it"),
        _ => format!("{file} of the guest cannot be read: {}", describe(errno)),
    };
    let (reason, errno) = match fault {
        Some(Fault::UnknownUser) => ("no such user in the guest's /etc/passwd".to_owned(), None),
        Some(Fault::UnknownGroup) => ("no such group in the guest's /etc/group".to_owned(), None),
        Some(Fault::Group) => (unusable("/etc/group"), Some(errno.raw_os_error())),
        Some(Fault::Passwd) | None => (unusable("/etc/passwd"), Some(errno.raw_os_error())),
    };
    Failure {
        kind: FailureKind::UserSetup,
        errno,
        stage: Stage::User.name().to_owned(),
        message: format!("nothing can run as {who}: {reason}"),
    }
}

/// A limit that the kernel refused.
fn limit(number: u8, errno: Errno, command: &Command) -> Failure {
    let kind = rlimit::kind(number);
    let name = kind.map_or("of a process", |kind| kind.name);
    let stage = kind.map_or(Stage::Limit.name(), |kind| kind.stage);
    let hint = if number == rlimit::NOFILE && errno == Errno::PERM {
        "; the guest allows none above its fs.nr_open"
    } else {
        ""
    };
    Failure {
        kind: FailureKind::ResourceLimit,
        errno: Some(errno.raw_os_error()),
        stage: stage.to_owned(),
        message: format!(
            "the limit {name} of {} cannot be set to {}: {}{hint}",
            command.shown_program(),
            command.rlimits().shown(number),
            describe(errno)
        ),
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
        (Stage::Master | Stage::Slave | Stage::WindowSize | Stage::ControllingTerminal, _) => {
            FailureKind::PtySetup
        }
        (_, Errno::NOMEM) => FailureKind::OutOfMemory,
        // Beyond pids.max, or the limits of the guest's kernel on processes and descriptors.
        (_, Errno::AGAIN | Errno::MFILE | Errno::NFILE) => FailureKind::ResourceLimit,
        (Stage::Cwd, _) => FailureKind::BadCwd,
        (Stage::StreamOwner | Stage::Groups | Stage::Gid | Stage::Uid, _) => FailureKind::UserSetup,
        _ => FailureKind::Other,
    };
    let reason = describe(errno);
    let message = match stage {
        Stage::Cwd => format!("cannot enter the working directory {what}: {reason}"),
        Stage::Clone if errno == Errno::AGAIN => format!(
            "cannot start {what}: there are as many processes as the execution, or all of them \
             together, may have: {reason}"
        ),
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
        (Errno::AGAIN, _) => (
            FailureKind::ResourceLimit,
            format!("the user of {program} has more processes than its limit nproc: {reason}"),
        ),
        (Errno::MFILE | Errno::NFILE, _) => (
            FailureKind::ResourceLimit,
            format!("{program} cannot be executed: {reason}"),
        ),
        (Errno::TXTBSY, _) => (
            FailureKind::Other,
            format!("a process of the guest has {program} open for writing: {reason}"),
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
        Errno::FBIG => "EFBIG",
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
        Errno::NOTTY => "ENOTTY",
        Errno::NXIO => "ENXIO",
        Errno::PERM => "EPERM",
        Errno::PIPE => "EPIPE",
        Errno::RANGE => "ERANGE",
        Errno::ROFS => "EROFS",
        Errno::STALE => "ESTALE",
        Errno::TIMEDOUT => "ETIMEDOUT",
        Errno::TXTBSY => "ETXTBSY",
        other => return format!("errno {}", other.raw_os_error()),
    };
    known.to_owned()
}

#[cfg(test)]
#[path = "failure_test.rs"]
mod tests;
