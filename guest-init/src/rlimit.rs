//! Limits of a command's processes: `setrlimit(2)`, as the request asks.
//!
//! The child sets them while it is still root, so that a hard limit may be raised for a user who may
//! not. The host has checked them; they are checked again, as nothing that arrives is trusted.

use forebay_exec_proto::{Failure, FailureKind, RLIMITS_MAX, Rlimit};
use rustix::io::Errno;
use rustix::process::{Resource, setrlimit};

use crate::failure::refused;

/// A kind of limit.
pub(crate) struct Kind {
    resource: Resource,
    /// As requests call it.
    pub(crate) name: &'static str,
    /// The step of setting it.
    pub(crate) stage: &'static str,
}

macro_rules! kind {
    ($resource:ident, $name:literal, $symbol:literal) => {
        Kind {
            resource: Resource::$resource,
            name: $name,
            stage: concat!("setrlimit(", $symbol, ")"),
        }
    };
}

/// By number in Linux's generic ABI.
static KINDS: [Kind; RLIMITS_MAX] = [
    kind!(Cpu, "cpu", "CPU"),
    kind!(Fsize, "fsize", "FSIZE"),
    kind!(Data, "data", "DATA"),
    kind!(Stack, "stack", "STACK"),
    kind!(Core, "core", "CORE"),
    kind!(Rss, "rss", "RSS"),
    kind!(Nproc, "nproc", "NPROC"),
    kind!(Nofile, "nofile", "NOFILE"),
    kind!(Memlock, "memlock", "MEMLOCK"),
    kind!(As, "as", "AS"),
    kind!(Locks, "locks", "LOCKS"),
    kind!(Sigpending, "sigpending", "SIGPENDING"),
    kind!(Msgqueue, "msgqueue", "MSGQUEUE"),
    kind!(Nice, "nice", "NICE"),
    kind!(Rtprio, "rtprio", "RTPRIO"),
    kind!(Rttime, "rttime", "RTTIME"),
];

/// Number of the limit on open files.
pub(crate) const NOFILE: u8 = 7;

/// The kind with this number.
pub(crate) fn kind(number: u8) -> Option<&'static Kind> {
    KINDS.get(usize::from(number))
}

/// Checked limits, by the number of their kind.
#[derive(Debug, Default)]
pub(crate) struct Rlimits([Option<(Resource, rustix::process::Rlimit)>; RLIMITS_MAX]);

impl Rlimits {
    /// Checks the limits of a request.
    pub(crate) fn new(asked: &[Rlimit]) -> Result<Self, Failure> {
        let mut limits = Self::default();
        for limit in asked {
            let number = usize::try_from(limit.resource).unwrap_or(usize::MAX);
            let (Some(kind), Some(place)) = (KINDS.get(number), limits.0.get_mut(number)) else {
                return Err(bad(format!(
                    "there is no limit with the number {}",
                    limit.resource
                )));
            };
            if limit.soft > limit.hard {
                return Err(bad(format!(
                    "the soft limit {} of {} is above the hard limit {}",
                    shown(limit.soft),
                    kind.name,
                    shown(limit.hard)
                )));
            }
            let value = rustix::process::Rlimit {
                current: finite(limit.soft),
                maximum: finite(limit.hard),
            };
            if place.replace((kind.resource, value)).is_some() {
                return Err(bad(format!("the limit {} is given twice", kind.name)));
            }
        }
        Ok(limits)
    }

    /// Sets them for the calling process, in the order of their numbers, and the limit on open
    /// files in any case. Allocates nothing, and looks into no table: see [`crate::spawn`]. On failure,
    /// the number of the one that was refused.
    #[inline]
    pub(crate) fn apply(&self, open_files: rustix::process::Rlimit) -> Result<(), (u8, Errno)> {
        for (number, limit) in (0u8..).zip(&self.0) {
            let default = (number == NOFILE).then_some((Resource::Nofile, open_files));
            if let Some((resource, limit)) = limit.or(default) {
                setrlimit(resource, limit).map_err(|errno| (number, errno))?;
            }
        }
        Ok(())
    }

    /// A limit's values for a message.
    pub(crate) fn shown(&self, number: u8) -> String {
        match self.0.get(usize::from(number)) {
            Some(Some((_, limit))) => format!(
                "{} (soft) and {} (hard)",
                shown(limit.current.unwrap_or(u64::MAX)),
                shown(limit.maximum.unwrap_or(u64::MAX))
            ),
            _ => "its default".to_owned(),
        }
    }
}

/// `u64::MAX` is no limit.
fn finite(value: u64) -> Option<u64> {
    (value != u64::MAX).then_some(value)
}

fn shown(value: u64) -> String {
    finite(value).map_or_else(|| "unlimited".to_owned(), |value| value.to_string())
}

fn bad(message: String) -> Failure {
    refused(FailureKind::ResourceLimit, message)
}

#[cfg(test)]
#[path = "rlimit_test.rs"]
mod tests;
