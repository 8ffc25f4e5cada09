//! What has to exist before a command can run: file systems and device links.
//!
//! Two steps, so that the agent port can be opened between them. A failure here is a line on the
//! console, not an end: an image may mount some of these itself or leave them out, and a guest
//! that answers is easier to mend than one that does not.

use std::ffi::CStr;
use std::time::Duration;

use rustix::fs::{Mode, mkdir, symlink};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::time::{ClockId, clock_gettime};

/// Guest time since the kernel started, for the boot report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    entry: Duration,
}

impl Clock {
    /// Takes the time of PID 1's first instruction: call it first.
    pub(crate) fn at_entry() -> Self {
        Self { entry: Self::now() }
    }

    /// Kernel start to PID 1's entry, in microseconds.
    pub(crate) fn entry_us(self) -> u64 {
        micros(self.entry)
    }

    /// Kernel start to now, in microseconds.
    pub(crate) fn now_us(self) -> u64 {
        micros(Self::now())
    }

    fn now() -> Duration {
        // The clock starts at zero with the kernel and never runs backwards.
        Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

struct Mount {
    source: &'static CStr,
    target: &'static CStr,
    kind: &'static CStr,
    flags: MountFlags,
    data: Option<&'static CStr>,
}

const NO_PROGRAMS: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);
const NO_DEVICES: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Needed to find the port, read our switches and say anything.
const FIRST: [Mount; 3] = [
    Mount {
        source: c"dev",
        target: c"/dev",
        kind: c"devtmpfs",
        flags: MountFlags::NOSUID,
        data: None,
    },
    Mount {
        source: c"proc",
        target: c"/proc",
        kind: c"proc",
        flags: NO_PROGRAMS,
        data: None,
    },
    Mount {
        source: c"sys",
        target: c"/sys",
        kind: c"sysfs",
        flags: NO_PROGRAMS,
        data: None,
    },
];

/// `ptmxmode` and `gid` let a user who is not root open a terminal; gid 5 is `tty` by long custom.
const REMAINING: [Mount; 5] = [
    Mount {
        source: c"devpts",
        target: c"/dev/pts",
        kind: c"devpts",
        flags: MountFlags::NOSUID.union(MountFlags::NOEXEC),
        data: Some(c"mode=620,ptmxmode=666,gid=5"),
    },
    Mount {
        source: c"shm",
        target: c"/dev/shm",
        kind: c"tmpfs",
        flags: NO_DEVICES,
        data: Some(c"mode=1777"),
    },
    Mount {
        source: c"tmp",
        target: c"/tmp",
        kind: c"tmpfs",
        flags: NO_DEVICES,
        data: Some(c"mode=1777"),
    },
    Mount {
        source: c"run",
        target: c"/run",
        kind: c"tmpfs",
        flags: NO_DEVICES,
        data: Some(c"mode=755"),
    },
    Mount {
        source: c"cgroup2",
        target: c"/sys/fs/cgroup",
        kind: c"cgroup2",
        flags: NO_PROGRAMS,
        data: None,
    },
];

const LINKS: [(&CStr, &CStr); 4] = [
    (c"/proc/self/fd", c"/dev/fd"),
    (c"/proc/self/fd/0", c"/dev/stdin"),
    (c"/proc/self/fd/1", c"/dev/stdout"),
    (c"/proc/self/fd/2", c"/dev/stderr"),
];

/// Mounts `/dev`, `/proc` and `/sys`. Returns what went wrong, to be said once there is a console.
pub(crate) fn first_mounts() -> Vec<String> {
    FIRST.iter().filter_map(|m| ensure(m).err()).collect()
}

/// Mounts the rest and makes the links of `/dev`. Returns what went wrong.
pub(crate) fn remaining_mounts() -> Vec<String> {
    let mut problems: Vec<String> = REMAINING.iter().filter_map(|m| ensure(m).err()).collect();
    for (to, at) in LINKS {
        match symlink(to, at) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => problems.push(format!("cannot link {}: {error}", at.to_string_lossy())),
        }
    }
    problems
}

/// Mounts one file system, making its directory only if that is missing.
fn ensure(m: &Mount) -> Result<(), String> {
    let attempt = || mount(m.source, m.target, m.kind, m.flags, m.data);
    let done = match attempt() {
        Err(Errno::NOENT) => mkdir(m.target, Mode::from_raw_mode(0o755)).and_then(|()| attempt()),
        other => other,
    };
    match done {
        // Busy: the kernel or the image mounted the same there already.
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(format!(
            "cannot mount {} on {}: {error}",
            m.kind.to_string_lossy(),
            m.target.to_string_lossy()
        )),
    }
}
