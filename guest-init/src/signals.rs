//! Signals of and by PID 1.
//!
//! The agent blocks every signal and handles none: it reads the few that concern it from a
//! signalfd, and a broken pipe is an error of the write. So every disposition is the default, once
//! what whoever started us had ignored is reset, and a child has nothing to reset but its mask, and
//! SIGPIPE, which std's start-up ignored.
#![allow(
    unsafe_code,
    reason = "rustix has no signalfd, no signal mask and no pidfd_send_signal with flags"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::retry_on_intr;

/// What the kernel sends PID 1 when the host presses the power button
/// (`CONFIG_ACPI_TINY_POWER_BUTTON_SIGNAL`).
pub(crate) const POWER_BUTTON: i32 = 38;

/// Largest signal number of Linux.
pub(crate) const LAST: u32 = 64;

/// Bytes of a set of signals in the kernel; the C library's is longer.
const KERNEL_SET: usize = LAST as usize / 8;

/// A set of signals as the kernel takes it.
pub(crate) struct Set(libc::sigset_t);

impl Set {
    /// No signal.
    pub(crate) fn empty() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the whole set that it is given.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    /// These signals.
    fn of(signals: &[i32]) -> Self {
        let mut set = Self::empty();
        for signal in signals {
            // SAFETY: the set is initialised; a bad number is refused with an error.
            unsafe { libc::sigaddset(&raw mut set.0, *signal) };
        }
        set
    }

    /// Makes this the calling thread's mask. Safe between clone and exec.
    pub(crate) fn apply(&self) {
        // SAFETY: the set is valid and as long as the kernel's or longer, and nothing asks for the
        // old one; the call changes only this thread's mask.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const self.0,
                ptr::null_mut::<libc::sigset_t>(),
                KERNEL_SET,
            )
        };
    }
}

/// Blocks every signal that can be blocked, in the calling thread.
pub(crate) fn block_all() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the whole set that it is given.
    let set = unsafe {
        libc::sigfillset(set.as_mut_ptr());
        Set(set.assume_init())
    };
    set.apply();
}

/// Gives every signal that is ignored its default, since a command would inherit that: an init that
/// ran before us may have ignored some. Not SIGPIPE, on which our own writes rely.
pub(crate) fn reset_ignored() {
    for signal in (1..=LAST.cast_signed()).filter(|signal| *signal != libc::SIGPIPE) {
        let mut set = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: the call fills the record, which is looked at only then; a number that is no
        // signal is refused. SIG_DFL runs no code of ours.
        unsafe {
            let known = libc::sigaction(signal, ptr::null(), set.as_mut_ptr()) == 0;
            if known && set.assume_init().sa_sigaction == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

/// Gives SIGPIPE its default disposition. Safe between clone and exec.
pub(crate) fn reset_broken_pipe() {
    // The kernel's record of handler, flags, restorer and mask: the default is all zero.
    let default = [0u64; 4];
    // SAFETY: the record is valid, and nothing asks for the old one; SIG_DFL runs no code of ours.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            libc::SIGPIPE,
            &raw const default,
            ptr::null_mut::<[u64; 4]>(),
            KERNEL_SET,
        )
    };
}

/// Signals of PID 1 as a stream of numbers.
pub(crate) struct SignalFd(OwnedFd);

impl SignalFd {
    /// Delivers `signals`, which must be blocked, through a descriptor.
    pub(crate) fn new(signals: &[i32]) -> io::Result<Self> {
        let set = Set::of(signals);
        // SAFETY: the set is valid for the call; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        owned(fd).map(Self)
    }

    /// The next pending signal.
    pub(crate) fn next(&self) -> Option<i32> {
        const SIZE: usize = size_of::<libc::signalfd_siginfo>();
        let mut record = [0u8; SIZE];
        match retry_on_intr(|| rustix::io::read(&self.0, &mut record)) {
            // ssi_signo is the record's first field.
            Ok(SIZE) => {
                let [a, b, c, d, ..] = record;
                i32::try_from(u32::from_ne_bytes([a, b, c, d])).ok()
            }
            _ => None,
        }
    }

    /// For epoll.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }
}

/// Whom a signal reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The process alone.
    Process,
    /// Its process group.
    Group,
}

/// `PIDFD_SIGNAL_PROCESS_GROUP` of `linux/pidfd.h`, Linux 6.9.
const SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;

/// Sends `signal` to the process behind `pidfd`, or its group. A process that is gone gives
/// `ESRCH`; the signal can reach no other process. `EINVAL` for a group also means a kernel
/// before 6.9.
pub(crate) fn send(pidfd: BorrowedFd<'_>, signal: u32, reach: Reach) -> io::Result<()> {
    let flags = match reach {
        Reach::Process => 0,
        Reach::Group => SIGNAL_PROCESS_GROUP,
    };
    // SAFETY: no memory is passed: the info pointer is null, which the call takes as "as kill(2)".
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            ptr::null::<libc::siginfo_t>(),
            flags,
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sends `signal` to the process group `group`. The caller makes sure that the number still names
/// the group it means, by not having reaped the leader.
pub(crate) fn send_group(group: i32, signal: u32) -> io::Result<()> {
    let signal = i32::try_from(signal).unwrap_or(-1);
    // SAFETY: no memory is passed.
    let done = unsafe { libc::killpg(group, signal) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sends `signal` to every process but the caller, which must be PID 1: for anybody else "every
/// process" is a larger world than it owns.
pub(crate) fn send_everyone(signal: i32) {
    if rustix::process::getpid().is_init() {
        // SAFETY: no memory is passed.
        unsafe { libc::kill(-1, signal) };
    }
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor for us; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
#[path = "signals_test.rs"]
mod tests;
