//! Getting a vCPU thread out of guest mode, without a signal handler.
//!
//! Handlers belong to the whole process, and the process is not ours. So the signal used here has
//! none: it is blocked in the vCPU's thread and opened only by KVM, for the time the thread is
//! inside `KVM_RUN` (`KVM_SET_SIGNAL_MASK`). Sent to that thread alone, it makes `KVM_RUN` return
//! `EINTR`, or not start at all; it is then still pending and is taken out with `sigtimedwait`. No
//! kick can fall between a check and the entry, since it stays pending until it is taken.
//!
//! The signal is `SIGSTKFLT`: a standard one, since the host counts queued real-time signals per
//! user and refuses one too many, and a kick must not fail; and the only standard one that neither
//! the kernel nor any convention gives a meaning.
//!
//! Contract with the vCPU thread: on `EINTR` call [`drain`], *then* look at whatever a kick may be
//! about. A kick that comes before the drain may be swallowed by it, and what it was about is seen by
//! that look.

#![allow(unsafe_code)] // signals to one thread, and an ioctl that kvm-ioctls does not have

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use kvm_bindings::{KVMIO, kvm_signal_mask};
use kvm_ioctls::VcpuFd;
use vmm_sys_util::ioctl::ioctl_with_ref;
use vmm_sys_util::ioctl_iow_nr;

ioctl_iow_nr!(KVM_SET_SIGNAL_MASK, KVMIO, 0x8b, kvm_signal_mask);

/// Length of the kernel's signal set, in bytes; a C library's `sigset_t` begins with it.
const KERNEL_SIGSET_LEN: usize = 8;

/// `struct kvm_signal_mask` with its trailing array.
#[repr(C)]
struct SignalMask {
    len: u32,
    sigset: [u8; KERNEL_SIGSET_LEN],
}

const SIGNAL: libc::c_int = libc::SIGSTKFLT;

/// One vCPU thread, as those see it who want its attention.
#[derive(Debug, Default)]
pub(crate) struct KickTarget {
    /// Thread id, while the thread lives. Held during the send, so that the number cannot be
    /// another thread's by then.
    thread: Mutex<Option<libc::pid_t>>,
}

impl KickTarget {
    /// Makes `KVM_RUN` of this vCPU return `EINTR` soon, or at its next entry. Many at once are as
    /// one. Does nothing when the thread is gone. Callable from any thread.
    pub(crate) fn kick(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tid) = *thread {
            // SAFETY: tgkill takes numbers only. The thread is alive, since it clears its id under
            // this lock before it ends; so there is nothing for which the call could fail.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SIGNAL) };
        }
    }

    /// Called by the vCPU thread before its first entry: registers it, and opens the signal for the
    /// time inside `KVM_RUN`. The registration ends when the returned value is dropped.
    pub(crate) fn enter<'a>(&'a self, vcpu: &VcpuFd) -> io::Result<Registered<'a>> {
        open_inside_run(vcpu)?;
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: gettid has no preconditions.
        *thread = Some(unsafe { libc::gettid() });
        // A kick from before the registration reached nobody; whoever sent it left its reason where
        // the thread looks before it enters the guest.
        Ok(Registered { target: self })
    }
}

/// Called by the vCPU thread after `EINTR`: takes the signal out, so that the next entry is not
/// interrupted by it again.
pub(crate) fn drain() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    let now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: sigemptyset initialises `set`; a null siginfo is allowed; `now` outlives the call.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), SIGNAL);
        while libc::sigtimedwait(set.as_ptr(), ptr::null_mut(), &now) == SIGNAL {}
    }
}

/// The vCPU thread is known to its [`KickTarget`]; dropping this forgets it.
#[derive(Debug)]
pub(crate) struct Registered<'a> {
    target: &'a KickTarget,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        *self
            .target
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Tells KVM which signals are blocked inside `KVM_RUN`: those this thread blocks, without ours.
fn open_inside_run(vcpu: &VcpuFd) -> io::Result<()> {
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a null new set leaves the mask as it is; `mask` is filled in on success, and zeroed
    // before, so that it is initialised in any case.
    let mut mask = unsafe {
        match libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr()) {
            0 => mask.assume_init(),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    };
    let mut sigset = [0; KERNEL_SIGSET_LEN];
    // SAFETY: sigdelset changes an initialised set; the C library's set is at least as long as the
    // kernel's and starts with it, and both are plain bytes.
    unsafe {
        libc::sigdelset(&mut mask, SIGNAL);
        ptr::copy_nonoverlapping(
            ptr::from_ref(&mask).cast::<u8>(),
            sigset.as_mut_ptr(),
            KERNEL_SIGSET_LEN,
        );
    }
    let argument = SignalMask {
        len: KERNEL_SIGSET_LEN as u32,
        sigset,
    };
    // SAFETY: the descriptor is a vCPU; the kernel reads the header and `len` bytes after it, all
    // inside `argument`.
    match unsafe { ioctl_with_ref(vcpu, KVM_SET_SIGNAL_MASK(), &argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
