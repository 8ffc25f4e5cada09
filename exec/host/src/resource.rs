//! The resources that `setrlimit(2)` limits, by Linux's numbers and names.

use std::fmt;
use std::str::FromStr;

/// What [`Exec::rlimit`](crate::Exec::rlimit) limits, for each process by itself; see
/// `setrlimit(2)` for what a program meets at a limit.
///
/// Shown and parsed by the names that `docker run --ulimit` has: `nofile`, `nproc`, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Resource {
    /// CPU time in seconds; SIGXCPU at the soft limit, SIGKILL at the hard one.
    Cpu = 0,
    /// Bytes of a file that it writes; SIGXFSZ.
    Fsize = 1,
    /// Bytes of its data segment.
    Data = 2,
    /// Bytes of its stack; SIGSEGV.
    Stack = 3,
    /// Bytes of a core dump.
    Core = 4,
    /// Bytes of resident memory; Linux ignores it.
    Rss = 5,
    /// Processes of its user in the whole guest; root is not held to it. For a limit on one
    /// execution see [`Exec::process_limit`](crate::Exec::process_limit).
    Nproc = 6,
    /// One more than the highest descriptor that it may open.
    Nofile = 7,
    /// Bytes that it may lock into memory.
    Memlock = 8,
    /// Bytes of its address space.
    As = 9,
    /// Number of file locks; Linux ignores it.
    Locks = 10,
    /// Signals that may be queued for its user.
    Sigpending = 11,
    /// Bytes in POSIX message queues of its user.
    Msgqueue = 12,
    /// 20 less the lowest nice value that it may give itself.
    Nice = 13,
    /// Highest real-time priority that it may give itself.
    Rtprio = 14,
    /// Microseconds of real-time CPU time without a system call that blocks.
    Rttime = 15,
}

impl Resource {
    /// No limit.
    pub const UNLIMITED: u64 = u64::MAX;

    /// All there are, in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Cpu,
        Self::Fsize,
        Self::Data,
        Self::Stack,
        Self::Core,
        Self::Rss,
        Self::Nproc,
        Self::Nofile,
        Self::Memlock,
        Self::As,
        Self::Locks,
        Self::Sigpending,
        Self::Msgqueue,
        Self::Nice,
        Self::Rtprio,
        Self::Rttime,
    ];

    /// Its name, such as `nofile`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Fsize => "fsize",
            Self::Data => "data",
            Self::Stack => "stack",
            Self::Core => "core",
            Self::Rss => "rss",
            Self::Nproc => "nproc",
            Self::Nofile => "nofile",
            Self::Memlock => "memlock",
            Self::As => "as",
            Self::Locks => "locks",
            Self::Sigpending => "sigpending",
            Self::Msgqueue => "msgqueue",
            Self::Nice => "nice",
            Self::Rtprio => "rtprio",
            Self::Rttime => "rttime",
        }
    }

    /// Its number in Linux's generic ABI.
    pub(crate) const fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no [`Resource`] has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is no resource; there are {}",
    Resource::ALL.map(Resource::name).join(", ")
)]
#[non_exhaustive]
pub struct UnknownResource {
    /// The name.
    pub name: String,
}

impl FromStr for Resource {
    type Err = UnknownResource;

    fn from_str(name: &str) -> Result<Self, UnknownResource> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownResource {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
#[path = "resource_test.rs"]
mod tests;
