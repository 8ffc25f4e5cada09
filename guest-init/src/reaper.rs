//! The one place that collects ended processes.
//!
//! The leader of an execution is collected through its pidfd. Everything else that ends as a
//! child of PID 1 is an orphan that it adopted. Orphans are first looked at without being
//! collected, so that a leader found that way keeps its status for its execution: the exit code
//! of a command can be taken by nobody but [`reap`].
#![allow(
    unsafe_code,
    reason = "rustix says neither which child a waitid found nor what it used"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::process::Pid;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(u32),
}

/// A collected process, and what it and the children that it waited for cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reaped {
    pub(crate) exit: Exit,
    /// Page faults that needed I/O.
    pub(crate) major_faults: Option<u64>,
    /// How often the scheduler took the CPU away.
    pub(crate) involuntary_switches: Option<u64>,
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
pub(crate) fn reap(pidfd: BorrowedFd<'_>) -> Option<Reaped> {
    collect(libc::P_PIDFD, pidfd.as_raw_fd().unsigned_abs())
}

/// Collects the orphan `pid` if it has ended.
pub(crate) fn reap_orphan(pid: Pid) {
    let _ = collect(libc::P_PID, pid.as_raw_nonzero().get().unsigned_abs());
}

fn collect(kind: libc::idtype_t, id: libc::id_t) -> Option<Reaped> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG;
    loop {
        // SAFETY: both records are writable and large enough for those that the kernel writes; the
        // system call, unlike the C library's function, fills the second one.
        let done = unsafe {
            libc::syscall(
                libc::SYS_waitid,
                kind,
                id,
                info.as_mut_ptr(),
                options,
                used.as_mut_ptr(),
            )
        };
        if done == 0 {
            break;
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
    // SAFETY: both were zeroed, so every field is initialised, and after waitid the fields of a
    // child are those that count.
    let (pid, code, status, used) = unsafe {
        let info = info.assume_init();
        (
            info.si_pid(),
            info.si_code,
            info.si_status(),
            used.assume_init(),
        )
    };
    // Zero: it has not ended.
    Pid::from_raw(pid)?;
    Some(Reaped {
        exit: match code {
            libc::CLD_EXITED => Exit::Code(status),
            _ => Exit::Signal(status.unsigned_abs()),
        },
        major_faults: used.ru_majflt.try_into().ok(),
        involuntary_switches: used.ru_nivcsw.try_into().ok(),
    })
}

#[cfg(test)]
#[path = "reaper_test.rs"]
mod tests;
