//! Makes a process and turns it into a command.
//!
//! ```text
//!  agent                                   child (copy of the agent, nothing shared)
//!    streams, strings, leaf
//!    clone3(CLONE_PIDFD | CLONE_INTO_CGROUP) ──► setsid · streams to 0, 1, 2 · close the rest
//!    returns at once                             user looked up · limits · groups, user
//!                                                umask · signals · chdir · execve
//!    status pipe ◄── closes when execve succeeds, or carries {stage, errno, detail}
//! ```
//!
//! The address space is copied, not shared: with `CLONE_VM` or `CLONE_VFORK` the agent would stand
//! still until execve is done, which can be for ever on a hung file system. So a start is made
//! of two halves, and the loop reads how the second one went from the status pipe.
//!
//! Whatever may wait for a file system of the image is done by the child: it looks up the user,
//! enters the working directory, finds the program. The order follows from what each step needs:
//! files are opened before a limit may forbid it, limits are set while root may still raise them,
//! and the directory is entered and the program looked for as the user.
//!
//! A child cannot keep a program busy (`ETXTBSY`) by a copy of a descriptor that is open for
//! writing: of the image's files the agent opens none for that.
//!
//! Between clone and exec the child allocates nothing, takes no lock and cannot panic. Of the
//! agent's program it has no page mapped at first, and each stretch of 64 KiB that it comes by costs
//! it a fault, 16 pages to map and 16 to unmap, nearly a hundredth of a command's whole round trip.
//! So on the usual way it stays in this module and in [`libc::syscall`], where clone3 leaves it: it
//! calls no other function of the C library (not even `memcpy`), and reads no tables. A command
//! starts with default signal dispositions, an empty mask, umask 022, the descriptors 0 to 2 and
//! nothing else of the agent. If those three are a terminal, it controls the command's session.
#![allow(unsafe_code, reason = "clone3 and execve have no safe wrapper")]

use std::ffi::{CStr, c_char};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use forebay_exec_proto::{Failure, StdinMode, TerminalSize};
use rustix::fs::{FileType, Mode, OFlags, Uid, fchown, fstat};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Resource, Rlimit};

use crate::command::{Candidate, Command, Next, PATH_MAX, UserEnv};
use crate::failure::{self, Found, Report, Stage};
use crate::pty::Terminals;
use crate::signals;
use crate::streams::{AgentStreams, Pipe, Streams};
use crate::user::{Files, Lookup};

/// `CLONE_INTO_CGROUP` of `linux/sched.h`.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What every start needs from the agent.
pub(crate) struct Spawner {
    /// Stdin of commands without one.
    null: OwnedFd,
    /// The limit on open files that commands get; the agent's own is higher.
    open_files: Rlimit,
    /// Where users are looked up.
    users: Files,
    terminals: Terminals,
}

/// A process on its way to its program, and the agent's sides of its streams, all non-blocking.
pub(crate) struct Child {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) status: OwnedFd,
    pub(crate) streams: AgentStreams,
}

/// How far a start has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The child is still on its way.
    Pending,
    /// The program runs, or the child was killed on its way; its end will tell.
    Started,
    /// A step failed; the child ends by itself.
    Failed(Report),
}

/// Open files that the agent allows itself: nine for each execution (status, leader, three
/// streams, leaf, and three of its account), three for each spare account, and some for pipes that
/// outlive their execution. A leaf that outlives its own takes none.
const AGENT_OPEN_FILES: u64 = 65_536;

impl Spawner {
    /// Raises the agent's own limit on open files, opens `/dev/null` and `/dev/pts`, and sees to it
    /// that no command inherits an ignored signal.
    pub(crate) fn new() -> io::Result<Self> {
        signals::reset_ignored();
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
        Ok(Self {
            null,
            open_files,
            users: Files::system(),
            terminals: Terminals::open(),
        })
    }

    /// Starts `command` in `leaf`, on a terminal if it is to have one. Returns without waiting for
    /// the child; see [`progress`].
    pub(crate) fn spawn(
        &self,
        command: &Command,
        stdin: StdinMode,
        terminal: Option<TerminalSize>,
        leaf: Option<BorrowedFd<'_>>,
    ) -> Result<Child, Failure> {
        let failed = |(stage, errno)| failure::step(stage, errno, &command.shown_program());
        let streams = Streams::new(stdin, terminal, &self.terminals).map_err(failed)?;
        let status = Pipe::from_child().map_err(|errno| failed((Stage::Pipe, errno)))?;
        let user = match command.user() {
            None => None,
            Some(who) => {
                let room = Lookup::prepare(who, &self.users).zip(command.prepare_env());
                Some(room.ok_or_else(|| failed((Stage::User, Errno::NOMEM)))?)
            }
        };
        let mut start = Start {
            command,
            user,
            streams: streams.child(self.null.as_fd()),
            terminal: streams.is_terminal(),
            status: status.child.as_fd(),
            open_files: &self.open_files,
            mask: signals::Set::empty(),
        };
        let (pid, pidfd) =
            clone_into(leaf, &mut start).map_err(|errno| failed((Stage::Clone, errno)))?;
        Ok(Child {
            pid,
            pidfd,
            status: status.agent,
            streams: streams.into_agent(),
        })
    }
}

/// Reads how far the start behind a status pipe has come.
pub(crate) fn progress(status: BorrowedFd<'_>) -> Progress {
    let mut record = [0u8; Report::LEN];
    match retry_on_intr(|| rustix::io::read(status, &mut record)) {
        Err(Errno::AGAIN) => Progress::Pending,
        Ok(Report::LEN) => Progress::Failed(Report::from_wire(record)),
        // Closed without a word. The record is written with one write, so nothing else is short.
        _ => Progress::Started,
    }
}

