//! What PID 1 says: short lines on the console, and its last words.
//!
//! Owns the trace switch, the panic hook and descriptors 0 to 2. The agent's protocol never
//! passes here. Lines are built without allocation and written with one call, so that this works
//! out of memory and does not mix with the kernel's own lines.

use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::process::getpid;
use rustix::system::{RebootCommand, reboot};

/// Longest line in bytes; the rest is cut.
const LINE_MAX: usize = 512;

static TRACE: AtomicBool = AtomicBool::new(false);

/// Logs a step when `forebay.trace` is on the kernel command line.
macro_rules! trace {
    ($($arg:tt)*) => {
        if $crate::console::tracing() {
            $crate::console::say(format_args!($($arg)*));
        }
    };
}
pub(crate) use trace;

/// Whether steps are logged.
pub(crate) fn tracing() -> bool {
    TRACE.load(Ordering::Relaxed)
}

/// Switches the log of steps.
pub(crate) fn set_trace(on: bool) {
    TRACE.store(on, Ordering::Relaxed);
}

/// Writes one line. Failing is no error: there is nowhere to say so.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let mut line = [0u8; LINE_MAX];
    let mut rest: &mut [u8] = &mut line;
    // A full buffer cuts the text, and one byte of it is kept for the newline.
    let _ = write!(rest, "forebay-init: {text}");
    let used = LINE_MAX.saturating_sub(rest.len()).min(LINE_MAX - 1);
    if let Some(end) = line.get_mut(used) {
        *end = b'\n';
    }
    if let Some(line) = line.get(..=used) {
        let _ = retry_on_intr(|| rustix::io::write(rustix::stdio::stderr(), line));
    }
}

/// Makes descriptors 0, 1 and 2 the console. Without one they become `/dev/null`, so that a later
/// descriptor of ours never sits where a command expects its streams.
pub(crate) fn attach() {
    let open = |path, flags| rustix::fs::open(path, flags, Mode::empty());
    let console = open("/dev/console", OFlags::RDWR | OFlags::NOCTTY)
        .or_else(|_| open("/dev/null", OFlags::RDWR))
        .or_else(|_| open("/", OFlags::RDONLY | OFlags::DIRECTORY));
    if let Ok(fd) = console {
        let _ = rustix::stdio::dup2_stdin(&fd);
        let _ = rustix::stdio::dup2_stdout(&fd);
        let _ = rustix::stdio::dup2_stderr(&fd);
        if std::os::fd::AsRawFd::as_raw_fd(&fd) <= 2 {
            // It already is one of the three.
            std::mem::forget(fd);
        }
    }
}

/// Says why, and ends: PID 1 powers the guest off, anything else exits.
pub(crate) fn die(why: fmt::Arguments<'_>) -> ! {
    say(format_args!("fatal: {why}"));
    if getpid().is_init() {
        rustix::fs::sync();
        let _ = reboot(RebootCommand::PowerOff);
    }
    std::process::exit(1)
}

/// A panic prints its message and powers the guest off. In a child between clone and exec it only
/// ends the child.
pub(crate) fn power_off_on_panic() {
    std::panic::set_hook(Box::new(|panic| die(format_args!("{panic}"))));
}
