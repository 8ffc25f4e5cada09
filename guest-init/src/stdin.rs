//! A command's stdin: from the connection's ring into the pipe, as fast as the command reads.
//!
//! Nothing is kept here. Bytes stay in the ring, and count against the execution's input
//! allowance, until the pipe has taken them.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_exec_proto::guest::Conn;
use forebay_exec_proto::{ExecId, StdinError};
use rustix::io::{Errno, writev};

use crate::failure;

/// The agent's end of a stdin pipe.
pub(crate) struct Stdin {
    pipe: OwnedFd,
    /// The host has closed it: it ends behind the pending bytes.
    ending: bool,
    /// Epoll watches the pipe for room.
    pub(crate) watched: bool,
}

/// Where a stdin stands after its pending bytes were offered to the command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// Everything was taken.
    Dry,
    /// The pipe is full; go on when it has room.
    Full,
    /// Nothing more can or will be written: close the pipe.
    Over,
}

impl Stdin {
    /// A stdin that writes to `pipe`, which must not block.
    pub(crate) fn new(pipe: OwnedFd) -> Self {
        Self {
            pipe,
            ending: false,
            watched: false,
        }
    }

    /// For epoll.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// The host has closed it.
    pub(crate) fn end(&mut self) {
        self.ending = true;
    }

    /// Writes pending bytes until there are none or the pipe is full.
    pub(crate) fn feed(&mut self, conn: &mut Conn, id: ExecId) -> Fed {
        loop {
            let Some((first, second)) = conn.stdin_pending(id) else {
                return Fed::Over;
            };
            if first.is_empty() && second.is_empty() {
                return if self.ending { Fed::Over } else { Fed::Dry };
            }
            match writev(&self.pipe, &[IoSlice::new(first), IoSlice::new(second)]) {
                Ok(taken) => conn.stdin_written(id, taken),
                Err(Errno::AGAIN) => return Fed::Full,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    conn.stdin_error(id, broken(errno));
                    return Fed::Over;
                }
            }
        }
    }
}

fn broken(errno: Errno) -> StdinError {
    let message = match errno {
        Errno::PIPE => "the command has closed its stdin or has ended".to_owned(),
        other => format!(
            "the command's stdin cannot be written: {}",
            failure::describe(other)
        ),
    };
    StdinError {
        errno: errno.raw_os_error(),
        name: failure::name(errno),
        message,
    }
}
