//! A command's standard streams while it is being started: three pipes, or a terminal.
//!
//! Each has a side that blocks, for the child, and one that does not, for the agent. The child's
//! sides are closed in the agent once the child has its copies.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_exec_proto::{StdinMode, TerminalSize};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::failure::Stage;
use crate::output::Output;
use crate::pty::{Pty, Terminals};
use crate::stdin::Stdin;

/// One pipe: the child's blocking end and the agent's non-blocking one.
pub(crate) struct Pipe {
    pub(crate) child: OwnedFd,
    pub(crate) agent: OwnedFd,
}

impl Pipe {
    /// A pipe that the child writes to.
    pub(crate) fn from_child() -> Result<Self, Errno> {
        let (agent, child) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&agent, OFlags::NONBLOCK)?;
        Ok(Self { child, agent })
    }

    /// A pipe that the child reads from.
    fn to_child() -> Result<Self, Errno> {
        let (child, agent) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&agent, OFlags::NONBLOCK)?;
        Ok(Self { child, agent })
    }
}

/// The streams of a child that is about to be made.
pub(crate) enum Streams {
    /// A pipe each.
    Pipes {
        /// `None` for a command without stdin.
        stdin: Option<Pipe>,
        stdout: Pipe,
        stderr: Pipe,
    },
    /// One terminal for all three.
    Terminal {
        pty: Pty,
        /// The master again, to write to; `None` if nobody types.
        stdin: Option<OwnedFd>,
    },
}

/// The agent's sides. What a terminal shows is its stdout; its stderr has ended from the beginning.
pub(crate) struct AgentStreams {
    pub(crate) stdin: Option<Stdin>,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
}

impl Streams {
    /// What a request asks for.
    pub(crate) fn new(
        stdin: StdinMode,
        terminal: Option<TerminalSize>,
        terminals: &Terminals,
    ) -> Result<Self, (Stage, Errno)> {
        let typed = stdin == StdinMode::Pipe;
        match terminal {
            None => Self::pipes(typed).map_err(|errno| (Stage::Pipe, errno)),
            Some(size) => Self::terminal(terminals.make(size)?, typed),
        }
    }

    fn pipes(typed: bool) -> Result<Self, Errno> {
        Ok(Self::Pipes {
            stdin: typed.then(Pipe::to_child).transpose()?,
            stdout: Pipe::from_child()?,
            stderr: Pipe::from_child()?,
        })
    }

    fn terminal(pty: Pty, typed: bool) -> Result<Self, (Stage, Errno)> {
        // A descriptor of its own, since epoll watches each for one purpose.
        let stdin = typed
            .then(|| fcntl_dupfd_cloexec(&pty.master, 3))
            .transpose()
            .map_err(|errno| (Stage::Master, errno))?;
        Ok(Self::Terminal { pty, stdin })
    }

    /// What becomes the child's descriptors 0, 1 and 2. `null` is the stdin of commands without.
    pub(crate) fn child<'a>(&'a self, null: BorrowedFd<'a>) -> [BorrowedFd<'a>; 3] {
        match self {
            Self::Pipes {
                stdin,
                stdout,
                stderr,
            } => [
                stdin.as_ref().map_or(null, |pipe| pipe.child.as_fd()),
                stdout.child.as_fd(),
                stderr.child.as_fd(),
            ],
            Self::Terminal { pty, .. } => [pty.slave.as_fd(); 3],
        }
    }

    /// Whether the child's descriptor 0 is to be its controlling terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// Closes the child's sides of pipes.
    pub(crate) fn into_agent(self) -> AgentStreams {
        match self {
            Self::Pipes {
                stdin,
                stdout,
                stderr,
            } => AgentStreams {
                stdin: stdin.map(|pipe| Stdin::to_pipe(pipe.agent)),
                stdout: Output::of_pipe(stdout.agent),
                stderr: Output::of_pipe(stderr.agent),
            },
            Self::Terminal { pty, stdin } => AgentStreams {
                stdin: stdin.map(Stdin::to_terminal),
                stdout: Output::of_terminal(pty),
                stderr: Output::ended(),
            },
        }
    }
}
