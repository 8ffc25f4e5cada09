//! One execution: a command's process, pipes and leaf, and where it stands.
//!
//! ```text
//!             execve done                leader collected        both streams ended
//!  Starting ───────────────► Running ───────────────────► Exited ──────────────► gone
//!      │                                                                           ▲
//!      └─────► Failed ─────────────────── child collected ─────────────────────────┘
//!        a step failed
//! ```
//!
//! Streams and stdin end by themselves, each in its own time. The leader is collected by nobody
//! but [`crate::reaper`], so while the state is Starting or Running its pid and group number are
//! its own; afterwards no signal is sent to either.

use std::os::fd::OwnedFd;
use std::time::Instant;

use forebay_exec_proto::{Stream, TerminalSize};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::cgroup::Leaf;
use crate::command::Command;
use crate::console::trace;
use crate::output::Output;
use crate::signals::{self, Reach};
use crate::spawn::Child;
use crate::stdin::Stdin;

/// Where an execution stands.
pub(crate) enum Phase {
    /// The child is on its way to its program.
    Starting {
        /// Tells how that went.
        status: OwnedFd,
        /// For the message if it went wrong.
        command: Box<Command>,
        /// Signals that came too early, by number: bit n − 1 for signal n.
        early: u64,
    },
    /// The program runs.
    Running,
    /// The program never ran, and the host was told; the child is not collected yet.
    Failed,
    /// The leader has ended; its streams may still have something to give.
    Exited,
}

/// One command, from its start until everything of it was delivered.
pub(crate) struct Execution {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) phase: Phase,
    pub(crate) begun: Instant,
    pub(crate) stdin: Option<Stdin>,
    stdout: Output,
    stderr: Output,
    leaf: Option<Leaf>,
}

impl Execution {
    /// The execution of a child that was just started in `leaf`.
    pub(crate) fn new(child: Child, command: Command, leaf: Option<Leaf>, begun: Instant) -> Self {
        Self {
            pid: child.pid,
            pidfd: child.pidfd,
            phase: Phase::Starting {
                status: child.status,
                command: Box::new(command),
                early: 0,
            },
            begun,
            stdin: child.streams.stdin,
            stdout: child.streams.stdout,
            stderr: child.streams.stderr,
            leaf,
        }
    }

    /// One of its output streams.
    pub(crate) fn output(&mut self, stream: Stream) -> &mut Output {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Whether nothing of it is left to wait for, once its leader was collected.
    pub(crate) fn is_over(&self) -> bool {
        match self.phase {
            Phase::Starting { .. } | Phase::Running | Phase::Failed => false,
            Phase::Exited => self.stdout.has_ended() && self.stderr.has_ended(),
        }
    }

    /// Gives its terminal another size, if it has one.
    pub(crate) fn resize(&self, size: TerminalSize) {
        if let Err(errno) = self.stdout.resize(size) {
            trace!("the terminal of pid {} keeps its size: {errno}", self.pid);
        }
    }

    /// Closes the agent's ends of its pipes: nobody will ask for their bytes any more.
    pub(crate) fn abandon_pipes(&mut self) {
        self.stdin = None;
        self.stdout.abandon();
        self.stderr.abandon();
    }

    /// Whether its leader was collected, so that its number may be another's.
    pub(crate) fn is_collected(&self) -> bool {
        matches!(self.phase, Phase::Exited)
    }

    /// Its group.
    pub(crate) fn leaf(&self) -> Option<&Leaf> {
        self.leaf.as_ref()
    }

    /// Gives its leaf up.
    pub(crate) fn take_leaf(&mut self) -> Option<Leaf> {
        self.leaf.take()
    }

    /// Kills everything in it, descendants of an ended leader included.
    pub(crate) fn kill(&self) {
        if let Some(leaf) = &self.leaf {
            match leaf.kill() {
                Ok(()) => return,
                Err(errno) => trace!("the group of pid {} cannot be killed: {errno}", self.pid),
            }
        }
        // Without a leaf: the leader, which may not lead its group yet, then the group.
        if matches!(self.phase, Phase::Starting { .. } | Phase::Running) {
            self.send(libc::SIGKILL.unsigned_abs(), Reach::Process);
            self.send(libc::SIGKILL.unsigned_abs(), Reach::Group);
        }
    }

    /// Sends a signal to its process group; SIGKILL to everything in it. A signal for a program
    /// that does not run yet waits for its start, one for an execution that has ended goes
    /// nowhere, as does a number that is no signal.
    pub(crate) fn signal(&mut self, signal: u32) {
        if signal == libc::SIGKILL.unsigned_abs() {
            return self.kill();
        }
        match &mut self.phase {
            Phase::Starting { early, .. } => {
                if (1..=signals::LAST).contains(&signal) {
                    *early |= 1 << (signal - 1);
                }
            }
            Phase::Running => self.send(signal, Reach::Group),
            Phase::Failed | Phase::Exited => {}
        }
    }

    /// The program runs: what came too early is sent now, in the order of the numbers.
    pub(crate) fn run(&mut self) {
        let before = std::mem::replace(&mut self.phase, Phase::Running);
        if let Phase::Starting { early, .. } = before {
            for signal in (1..=signals::LAST).filter(|signal| early & (1 << (signal - 1)) != 0) {
                self.send(signal, Reach::Group);
            }
        }
    }

    /// For callers that know that the leader was not collected yet.
    fn send(&self, signal: u32, reach: Reach) {
        use std::os::fd::AsFd as _;
        let done = match signals::send(self.pidfd.as_fd(), signal, reach) {
            // A kernel that cannot signal a group by pidfd. The leader was not collected, so its
            // number still names its group and no other.
            Err(error) if reach == Reach::Group && is_invalid(&error) => {
                signals::send_group(self.pid.as_raw_nonzero().get(), signal)
            }
            done => done,
        };
        if let Err(error) = done {
            trace!("signal {signal} for pid {}: {error}", self.pid);
        }
    }
}

fn is_invalid(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}
