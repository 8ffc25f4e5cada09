//! Makes a process and turns it into a command.
//!
//! ```text
//!  agent                                   child (copy of the agent, nothing shared)
//!    pipes, strings, leaf
//!    clone3(CLONE_PIDFD | CLONE_INTO_CGROUP) ──► setsid · streams to 0, 1, 2 · close the rest
//!    returns at once                             open-file limit · umask · mask · chdir · execve
//!    status pipe ◄── closes when execve succeeds, or carries {stage, errno, found}
//! ```
//!
//! The address space is copied, not shared: with `CLONE_VM` or `CLONE_VFORK` the agent would stand
//! still until execve is done, which can be for ever on a hung file system. So a start is made
//! of two halves, and the loop reads how the second one went from the status pipe.
//!
//! Between clone and exec the child allocates nothing, takes no lock and cannot panic. A command
//! starts with default signal dispositions, an empty mask, umask 022, the descriptors 0 to 2 and
//! nothing else of the agent.
#![allow(unsafe_code, reason = "clone3 and execve have no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use forebay_exec_proto::{Failure, StdinMode};
use rustix::fs::{Mode, OFlags, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit};

use crate::command::{Candidate, Command, Next, PATH_MAX};
use crate::failure::{self, Found, Stage};
use crate::signals;

/// `CLONE_INTO_CGROUP` of `linux/sched.h`.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Bytes of a failure on the status pipe: stage, found, two of padding, error number.
const RECORD: usize = 8;

/// What every start needs from the agent.
pub(crate) struct Spawner {
    /// Stdin of commands without one.
    null: OwnedFd,
    /// The limit on open files that commands get; the agent's own is higher.
    open_files: Rlimit,
}

/// A process on its way to its program, and the agent's ends of its pipes, all non-blocking.
pub(crate) struct Child {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) status: OwnedFd,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// How far a start has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The child is still on its way.
    Pending,
    /// The program runs, or the child was killed on its way; its end will tell.
    Started,
    /// A step failed; the child ends by itself.
    Failed {
        stage: Stage,
        errno: Errno,
        found: Found,
    },
}

/// Open files that the agent allows itself: six for each execution and some for pipes that
/// outlive theirs.
const AGENT_OPEN_FILES: u64 = 65_536;

impl Spawner {
    /// Raises the agent's own limit on open files and opens `/dev/null`.
    pub(crate) fn new() -> io::Result<Self> {
        let open_files = rustix::process::getrlimit(Resource::Nofile);
        let raise = |n: u64| {
            let limit = Rlimit {
                current: Some(n),
                maximum: open_files.maximum.map(|maximum| maximum.max(n)),
            };
            rustix::process::setrlimit(Resource::Nofile, limit)
        };
        // Without the privilege for more, all that is allowed.
        if raise(AGENT_OPEN_FILES).is_err() {
            let _ = raise(open_files.maximum.unwrap_or(AGENT_OPEN_FILES));
        }
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { null, open_files })
    }

    /// Starts `command` in `leaf`. Returns without waiting for the child; see [`progress`].
    pub(crate) fn spawn(
        &self,
        command: &Command,
        stdin: StdinMode,
        leaf: Option<BorrowedFd<'_>>,
    ) -> Result<Child, Failure> {
        let program = || command.shown_program();
        let pipes =
            Pipes::new(stdin).map_err(|errno| failure::step(Stage::Pipe, errno, &program()))?;
        let start = Start {
            command,
            stdin: pipes
                .stdin
                .as_ref()
                .map_or(self.null.as_fd(), |pipe| pipe.child.as_fd()),
            stdout: pipes.stdout.child.as_fd(),
            stderr: pipes.stderr.child.as_fd(),
            status: pipes.status.child.as_fd(),
            open_files: &self.open_files,
            mask: signals::Set::empty(),
        };
        let (pid, pidfd) = clone_into(leaf, &start)
            .map_err(|errno| failure::step(Stage::Clone, errno, &program()))?;
        Ok(Child {
            pid,
            pidfd,
            status: pipes.status.agent,
            stdin: pipes.stdin.map(|pipe| pipe.agent),
            stdout: pipes.stdout.agent,
            stderr: pipes.stderr.agent,
        })
    }
}

