//! A start under way: what the child works with until it has become the command, and how far it is.
#![allow(
    unsafe_code,
    reason = "memory that a child reads meanwhile is freed by hand"
)]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::io::{Errno, read, retry_on_intr};

use super::Start;
use super::stack::{Spares, Stack};
use crate::command::Command;
use crate::failure::Report;

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

/// The agent's side of a start.
///
/// Dropped, it gives the child's memory back if the child has left it: then the status pipe, of which
/// the child alone has the other end, is closed, by execve or by the child's end. Memory that a child
/// may still use is never freed, so keep this until one of both is known to have come.
pub(crate) struct Launch {
    status: OwnedFd,
    /// By pointer, since the child reads it too.
    start: *const Start,
    stack: ManuallyDrop<Stack>,
    spares: Rc<Spares>,
}

impl Launch {
    /// Of a child that was given `start` and `stack` and the other end of `status`, which must not
    /// block.
    pub(super) fn new(
        status: OwnedFd,
        start: Box<Start>,
        stack: Stack,
        spares: Rc<Spares>,
    ) -> Self {
        Self {
            status,
            start: Box::into_raw(start),
            stack: ManuallyDrop::new(stack),
            spares,
        }
    }

    /// Reads how far it has come. What failed is told once.
    pub(crate) fn progress(&self) -> Progress {
        let mut record = [0; Report::LEN];
        match self.read(&mut record) {
            Err(Errno::AGAIN) => Progress::Pending,
            Ok(Report::LEN) => Progress::Failed(Report::from_wire(record)),
            // Closed without a word. The record is written with one write, so nothing else is short.
            _ => Progress::Started,
        }
    }

    /// What is being started.
    pub(crate) fn command(&self) -> &Command {
        // SAFETY: it was made from a box, is freed by drop alone, and nobody writes to it.
        let start = unsafe { &*self.start };
        &start.command
    }

    fn read(&self, record: &mut [u8; Report::LEN]) -> Result<usize, Errno> {
        retry_on_intr(|| read(&self.status, &mut *record))
    }

    /// Whether the child has left the memory that it was given.
    fn is_left(&self) -> bool {
        let mut record = [0; Report::LEN];
        // A record may be there that nobody asked for.
        (0..2).any(|_| self.read(&mut record) == Ok(0))
    }
}

/// The status pipe, for epoll.
impl AsFd for Launch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.status.as_fd()
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        if self.is_left() {
            // SAFETY: it was made from a box, and neither the child nor anybody else uses it again.
            drop(unsafe { Box::from_raw(self.start.cast_mut()) });
            // SAFETY: taken once, here, and the child is off it.
            self.spares
                .give_back(unsafe { ManuallyDrop::take(&mut self.stack) });
        }
    }
}

#[cfg(test)]
#[path = "launch_test.rs"]
mod tests;
