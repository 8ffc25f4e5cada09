//! Starting threads that do not disturb the process they live in.
//!
//! A library's threads must not receive the program's signals: a handler would run on them, or a
//! blocking call of ours would be interrupted by something that is none of our business. So they
//! start with every asynchronous signal blocked. Faults (SIGSEGV and its kin) stay open, so that
//! the program's crash reporting works for them as for its own threads.

#![allow(unsafe_code)] // pthread_sigmask

use std::io;
use std::mem::MaybeUninit;
use std::panic::{self, AssertUnwindSafe};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use crate::error::HostError;

/// Signals that a thread raises by what it executes.
const FAULTS: [libc::c_int; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Starts a thread named `name` (15 bytes at most are kept by the kernel) with all signals blocked
/// from its first instruction on.
pub(crate) fn spawn<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A new thread inherits the mask of the one that starts it: blocking here, not there, leaves no
    // moment at which a signal could be delivered to it.
    let _masked = Masked::new()?;
    thread::Builder::new().name(name).spawn(body)
}

/// Does what reads files and copies megabytes on a thread of its own, which is not for a runtime's
/// worker. If nobody waits any more, what comes of it is dropped there.
pub(crate) async fn run<T: Send + 'static>(
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HostError> {
    let (sender, done) = oneshot::channel();
    let thread = spawn(name.into(), move || drop(sender.send(catch(body))))
        .map_err(|e| HostError::on("start thread", name, e))?;
    let outcome = done.await.unwrap_or_else(|_| Err("no answer".into()));
    // It has sent the last thing it had to say, so this holds nobody up.
    join(thread);
    outcome.map_err(|message| HostError::on(name, "internal error", io::Error::other(message)))
}

/// Waits until a thread has ended. Its panics are its own to catch and report. Does nothing on the
/// thread itself, where an executor that polls inside its wakers may bring us.
pub(crate) fn join<T>(thread: JoinHandle<T>) {
    if thread.thread().id() != thread::current().id() {
        let _ = thread.join();
    }
}

/// Runs `body`; what it panics with comes back as its text.
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    // Unwind safety: the caller ends the VM on an error, and what its threads share is either
    // behind a lock that is entered afterwards only to tear down, or is atomic.
    panic::catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
        payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a text".to_owned())
    })
}

/// All asynchronous signals blocked in this thread until dropped.
struct Masked {
    before: libc::sigset_t,
}

impl Masked {
    fn new() -> io::Result<Self> {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigfillset initialises `all` and cannot fail on a valid pointer; sigdelset takes
        // valid signal numbers; pthread_sigmask reads `all` and initialises `before` when it
        // returns 0, which is checked before `before` is read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Self {
                    before: before.assume_init(),
                }),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: `before` was filled in by pthread_sigmask; a null old set is allowed.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

#[cfg(test)]
#[path = "threads_test.rs"]
mod tests;