/// Reads how far the start behind a status pipe has come.
pub(crate) fn progress(status: BorrowedFd<'_>) -> Progress {
    let mut record = [0u8; RECORD];
    match retry_on_intr(|| rustix::io::read(status, &mut record)) {
        Err(Errno::AGAIN) => Progress::Pending,
        Ok(RECORD) => {
            let [stage, found, _, _, a, b, c, d] = record;
            Progress::Failed {
                stage: Stage::from_wire(stage).unwrap_or(Stage::Exec),
                errno: Errno::from_raw_os_error(i32::from_ne_bytes([a, b, c, d])),
                found: Found::from_wire(found),
            }
        }
        // Closed without a word. The record is written with one write, so nothing else is short.
        _ => Progress::Started,
    }
}

/// One pipe: the child's blocking end and the agent's non-blocking one.
struct Pipe {
    child: OwnedFd,
    agent: OwnedFd,
}

struct Pipes {
    stdin: Option<Pipe>,
    stdout: Pipe,
    stderr: Pipe,
    status: Pipe,
}

impl Pipes {
    fn new(stdin: StdinMode) -> Result<Self, Errno> {
        let from_child = || {
            let (agent, child) = pipe_with(PipeFlags::CLOEXEC)?;
            fcntl_setfl(&agent, OFlags::NONBLOCK)?;
            Ok::<_, Errno>(Pipe { child, agent })
        };
        let stdin = match stdin {
            StdinMode::Null => None,
            StdinMode::Pipe => {
                let (child, agent) = pipe_with(PipeFlags::CLOEXEC)?;
                fcntl_setfl(&agent, OFlags::NONBLOCK)?;
                Some(Pipe { child, agent })
            }
        };
        Ok(Self {
            stdin,
            stdout: from_child()?,
            stderr: from_child()?,
            status: from_child()?,
        })
    }
}

/// What the child works with. All of it exists before the child does.
struct Start<'a> {
    command: &'a Command,
    stdin: BorrowedFd<'a>,
    stdout: BorrowedFd<'a>,
    stderr: BorrowedFd<'a>,
    status: BorrowedFd<'a>,
    open_files: &'a Rlimit,
    mask: signals::Set,
}

fn clone_into(leaf: Option<BorrowedFd<'_>>, start: &Start<'_>) -> Result<(Pid, OwnedFd), Errno> {
    let mut pidfd: RawFd = -1;
    // SAFETY: the record is plain numbers, for which zero means "not asked for".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = u64::from(libc::CLONE_PIDFD.unsigned_abs());
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    if let Some(leaf) = leaf {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(leaf.as_raw_fd().unsigned_abs());
    }
    // SAFETY: the record and the pidfd it points to are valid for the call. Neither memory nor a
    // stack is shared, so the child runs on a copy of everything, and it only makes system calls
    // until execve or exit: no lock that another thread held at this moment is taken.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut args,
            size_of::<libc::clone_args>(),
        )
    };
    if pid < 0 {
        let error = io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
    }
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        None => become_command(start),
        // SAFETY: the kernel stored a new descriptor there for us; nothing else owns it.
        Some(pid) => Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) })),
    }
}

/// The child's whole life on our code.
fn become_command(start: &Start<'_>) -> ! {
    let (stage, errno, found) = prepare_and_exec(start);
    let [a, b, c, d] = errno.raw_os_error().to_ne_bytes();
    let _ = rustix::io::write(start.status, &[stage as u8, found as u8, 0, 0, a, b, c, d]);
    // SAFETY: ends this process without running anything of the agent's copy.
    unsafe { libc::_exit(127) }
}

