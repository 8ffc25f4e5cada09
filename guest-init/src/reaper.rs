//! The one place that collects ended processes.
//!
//! The leader of an execution is collected through its pidfd. Everything else that ends as a
//! child of PID 1 is an orphan that it adopted. Orphans are first looked at without being
//! collected, so that a leader found that way keeps its status for its execution: the exit code
//! of a command can be taken by nobody but [`reap`].
#![allow(
    unsafe_code,
    reason = "rustix does not say which child a waitid of all children found"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(u32),
}

/// What a look at the children found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// This child has ended and waits to be collected.
    Ended(Pid),
    /// Children exist, none has ended.
    Running,
    /// No children.
    Alone,
}

/// Looks for an ended child and leaves it uncollected.
pub(crate) fn look() -> Look {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is writable and large enough for the record that the kernel writes.
    while unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options) } < 0 {
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Look::Alone,
            _ => return Look::Running,
        }
    }
    // SAFETY: it was zeroed, so every field is initialised, and after waitid si_pid is the field
    // that counts: zero if nothing has ended, else the child.
    let pid = unsafe { info.assume_init().si_pid() };
    Pid::from_raw(pid).map_or(Look::Running, Look::Ended)
}

/// Collects the process behind `pidfd` if it has ended.
pub(crate) fn reap(pidfd: BorrowedFd<'_>) -> Option<Exit> {
    collect(WaitId::PidFd(pidfd))
}

/// Collects the orphan `pid` if it has ended.
pub(crate) fn reap_orphan(pid: Pid) {
    let _ = collect(WaitId::Pid(pid));
}

fn collect(whom: WaitId<'_>) -> Option<Exit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let status = retry_on_intr(|| waitid(whom.clone(), options)).ok()??;
    Some(exit(&status))
}

fn exit(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        // A child that was collected has either exited or been killed.
        (None, signal) => Exit::Signal(signal.and_then(|s| u32::try_from(s).ok()).unwrap_or(0)),
    }
}

#[cfg(test)]
#[path = "reaper_test.rs"]
mod tests;
