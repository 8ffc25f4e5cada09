//! Bodies of the frames by which a client of a relay leaves an execution, and takes one over.

use core::time::Duration;

use minicbor::{Decode, Encode};

use super::{ExitStatus, StdinError};

/// What is left of an execution's deadline, for whoever keeps it from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Timeout {
    /// What the execution was given, counted from its admission.
    #[n(0)]
    pub limit: Duration,
    /// What is left of that.
    #[n(1)]
    pub left: Duration,
    /// What was left of it when the program started.
    #[n(2)]
    pub at_start: Duration,
}

/// Asks a relay to let an execution go on for whoever adopts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Leave {
    /// Its deadline, if it has one.
    #[n(0)]
    pub timeout: Option<Timeout>,
}

/// An execution that a client of a relay takes over, as it stands in the VM.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Adopted {
    /// The program's process id in the guest; `None` if nobody was told of its start yet.
    #[n(0)]
    pub pid: Option<u32>,
    /// It has a terminal.
    #[n(1)]
    pub on_terminal: bool,
    /// Its stdin can be written.
    #[n(2)]
    pub stdin_open: bool,
    /// Why the command no longer reads its stdin, if that was told before.
    #[n(3)]
    pub stdin_error: Option<StdinError>,
    /// Bytes of stdin that were accepted before.
    #[n(4)]
    pub stdin_accepted: u64,
    /// Bytes of stdout that were consumed before.
    #[n(5)]
    pub stdout_consumed: u64,
    /// Bytes of stderr that were consumed before.
    #[n(6)]
    pub stderr_consumed: u64,
}

/// A command that was ended by a deadline of the relay's VM.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TimedOut {
    /// What it was given.
    #[n(0)]
    pub limit: Duration,
    /// How it ended.
    #[n(1)]
    pub status: ExitStatus,
}

#[cfg(test)]
#[path = "adoption_test.rs"]
mod tests;
