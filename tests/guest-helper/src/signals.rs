//! `echo-signal`: answers each signal with a byte, so that the way of a signal can be timed.
#![allow(unsafe_code, reason = "waiting for a signal has no safe wrapper")]

use std::mem::MaybeUninit;

use rustix::io::Errno;

use crate::Outcome;

/// Writes a byte to stdout when it is ready, and one more for each `signal` that comes.
pub(crate) fn echo(signal: i32) -> Outcome {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is ours and `sigemptyset` initialises all of it; the old mask is not asked for.
    let blocked = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal) == 0
            && libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) == 0
    };
    if !blocked {
        return Err(format!("signal {signal} cannot be waited for").into());
    }
    loop {
        rustix::io::write(rustix::stdio::stdout(), b".")?;
        let mut taken = 0;
        // SAFETY: the set was initialised above, and `taken` is a place for one number.
        let error = unsafe { libc::sigwait(set.as_ptr(), &raw mut taken) };
        if error != 0 {
            return Err(Errno::from_raw_os_error(error).into());
        }
    }
}