/// Returns only if a step failed.
fn prepare_and_exec(start: &Start<'_>) -> (Stage, Errno, Found) {
    let steps = || -> Result<(), (Stage, Errno)> {
        rustix::process::setsid().map_err(|errno| (Stage::Session, errno))?;
        // The agent's descriptors begin at 3, so no copy overwrites one that is still needed.
        rustix::stdio::dup2_stdin(start.stdin).map_err(|errno| (Stage::Streams, errno))?;
        rustix::stdio::dup2_stdout(start.stdout).map_err(|errno| (Stage::Streams, errno))?;
        rustix::stdio::dup2_stderr(start.stderr).map_err(|errno| (Stage::Streams, errno))?;
        close_inherited(start.status);
        rustix::process::setrlimit(Resource::Nofile, *start.open_files)
            .map_err(|errno| (Stage::OpenFiles, errno))?;
        rustix::process::umask(Mode::WGRP | Mode::WOTH);
        signals::reset_broken_pipe();
        rustix::process::chdir(start.command.cwd()).map_err(|errno| (Stage::Cwd, errno))?;
        start.mask.apply();
        Ok(())
    };
    match steps() {
        Err((stage, errno)) => (stage, errno, Found::Nothing),
        Ok(()) => {
            let (errno, found) = exec(start.command);
            (Stage::Exec, errno, found)
        }
    }
}

/// Closes every descriptor from 3 on but the status pipe. All of them are close-on-exec; closing
/// them now matters because the steps that follow can take for ever (a working directory on a file
/// system that does not answer), and a copy of another command's stdin kept that long would keep
/// its end from arriving.
fn close_inherited(status: BorrowedFd<'_>) {
    let status = status.as_raw_fd().unsigned_abs();
    for (first, last) in [
        (3, status.saturating_sub(1)),
        (status.saturating_add(1), u32::MAX),
    ] {
        if first <= last {
            // SAFETY: this process uses none of these descriptors again: what it still needs are
            // 0 to 2 and the status pipe. A kernel without the call leaves the closing to execve.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Tries the candidates in order and returns the error that tells most: one that ends the search
/// before one about a file that exists, that before a path too long, that before nothing found;
/// the first of equals.
fn exec(command: &Command) -> (Errno, Found) {
    let mut room = [0u8; PATH_MAX];
    let mut told = (0u8, Errno::NOENT, Found::Nothing);
    command.for_each_candidate(&mut room, |candidate| {
        let file = match candidate {
            Candidate::File(file) => file,
            Candidate::TooLong => {
                if told.0 < 1 {
                    told = (1, Errno::NAMETOOLONG, Found::Nothing);
                }
                return Next::Continue;
            }
        };
        // SAFETY: the path ends with a NUL, both arrays end with a null pointer, and the strings
        // live in this process's copy of `command`.
        unsafe { libc::execve(file.as_ptr(), command.argv(), command.env()) };
        let error = io::Error::last_os_error();
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
        let found = match rustix::fs::stat(file) {
            Err(_) => Found::Nothing,
            Ok(stat) if stat.st_mode & libc::S_IFMT == libc::S_IFDIR => Found::Directory,
            Ok(_) => Found::File,
        };
        let (tells, next) = match errno {
            Errno::NOENT | Errno::NOTDIR if found == Found::Nothing => (0, Next::Continue),
            // As execvp does: passed over, and so is a file system that does not answer.
            Errno::NOENT | Errno::NOTDIR | Errno::ACCESS => (2, Next::Continue),
            Errno::STALE | Errno::NODEV | Errno::TIMEDOUT => (2, Next::Continue),
            _ => (3, Next::Stop),
        };
        if tells > told.0 {
            told = (tells, errno, found);
        }
        next
    });
    (told.1, told.2)
}

#[cfg(test)]
#[path = "spawn_test.rs"]
mod tests;
