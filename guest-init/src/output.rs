//! A command's stdout or stderr, and the pipes that outlive their command.
//!
//! The agent reads a pipe only when the connection asks for it, so a command whose output nobody
//! takes fills its pipe and waits. There is no output buffer here.
//!
//! When the leader has exited, what its pipes hold at that moment is still delivered; bytes that
//! a surviving descendant writes later are not. Its pipe then stays open and is emptied by
//! [`Lingering`], so that the descendant neither blocks nor dies of SIGPIPE.
//!
//! A terminal's output is that of its master, which differs from a pipe in three points. Its end is
//! an error, EIO, and comes when no slave is open any more; ours is, until the leader has exited.
//! How much it holds cannot be asked, so what is delivered after the exit ends when a read finds
//! nothing, and with the most that it can have held at the exit: a descendant that goes on writing
//! may add to the stream, but neither hold up its end nor take anything from it.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_exec_proto::TerminalSize;
use forebay_exec_proto::guest::FRAMES_PER_READ;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread, read, readv, retry_on_intr};

use crate::pty::{self, Pty};

/// What a stream still has to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    /// Whatever comes, until every writer has closed.
    Everything,
    /// Exactly these bytes: the leader has exited.
    Rest {
        bytes: usize,
        /// Whether someone may still write.
        writers: bool,
    },
}

/// One stream of one execution.
pub(crate) struct Output {
    /// A pipe's end or a terminal's master; `None` when the stream has ended.
    pipe: Option<OwnedFd>,
    /// The terminal's slave, until the leader has exited.
    slave: Option<OwnedFd>,
    owed: Owed,
    /// The last read gave all that there was room for: the next one may well find more than that.
    flows: bool,
}

/// What a stream can do next.
#[derive(Debug)]
pub(crate) enum Then {
    /// It may have more.
    Readable,
    /// It has nothing now; epoll will tell.
    Empty,
    /// It has given everything. The pipe is handed over if a descendant may still write to it.
    Ended(Option<OwnedFd>),
}

impl Output {
    /// A stream that reads from `pipe`, which must not block.
    pub(crate) fn of_pipe(pipe: OwnedFd) -> Self {
        Self {
            pipe: Some(pipe),
            slave: None,
            owed: Owed::Everything,
            flows: false,
        }
    }

    /// What a terminal shows.
    pub(crate) fn of_terminal(pty: Pty) -> Self {
        Self {
            slave: Some(pty.slave),
            ..Self::of_pipe(pty.master)
        }
    }

    /// A stream that never gives anything.
    pub(crate) fn ended() -> Self {
        Self {
            pipe: None,
            slave: None,
            owed: Owed::Everything,
            flows: false,
        }
    }

    /// For epoll; `None` when the stream has ended.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Gives the terminal another size; does nothing without one, and after the leader's exit.
    pub(crate) fn resize(&self, size: TerminalSize) -> Result<(), Errno> {
        match (&self.pipe, &self.slave) {
            (Some(master), Some(_)) => pty::resize(master, size),
            _ => Ok(()),
        }
    }

    /// Whether everything was read.
    pub(crate) fn has_ended(&self) -> bool {
        self.pipe.is_none()
    }

    /// Reads once: into the first of `rooms`, and from a stream that flows into the others behind it.
    /// Returns the bytes read and what the stream can do next.
    ///
    /// A writer that waits for space in the pipe is woken by each read and may run at once, so one
    /// read of twice as much costs half the changes from one process to the other. A few bytes now
    /// and then come cheaper by a plain read.
    pub(crate) fn read(&mut self, rooms: [&mut [u8]; FRAMES_PER_READ]) -> (usize, Then) {
        let Some(pipe) = &self.pipe else {
            return (0, Then::Ended(None));
        };
        let mut owed = match self.owed {
            Owed::Everything => usize::MAX,
            Owed::Rest { bytes, .. } => bytes,
        };
        let mut rooms = rooms.map(|room| IoSliceMut::new(cut(room, &mut owed)));
        let space = rooms[0].len();
        let read = if self.flows {
            readv(pipe, &mut rooms)
        } else {
            read(pipe, &mut *rooms[0])
        };
        self.flows = read.is_ok_and(|got| got >= space);
        let got = match read {
            Ok(got) => got,
            Err(Errno::INTR) => return (0, Then::Readable),
            Err(Errno::AGAIN) if self.owed == Owed::Everything => return (0, Then::Empty),
            // The end of a terminal that nobody has open.
            Err(Errno::IO) => {
                self.abandon();
                return (0, Then::Ended(None));
            }
            // Bytes that were there at the exit and are not now: somebody else reads this pipe, or
            // a terminal held no more.
            Err(_) => return (0, self.end()),
        };
        if got == 0 {
            self.pipe = None;
            return (0, Then::Ended(None));
        }
        let then = match &mut self.owed {
            // Only EAGAIN says that a pipe is empty. A short read does not: a writer can make it a
            // pipe of packets (O_DIRECT), of which a read gives one.
            Owed::Everything => Then::Readable,
            Owed::Rest { bytes, .. } => {
                *bytes = bytes.saturating_sub(got);
                if *bytes == 0 {
                    self.end()
                } else {
                    Then::Readable
                }
            }
        };
        (got, then)
    }

