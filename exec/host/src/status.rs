//! How a command ended, and what it wrote.

use std::str::Utf8Error;
use std::time::Duration;

use forebay_exec_proto as proto;
use serde::{Serialize, Serializer};

use crate::signal::Signal;

/// The two ways a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// It exited by itself with this code, 0 to 255.
    Code(i32),
    /// This signal ended it.
    Signal(Signal),
}

/// How a command ended.
///
/// Like [`std::process::ExitStatus`], with the signal by name and the duration beside it. There
/// is no raw wait status. Serialized as `code` (−1 when a signal ended it), `signal` (its name or
/// null) and `duration_us`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitStatus {
    exit: Exit,
    duration: Duration,
}

impl ExitStatus {
    /// Whether it exited with code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.exit == Exit::Code(0)
    }

    /// Which of the two ways.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// The exit code, `None` if a signal ended it.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        match self.exit {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) => None,
        }
    }

    /// The signal that ended it, `None` if it exited by itself.
    #[must_use]
    pub fn signal(&self) -> Option<Signal> {
        match self.exit {
            Exit::Code(_) => None,
            Exit::Signal(signal) => Some(signal),
        }
    }

    /// The name of the signal that ended it, such as `SIGKILL`.
    #[must_use]
    pub fn signal_name(&self) -> Option<String> {
        self.signal().map(|signal| signal.to_string())
    }

    /// Start of the program to its end, by the guest's clock, in steps of a microsecond.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Takes what the guest reported. `None` if no process can end so, which the protocol core
    /// takes for a broken rule and lets nobody see.
    pub(crate) fn from_wire(status: &proto::ExitStatus) -> Option<Self> {
        let exit = match (status.code, status.signal) {
            (Some(code), None) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(Signal::new(signal)?),
            _ => return None,
        };
        Some(Self {
            exit,
            duration: Duration::from_micros(status.duration_us),
        })
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.exit {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "ended by {signal}"),
        }
    }
}

impl Serialize for ExitStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ExitStatus {
            code: i32,
            signal: Option<Signal>,
            duration_us: u64,
        }
        ExitStatus {
            code: self.code().unwrap_or(-1),
            signal: self.signal(),
            duration_us: u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX),
        }
        .serialize(serializer)
    }
}

/// How a command ended, with all that it wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecOutput {
    pub(crate) status: ExitStatus,
    #[serde(serialize_with = "as_bytes")]
    pub(crate) stdout: Vec<u8>,
    #[serde(serialize_with = "as_bytes")]
    pub(crate) stderr: Vec<u8>,
}

fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

impl ExecOutput {
    /// How it ended.
    #[must_use]
    pub fn status(&self) -> &ExitStatus {
        &self.status
    }

    /// All bytes of its stdout.
    #[must_use]
    pub fn stdout(&self) -> &[u8] {
        &self.stdout
    }

    /// All bytes of its stderr.
    #[must_use]
    pub fn stderr(&self) -> &[u8] {
        &self.stderr
    }

    /// Its stdout as text.
    ///
    /// # Errors
    /// It is not UTF-8; the error says from which byte on.
    pub fn stdout_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.stdout)
    }

    /// Its stderr as text.
    ///
    /// # Errors
    /// It is not UTF-8; the error says from which byte on.
    pub fn stderr_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.stderr)
    }

    /// Stdout and stderr, without a copy.
    #[must_use]
    pub fn into_streams(self) -> (Vec<u8>, Vec<u8>) {
        (self.stdout, self.stderr)
    }
}
