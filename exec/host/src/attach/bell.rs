//! What wakes the server's thread: an eventfd, and the list of what to look at.
//!
//! A [`Ringer`] is the waker of one execution, or of whoever waits for control room. It stands in
//! the list at most once, so the list is bounded by the executions that are relayed.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Wake;

use forebay_exec_proto::ExecId;
use rustix::event::{EventfdFlags, eventfd};

/// Wakes one thread; may be rung by any.
#[derive(Debug)]
pub(super) struct Bell {
    fd: OwnedFd,
    rung: Mutex<Vec<Arc<Ringer>>>,
    stopped: AtomicBool,
    /// Every client has a part of it, so that tests can count them from outside the thread.
    #[cfg(test)]
    pub(super) attached: Arc<()>,
}

impl Bell {
    pub(super) fn new() -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            rung: Mutex::default(),
            stopped: AtomicBool::new(false),
            #[cfg(test)]
            attached: Arc::default(),
        }))
    }

    /// Readable while there is something to look at.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Makes the descriptor readable.
    pub(super) fn ring(&self) {
        // Fails only when the count would pass 2⁶⁴ − 2, and then it is readable already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Asks the thread to end.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Makes the descriptor unreadable. To be followed by looking at everything it stands for.
    pub(super) fn silence(&self) {
        // Fails only when it was not rung.
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    /// Takes what was rung for. Whatever happens to it from now on rings again.
    pub(super) fn take(&self) -> Vec<Arc<Ringer>> {
        let rung = mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner));
        for ringer in &rung {
            ringer.listed.store(false, Ordering::Release);
        }
        rung
    }
}

/// What a ringer stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// An execution of a client, by the client's number and its own id of it.
    Exec(u64, ExecId),
    /// The VM's control queue has room.
    ControlRoom,
}

/// A waker that puts its cause on the list.
#[derive(Debug)]
pub(super) struct Ringer {
    pub(super) cause: Cause,
    /// The bell holds its ringers, so they must not hold it: whatever rings last would keep both.
    bell: Weak<Bell>,
    listed: AtomicBool,
}

impl Ringer {
    pub(super) fn new(cause: Cause, bell: &Arc<Bell>) -> Arc<Self> {
        Arc::new(Self {
            cause,
            bell: Arc::downgrade(bell),
            listed: AtomicBool::new(false),
        })
    }
}

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        if self.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(bell) = self.bell.upgrade() else {
            return;
        };
        let mut rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let first = rung.is_empty();
        rung.push(self);
        drop(rung);
        if first {
            bell.ring();
        }
    }
}

#[cfg(test)]
#[path = "bell_test.rs"]
mod tests;