/// What the child works with. All of it exists before the child does.
struct Start<'a> {
    command: &'a Command,
    /// How the user is found, and where its environment goes; `None` stays root.
    user: Option<(Lookup<'a>, UserEnv)>,
    /// Its descriptors 0, 1 and 2.
    streams: [BorrowedFd<'a>; 3],
    /// They are a terminal.
    terminal: bool,
    status: BorrowedFd<'a>,
    open_files: &'a Rlimit,
    mask: signals::Set,
}

fn clone_into(
    leaf: Option<BorrowedFd<'_>>,
    start: &mut Start<'_>,
) -> Result<(Pid, OwnedFd), Errno> {
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
fn become_command(start: &mut Start<'_>) -> ! {
    let report = prepare_and_exec(start);
    let _ = rustix::io::write(start.status, &report.to_wire());
    // SAFETY: ends this process without running anything of the agent's copy.
    unsafe { libc::_exit(127) }
}

/// Returns only if a step failed.
fn prepare_and_exec(start: &mut Start<'_>) -> Report {
    match prepare(start) {
        Ok(env) => exec(start.command, env),
        Err(report) => report,
    }
}

/// All steps before execve. Returns the environment.
fn prepare(start: &mut Start<'_>) -> Result<*const *const c_char, Report> {
    rustix::process::setsid().map_err(|errno| (Stage::Session, errno))?;
    // The agent's descriptors begin at 3, so no copy overwrites one that is still needed.
    let [stdin, stdout, stderr] = start.streams;
    rustix::stdio::dup2_stdin(stdin).map_err(|errno| (Stage::Streams, errno))?;
    rustix::stdio::dup2_stdout(stdout).map_err(|errno| (Stage::Streams, errno))?;
    rustix::stdio::dup2_stderr(stderr).map_err(|errno| (Stage::Streams, errno))?;
    if start.terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
            .map_err(|errno| (Stage::ControllingTerminal, errno))?;
    }
    close_inherited(start.status);
    let limits = || {
        let set = start.command.rlimits().apply(*start.open_files);
        set.map_err(|(number, errno)| Report {
            detail: number,
            ..Report::from((Stage::Limit, errno))
        })
    };
    let env = match &mut start.user {
        None => {
            limits()?;
            start.command.env()
        }
        Some((lookup, env)) => {
            let user = lookup.find().map_err(|(fault, errno)| Report {
                detail: fault as u8,
                ..Report::from((Stage::User, errno))
            })?;
            limits()?;
            give_streams(user.uid, start.terminal).map_err(|errno| (Stage::StreamOwner, errno))?;
            user.assume()?;
            env.complete(&user)
        }
    };
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    signals::reset_broken_pipe();
    rustix::process::chdir(start.command.cwd()).map_err(|errno| (Stage::Cwd, errno))?;
    start.mask.apply();
    Ok(env)
}

/// Makes the child's pipes or its terminal the user's, so that it can open `/dev/stdout` and
/// `/dev/tty`. Groups stay: the terminal's is `tty`.
fn give_streams(user: Uid, terminal: bool) -> Result<(), Errno> {
    for stream in [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ] {
        // All but /dev/null, which stays everybody's.
        let kind = FileType::from_raw_mode(fstat(stream)?.st_mode);
        if terminal || kind != FileType::CharacterDevice {
            fchown(stream, Some(user), None)?;
        }
    }
    Ok(())
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

/// Returns only if the program cannot be run.
fn exec(command: &Command, env: *const *const c_char) -> Report {
    let (errno, found) = match command.file() {
        Some(file) => {
            let (_, errno, found, _) = attempt(command, env, file);
            (errno, found)
        }
        None => search(command, env),
    };
    Report {
        detail: found as u8,
        ..Report::from((Stage::Exec, errno))
    }
}

/// Tries the candidates in order and returns the error that tells most: one that ends the search
/// before one about a file that exists, that before a path too long, that before nothing found;
/// the first of equals. Not inlined: its room for paths would be pages of stack for every child.
#[inline(never)]
fn search(command: &Command, env: *const *const c_char) -> (Errno, Found) {
    let mut room = [0u8; PATH_MAX];
    let mut told = (0u8, Errno::NOENT, Found::Nothing);
    command.for_each_candidate(&mut room, |candidate| {
        let (tells, errno, found, next) = match candidate {
            Candidate::File(file) => attempt(command, env, file),
            Candidate::TooLong => (1, Errno::NAMETOOLONG, Found::Nothing, Next::Continue),
        };
        // What a search did not find is missing, whatever the directories are.
        if tells > told.0 {
            told = (tells, errno, found);
        }
        next
    });
    let (_, errno, found) = told;
    (errno, found)
}

/// Tries one file: how much its error tells, the error, what is there, whether to go on.
fn attempt(command: &Command, env: *const *const c_char, file: &CStr) -> (u8, Errno, Found, Next) {
    // SAFETY: the path ends with a NUL, both arrays end with a null pointer, and the strings live
    // in this process's copies of `command` and of what the caller holds for `env`.
    unsafe { libc::syscall(libc::SYS_execve, file.as_ptr(), command.argv(), env) };
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
    (tells, errno, found, next)
}

#[cfg(test)]
#[path = "spawn_test.rs"]
mod tests;
