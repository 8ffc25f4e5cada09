//! Why a run in the rig gave no result. A program that ran and failed is not an error.

use std::path::PathBuf;
use std::time::Duration;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An asset could not be fetched or the initramfs not be written.
    #[error(transparent)]
    Images(#[from] forebay_images::Error),

    /// An operation on the host failed.
    #[error("rig: cannot {operation} {}: {source}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// A file to pack does not exist.
    #[error("rig: {}: no such file on the host; build it first, or name a command of L1's busybox", path.display())]
    NoSuchFile {
        /// The file as named.
        path: PathBuf,
    },

    /// A library that a packed program needs was not found on the host.
    #[error("rig: {} needs {library}, which is not installed here", program.display())]
    MissingLibrary {
        /// The program.
        program: PathBuf,
        /// The library's name.
        library: String,
    },

    /// The emulator could not be started.
    #[error("rig: cannot start qemu-system-x86_64: {source}; install the package qemu-system-x86")]
    NoEmulator {
        /// What the system said.
        source: std::io::Error,
    },

    /// The emulator ended before the program did.
    #[error(
        "rig: L1 ended while {phase} ({cause}) after {:.1} s; last lines of its console:\n{console}",
        after.as_secs_f64()
    )]
    Ended {
        /// What was under way.
        phase: Phase,
        /// What is known of the reason.
        cause: String,
        /// Since the start of the run.
        after: Duration,
        /// The console's and the emulator's last lines.
        console: String,
    },

    /// A deadline passed.
    #[error(
        "rig: L1 was still {phase} after {} s, its deadline; it hangs or the host is overloaded. \
         Last lines of its console:\n{console}",
        deadline.as_secs()
    )]
    Deadline {
        /// What was under way.
        phase: Phase,
        /// The deadline that passed.
        deadline: Duration,
        /// The console's last lines.
        console: String,
    },

    /// L1 stopped running programs while the emulator still ran.
    #[error(
        "rig: L1 has not shown life for {} s: its kernel or the emulator hangs. Last lines of its \
         console:\n{console}",
        silence.as_secs()
    )]
    Hung {
        /// How long nothing came.
        silence: Duration,
        /// The console's last lines.
        console: String,
    },

    /// The program ended, and not all of its output arrived.
    #[error(
        "rig: the program ended, but its output stopped arriving {} s ago with a part missing. Last \
         lines of L1's console:\n{console}",
        deadline.as_secs()
    )]
    OutputLost {
        /// How long nothing came.
        deadline: Duration,
        /// The console's last lines.
        console: String,
    },

    /// L1 is up but could not run the program.
    #[error("rig: L1 could not run the program: {reason}")]
    NotRun {
        /// The reason as L1's init gives it.
        reason: String,
    },

    /// L1 said something that is not part of the protocol.
    #[error("rig: cannot understand L1's init ({said:?}); was it built from another version?")]
    Protocol {
        /// The line.
        said: String,
    },
}

impl Error {
    /// Whether a new run may well succeed: the emulator, or the system in it, broke down under the
    /// program or before it. No program can do that to a sound one, so it says nothing about the
    /// program. Not so if L1 did not come up: [`run`](crate::run) has tried that again already.
    #[must_use]
    pub fn emulator_at_fault(&self) -> bool {
        match self {
            Self::Hung { .. } | Self::OutputLost { .. } | Self::Protocol { .. } => true,
            Self::Ended { phase, .. } => *phase == Phase::Running,
            _ => false,
        }
    }

    /// Whether the program was still running at its deadline. It hangs, or L1 under it stands still
    /// in a way that does not show: only a new run can tell.
    #[must_use]
    pub fn is_deadline(&self) -> bool {
        matches!(self, Self::Deadline { phase, .. } if *phase == Phase::Running)
    }

    /// Whether L1 broke down or hung before the program ran.
    pub(crate) fn is_of_the_boot(&self) -> bool {
        match self {
            Self::Ended { phase, .. } | Self::Deadline { phase, .. } => *phase == Phase::Booting,
            _ => false,
        }
    }

    pub(crate) fn file(
        operation: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File {
            operation,
            path,
            source,
        }
    }
}

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// From the emulator's start to the report of L1's init.
    Booting,
    /// The program is running.
    Running,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Booting => "booting",
            Self::Running => "running the program",
        })
    }
}
