//! Children that do not outlive whoever started them, however that ends.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Lets the kernel kill the child when the *thread* that starts it ends, for whatever reason: a
/// thread that starts a child has to stay until the child is waited for. Programs that the child
/// starts are not bound by it.
#[allow(
    unsafe_code,
    reason = "the only way to do something between fork and exec"
)]
pub fn ends_with_us(command: &mut Command) {
    let us = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // We may have ended before that.
        if getppid() == Some(us) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls and touches no memory but
    // its own: no allocation, no lock.
    unsafe { command.pre_exec(bind) };
}

#[cfg(test)]
#[path = "bound_test.rs"]
mod tests;
