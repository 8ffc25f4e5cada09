//! How a command ended.

use std::time::Duration;

use forebay_exec_proto as proto;
use serde::{Deserialize, Serialize};

use crate::signal::Signal;
use crate::usage::Usage;

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
/// Like [`std::process::ExitStatus`], with the signal by name, and beside it how long the command
/// ran, what it used, and whether its deadline or a want of memory was the end of it. There is no
/// raw wait status.
///
/// Serialized, and read again, as
///
/// | field | value |
/// |---|---|
/// | `code` | the exit code, 0 to 255; −1 when a signal ended it |
/// | `signal` | that signal's name, such as `"SIGKILL"`; null when it exited by itself |
/// | `timed_out` | [`timed_out`](Self::timed_out) |
/// | `oom_killed` | [`oom_killed`](Self::oom_killed), null when that is not known |
/// | `duration_us` | [`duration`](Self::duration) in microseconds |
/// | `usage` | [`Usage`] |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Form", try_from = "Form")]
pub struct ExitStatus {
    exit: Exit,
    pub(crate) timed_out: bool,
    oom_killed: Option<bool>,
    duration: Duration,
    usage: Usage,
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

    /// Whether its [timeout](crate::Exec::timeout) ended it: the deadline had passed, and SIGKILL
    /// was the end. One that exits by itself about then has not timed out.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// Whether the guest's kernel killed a process of it for want of memory; `None` if that is not
    /// known. It need not have been the first process: a shell goes on when a command that it ran
    /// was killed, and may exit with any code.
    #[must_use]
    pub fn oom_killed(&self) -> Option<bool> {
        self.oom_killed
    }

    /// What it used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
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
            // The guest knows of no deadlines.
            timed_out: false,
            oom_killed: status.oom_killed,
            duration: Duration::from_micros(status.duration_us),
            usage: status.usage.as_ref().map(Usage::from).unwrap_or_default(),
        })
    }
}

/// `exit code 3`, or `ended by SIGKILL`; with `(timed out)` or `(out of memory)` behind it where
/// that is so.
impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.exit {
            Exit::Code(code) => write!(f, "exit code {code}")?,
            Exit::Signal(signal) => write!(f, "ended by {signal}")?,
        }
        if self.timed_out {
            f.write_str(" (timed out)")?;
        } else if self.oom_killed == Some(true) {
            f.write_str(" (out of memory)")?;
        }
        Ok(())
    }
}

/// What an [`ExitStatus`] is serialized as.
#[derive(Serialize, Deserialize)]
#[serde(rename = "ExitStatus")]
struct Form {
    code: i32,
    signal: Option<Signal>,
    timed_out: bool,
    oom_killed: Option<bool>,
    duration_us: u64,
    usage: Usage,
}

impl From<ExitStatus> for Form {
    fn from(status: ExitStatus) -> Self {
        Self {
            code: status.code().unwrap_or(-1),
            signal: status.signal(),
            timed_out: status.timed_out,
            oom_killed: status.oom_killed,
            duration_us: u64::try_from(status.duration.as_micros()).unwrap_or(u64::MAX),
            usage: status.usage,
        }
    }
}

impl TryFrom<Form> for ExitStatus {
    type Error = &'static str;

    fn try_from(form: Form) -> Result<Self, &'static str> {
        let exit = match (form.code, form.signal) {
            (code @ 0..=255, None) => Exit::Code(code),
            (-1, Some(signal)) => Exit::Signal(signal),
            _ => return Err("no process ends so: a code is 0 to 255, or -1 beside a signal"),
        };
        if form.timed_out && exit != Exit::Signal(Signal::KILL) {
            return Err("no process ends so: a timeout is the end only by SIGKILL");
        }
        Ok(Self {
            exit,
            timed_out: form.timed_out,
            oom_killed: form.oom_killed,
            duration: Duration::from_micros(form.duration_us),
            usage: form.usage,
        })
    }
}

#[cfg(test)]
#[path = "status_test.rs"]
mod tests;
