//! Signal numbers of the guest, with their names.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A signal of the guest's kernel (Linux, x86-64 numbering), 1 to 64.
///
/// The constants are the ones that programs usually meet; [`Signal::new`] makes any other,
/// real-time signals included. Shown and serialized as its name (`SIGTERM`), or as `SIG40` where
/// it has none of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

/// Names of 1 to 31, in order.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// Highest signal number of Linux.
const MAX: u32 = 64;

impl Signal {
    /// Hang-up.
    pub const HUP: Self = Self(1);
    /// Interrupt, as by ^C.
    pub const INT: Self = Self(2);
    /// Quit, as by ^\.
    pub const QUIT: Self = Self(3);
    /// Kill: cannot be caught. For the whole execution prefer `kill`.
    pub const KILL: Self = Self(9);
    /// User-defined 1.
    pub const USR1: Self = Self(10);
    /// User-defined 2.
    pub const USR2: Self = Self(12);
    /// Write to a pipe that nobody reads.
    pub const PIPE: Self = Self(13);
    /// Alarm clock.
    pub const ALRM: Self = Self(14);
    /// Asks to terminate.
    pub const TERM: Self = Self(15);
    /// Continue if stopped.
    pub const CONT: Self = Self(18);
    /// Stop: cannot be caught.
    pub const STOP: Self = Self(19);

    /// The signal with this number, `None` outside 1 to 64.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number >= 1 && number <= MAX {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// The signal that is shown by this name, with or without `SIG`, in any case: `SIGTERM`,
    /// `term`, `SIG40`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        (1..=MAX).filter_map(Self::new).find(|signal| {
            let known = signal.to_string();
            known.eq_ignore_ascii_case(name)
                || known
                    .strip_prefix("SIG")
                    .is_some_and(|short| short.eq_ignore_ascii_case(name))
        })
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Its name, `None` for real-time signals (32 and up).
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.get(usize::from(self.0).checked_sub(1)?).copied()
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "SIG{}", self.0),
        }
    }
}

impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::from_name(&name)
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&name), &"a signal's name"))
    }
}

#[cfg(test)]
#[path = "signal_test.rs"]
mod tests;
