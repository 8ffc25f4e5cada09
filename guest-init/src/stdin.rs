//! A command's stdin: from the connection's ring into the pipe or terminal, as fast as the command
//! reads.
//!
//! Nothing is kept here. Bytes stay in the ring, and count against the execution's input
//! allowance, until the kernel has taken them. A pipe ends by being closed; a terminal, which its
//! output holds open, by the character that a user would type.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_exec_proto::guest::Conn;
use forebay_exec_proto::{ExecId, StdinError};
use rustix::io::{Errno, write, writev};

use crate::failure;
use crate::pty;

/// The agent's end of a stdin pipe, or its way to write to a terminal's master.
pub(crate) struct Stdin {
    to: OwnedFd,
    terminal: bool,
    /// The byte that was written last, unless it was an end of file of ours.
    last: Option<u8>,
    /// The host has closed it: it ends behind the pending bytes.
    ending: bool,
    /// Epoll watches it for room.
    pub(crate) watched: bool,
    /// It is a terminal whose session is over. Unlike a pipe it would not say so: its master can
    /// be written to until it is full.
    hung_up: bool,
}

/// Where a stdin stands after its pending bytes were offered to the command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// Everything was taken.
    Dry,
    /// The command takes no more now; go on when there is room.
    Full,
    /// Nothing more can or will be written: close it.
    Over,
}

impl Stdin {
    /// A stdin that writes to `pipe`, which must not block.
    pub(crate) fn to_pipe(pipe: OwnedFd) -> Self {
        Self {
            to: pipe,
            terminal: false,
            last: None,
            ending: false,
            watched: false,
            hung_up: false,
        }
    }

    /// A stdin that types into a terminal by its `master`, which must not block.
    pub(crate) fn to_terminal(master: OwnedFd) -> Self {
        Self {
            terminal: true,
            ..Self::to_pipe(master)
        }
    }

    /// For epoll.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.to.as_fd()
    }

    /// The host has closed it.
    pub(crate) fn end(&mut self) {
        self.ending = true;
    }

    /// The leader has exited. Who still has the other end of a pipe may read on; a terminal takes
    /// nothing more.
    pub(crate) fn leader_exited(&mut self) {
        self.hung_up = self.terminal;
    }

    /// Writes pending bytes until there are none or the command takes no more.
    pub(crate) fn feed(&mut self, conn: &mut Conn, id: ExecId) -> Fed {
        loop {
            let Some((first, second)) = conn.stdin_pending(id) else {
                return Fed::Over;
            };
            let written = if first.is_empty() && second.is_empty() {
                if !self.ending {
                    return Fed::Dry;
                }
                match self.write_end() {
                    Ok(true) => return Fed::Over,
                    Ok(false) => continue,
                    Err(errno) => Err(errno),
                }
            } else if self.hung_up {
                Err(Errno::IO)
            } else {
                writev(&self.to, &[IoSlice::new(first), IoSlice::new(second)])
            };
            match written {
                Ok(taken) => {
                    let last = taken.checked_sub(1);
                    self.last = last.and_then(|at| first.iter().chain(second).nth(at).copied());
                    conn.stdin_written(id, taken);
                }
                Err(Errno::AGAIN) => return Fed::Full,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    conn.stdin_error(id, broken(errno));
                    return Fed::Over;
                }
            }
        }
    }

    /// Makes the command see the end; false if a further step is needed. A line that is begun is
    /// handed out by the first end of file, and the second is the end.
    fn write_end(&mut self) -> Result<bool, Errno> {
        let end = (self.terminal && !self.hung_up)
            .then(|| pty::end_of_file(&self.to, self.last))
            .flatten();
        let Some(end) = end else { return Ok(true) };
        write(&self.to, &[end.character])?;
        self.last = None;
        Ok(!end.line_open)
    }
}

fn broken(errno: Errno) -> StdinError {
    let message = match errno {
        Errno::IO => "the command has ended, and with it its terminal".to_owned(),
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
