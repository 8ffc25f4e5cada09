//! `share`: named shared memory and a named semaphore, as programs use them: they need `/dev/shm`.
#![allow(
    unsafe_code,
    reason = "POSIX shared memory, semaphores and fork have no safe wrapper here"
)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Outcome;

/// One name for both: they lie in different places.
const NAME: &CStr = c"/forebay-share";
/// What the child tells its parent.
const WORD: u32 = 0x5EA5_1DE5;
const MODE: libc::mode_t = 0o600;

/// A child writes a word into memory that it shares with this process by name, and posts a
/// semaphore that this process waits for.
pub(crate) fn share() -> Outcome {
    let word = shared_word()?;
    // SAFETY: the name is a C string; mode and value are the two arguments that O_CREAT takes.
    let semaphore = unsafe { libc::sem_open(NAME.as_ptr(), libc::O_CREAT, MODE, 0) };
    if semaphore == libc::SEM_FAILED {
        return Err(failed("sem_open").into());
    }
    // SAFETY: this program has one thread, so the child may go on using everything.
    match unsafe { libc::fork() } {
        -1 => return Err(failed("fork").into()),
        0 => {
            word.store(WORD, Ordering::Relaxed);
            // SAFETY: the semaphore was opened above; the child ends without its parent's clean-up.
            unsafe {
                libc::sem_post(semaphore);
                libc::_exit(0)
            }
        }
        _ => {}
    }
    // SAFETY: the semaphore was opened above, the name is a C string, and no memory is passed.
    let waited = unsafe {
        let waited = libc::sem_wait(semaphore);
        libc::sem_unlink(NAME.as_ptr());
        libc::wait(std::ptr::null_mut());
        waited
    };
    if waited != 0 {
        return Err(failed("sem_wait").into());
    }
    match word.load(Ordering::Relaxed) {
        WORD => Ok(0),
        other => Err(format!("{other:#x} is shared, it should be {WORD:#x}").into()),
    }
}

/// A word of named memory, whose name is gone again; shared with every child.
fn shared_word() -> io::Result<&'static AtomicU32> {
    let length = size_of::<AtomicU32>();
    // SAFETY: the name is a C string; the descriptor is new, and nobody else's.
    let memory = unsafe {
        let fd = libc::shm_open(NAME.as_ptr(), libc::O_CREAT | libc::O_RDWR, MODE);
        if fd < 0 {
            return Err(failed("shm_open"));
        }
        libc::shm_unlink(NAME.as_ptr());
        OwnedFd::from_raw_fd(fd)
    };
    rustix::fs::ftruncate(&memory, length as u64)?;
    // SAFETY: a new mapping of our own object, where the kernel likes; it is aligned to a page,
    // zeroed, as long as the word, and never unmapped.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            std::os::fd::AsRawFd::as_raw_fd(&memory),
            0,
        );
        if at == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        Ok(&*at.cast::<AtomicU32>())
    }
}

/// Why the call that was just made failed.
fn failed(call: &str) -> io::Error {
    let error = io::Error::last_os_error();
    io::Error::new(error.kind(), format!("{call}: {error}"))
}
