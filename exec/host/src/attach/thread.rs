//! A thread that does not disturb the process it lives in.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Signals that a thread raises by what it executes: they stay open, for the program's crash
/// reporting.
const FAULTS: [Signal; 6] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
];

/// Starts a thread with all asynchronous signals blocked from its first instruction on: none of
/// the program's handlers may run on it.
pub(super) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let mut blocked = SigSet::all();
    for fault in FAULTS {
        blocked.remove(fault);
    }
    // A new thread inherits the mask of the one that starts it: blocking here, not there, leaves
    // no moment at which a signal could be delivered to it.
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = Builder::new().name(name.to_owned()).spawn(body);
    before.thread_set_mask()?;
    started
}