    /// The leader has exited: from now on the stream owes what its pipe holds.
    pub(crate) fn leader_exited(&mut self) -> Then {
        let terminal = self.slave.take().is_some();
        let Some(pipe) = &self.pipe else {
            return Then::Ended(None);
        };
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let writers = match retry_on_intr(|| poll(&mut fds, Some(&now))) {
            Ok(_) => !fds.iter().any(|fd| fd.revents().contains(PollFlags::HUP)),
            Err(_) => true,
        };
        let bytes = if terminal {
            pty::HOLDS
        } else {
            let held = ioctl_fionread(pipe).unwrap_or(0);
            usize::try_from(held).unwrap_or(usize::MAX)
        };
        self.owed = Owed::Rest { bytes, writers };
        if bytes == 0 {
            self.end()
        } else {
            Then::Readable
        }
    }

    /// Gives the pipe up unread: the execution's connection is gone or its program never ran.
    pub(crate) fn abandon(&mut self) {
        self.pipe = None;
        self.slave = None;
    }

    fn end(&mut self) -> Then {
        let pipe = self.pipe.take();
        let writers = matches!(
            self.owed,
            Owed::Rest { writers: true, .. } | Owed::Everything
        );
        Then::Ended(pipe.filter(|_| writers))
    }
}

/// The first `most` bytes of `room`, or all of it, which are then no longer owed.
fn cut<'a>(room: &'a mut [u8], most: &mut usize) -> &'a mut [u8] {
    let len = room.len().min(*most);
    *most -= len;
    room.split_at_mut(len).0
}

/// Pipes whose execution has ended and that a descendant may still write to.
pub(crate) struct Lingering {
    pipes: VecDeque<(u64, OwnedFd)>,
    next: u64,
    /// Where discarded bytes go; empty until there are some. Not on the stack: every page there
    /// that the agent touches between two starts is a page copied for each child.
    sink: Vec<u8>,
}

/// Pipes kept at once. Beyond it the oldest is closed: its writers get EPIPE or SIGPIPE.
pub(crate) const LINGERING_MAX: usize = 128;

/// Bytes thrown away per readable event, so that a chatty descendant gets a turn, not the loop.
const DISCARD: usize = 64 * 1024;

impl Lingering {
    pub(crate) fn new() -> Self {
        Self {
            pipes: VecDeque::new(),
            next: 0,
            sink: Vec::new(),
        }
    }

    /// Takes a pipe over; returns its number, and the pipe that had to make room.
    pub(crate) fn add(&mut self, pipe: OwnedFd) -> (u64, Option<OwnedFd>) {
        let oldest = if self.pipes.len() >= LINGERING_MAX {
            self.pipes.pop_front()
        } else {
            None
        };
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.pipes.push_back((number, pipe));
        (number, oldest.map(|(_, pipe)| pipe))
    }

    /// The pipe with this number.
    pub(crate) fn get(&self, number: u64) -> Option<BorrowedFd<'_>> {
        self.position(number)
            .and_then(|at| self.pipes.get(at))
            .map(|(_, pipe)| pipe.as_fd())
    }

    /// Closes the pipe with this number.
    pub(crate) fn remove(&mut self, number: u64) {
        self.pipes.retain(|(own, _)| *own != number);
    }

    /// Throws away some of what a pipe holds; returns it when its last writer has closed.
    pub(crate) fn discard(&mut self, number: u64) -> Option<OwnedFd> {
        let at = self.position(number)?;
        let (_, pipe) = self.pipes.get(at)?;
        self.sink.resize(DISCARD, 0);
        match read(pipe, &mut *self.sink) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            Ok(got) if got > 0 => None,
            _ => self.pipes.remove(at).map(|(_, pipe)| pipe),
        }
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.pipes.iter().position(|(own, _)| *own == number)
    }
}

#[cfg(test)]
#[path = "output_test.rs"]
mod tests;
