//! Making a copy of a guest another one, and telling it the time: what of that concerns the system.
//!
//! In this order, and nothing after a step that failed: fresh entropy into the kernel's generator,
//! which is reseeded at once, so that the next number that any program draws is no copy's; the
//! clock; `/run/generation`; the hostname. Executions stand still meanwhile, if they were quiesced.
//!
//! `/run/generation` is the sign by which programs learn that they run in a copy: a new id in each,
//! as `/proc/sys/kernel/random/boot_id` shows one. It is replaced as a whole, so a program that
//! watches the directory sees a rename. A guest that was booted and never renewed has none.
//!
//! What all this needs is opened before the first command runs. Commands are root as a rule, and
//! what they put in its place could make PID 1 wait for ever.

use std::ffi::{c_int, c_long};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use forebay_exec_proto::Renew;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2, renameat, unlinkat};
use rustix::io::{Errno, retry_on_intr};
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use crate::console::say;
use crate::failure::describe;

/// A clock that is ahead by less is left alone: programs take time that goes back badly.
const AHEAD: Duration = Duration::from_secs(1);

/// What a renewal works with.
pub(crate) struct System {
    random: Result<OwnedFd, Errno>,
    run: Result<OwnedFd, Errno>,
}

impl System {
    /// Opens what is needed later.
    pub(crate) fn open() -> Self {
        let open = |path, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        Self {
            random: open("/dev/urandom", OFlags::RDONLY | OFlags::NONBLOCK),
            run: open("/run", OFlags::PATH | OFlags::DIRECTORY),
        }
    }

    /// Does what the host asks for. The text says which step failed.
    pub(crate) fn renew(&self, renew: &Renew) -> Result<(), String> {
        let wall = Duration::from_nanos(renew.wall_ns);
        let Some(renewal) = &renew.renewal else {
            // A guest that goes on as it was must not stand still for its clock.
            if let Err(error) = set_clock(wall) {
                say(format_args!("{error}"));
            }
            return Ok(());
        };
        let random = self.random.as_ref().map_err(|errno| *errno);
        random
            .and_then(|random| reseed(random, &renewal.entropy.0))
            .map_err(|errno| failed("the kernel takes no entropy", errno))?;
        set_clock(wall)?;
        let run = self.run.as_ref().map_err(|errno| *errno);
        run.and_then(|run| tell_generation(run, renewal.generation))
            .map_err(|errno| failed("/run/generation cannot be replaced", errno))?;
        if let Some(hostname) = &renewal.hostname {
            rustix::system::sethostname(hostname.as_bytes())
                .map_err(|errno| failed("the hostname cannot be set", errno))?;
        }
        Ok(())
    }
}

fn failed(what: &str, errno: Errno) -> String {
    format!("{what}: {}", describe(errno))
}

/// `struct rand_pool_info` of `linux/random.h` with the entropy behind it.
#[repr(C)]
struct Pool {
    entropy_bits: c_int,
    bytes: c_int,
    entropy: [u8; 32],
}

/// Feeds the kernel's generator and has it use that from the next number on. A write to the device
/// would feed it too, and change nothing for up to a minute.
#[allow(unsafe_code, reason = "these ioctls have no safe wrapper")]
fn reseed(random: &OwnedFd, entropy: &[u8; 32]) -> Result<(), Errno> {
    const RNDADDENTROPY: c_long = 0x4008_5203;
    const RNDRESEEDCRNG: c_long = 0x5207;
    let pool = Pool {
        entropy_bits: 256,
        bytes: 32,
        entropy: *entropy,
    };
    // SAFETY: the kernel reads the header and as many bytes behind it as it says, which are there;
    // it keeps nothing of it. The descriptor is open.
    let added = unsafe { libc::ioctl(random.as_raw_fd(), RNDADDENTROPY as _, &raw const pool) };
    succeeded(added)?;
    // SAFETY: it takes no argument, and the descriptor is open.
    let reseeded = unsafe { libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG as _) };
    succeeded(reseeded)
}

fn succeeded(outcome: c_int) -> Result<(), Errno> {
    if outcome == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Sets the wall clock by the host's, which is at `host` since 1970.
fn set_clock(host: Duration) -> Result<(), String> {
    // A clock before 1970 is behind any.
    let guest = Duration::try_from(clock_gettime(ClockId::Realtime)).unwrap_or_default();
    if !must_step(guest, host) {
        return Ok(());
    }
    Timespec::try_from(host)
        .map_err(|_| Errno::INVAL)
        .and_then(|host| clock_settime(ClockId::Realtime, host))
        .map_err(|errno| failed("the clock cannot be set", errno))
}

/// Whether the guest's clock is set: if it is behind, or ahead by [`AHEAD`] or more.
fn must_step(guest: Duration, host: Duration) -> bool {
    match guest.checked_sub(host) {
        None => true,
        Some(ahead) => ahead >= AHEAD,
    }
}

/// Replaces the file `generation` in `run`.
fn tell_generation(run: &OwnedFd, generation: [u8; 16]) -> Result<(), Errno> {
    const NEW: &str = ".generation.new";
    match unlinkat(run, NEW, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    // Made here and now, so it is a file and nothing that a command has put there.
    let file = openat2(
        run,
        NEW,
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o444),
        ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS,
    )?;
    let text = text(generation);
    let written = retry_on_intr(|| rustix::io::write(&file, text.as_bytes()))?;
    if written != text.len() {
        return Err(Errno::NOSPC);
    }
    renameat(run, NEW, run, "generation")
}

/// The id as the kernel writes its own, and the end of a line.
fn text(generation: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(generation));
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex.get(part).unwrap_or_default());
    parts.join("-") + "\n"
}

#[cfg(test)]
#[path = "renew_test.rs"]
mod tests;
