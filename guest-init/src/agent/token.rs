//! What an epoll event means, as the 64 bits that epoll keeps for it.

use forebay_exec_proto::ExecId;

/// The source of an event. An execution's sources carry its id, which is never used again, so an
/// event that was fetched before its source was closed finds nothing and harms nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// The agent port.
    Port,
    /// Signals of PID 1.
    Signals,
    /// Leaves that may have become empty.
    Leaves,
    /// A start that succeeded or failed.
    Status(ExecId),
    /// A leader that ended.
    Leader(ExecId),
    /// A command's stdout.
    Stdout(ExecId),
    /// A command's stderr.
    Stderr(ExecId),
    /// A command's stdin.
    Stdin(ExecId),
    /// A pipe that outlives its execution.
    Lingering(u64),
}

/// Bits of the kind.
const KIND: u32 = 4;

/// Largest id that an event can carry. A VM that starts a million commands a second reaches it
/// after 36 thousand years.
pub(super) const ID_MAX: u64 = u64::MAX >> KIND;

impl Token {
    /// As epoll keeps it.
    pub(super) fn encode(self) -> u64 {
        let (kind, number) = match self {
            Self::Port => (0, 0),
            Self::Signals => (1, 0),
            Self::Leaves => (2, 0),
            Self::Status(id) => (3, id.get()),
            Self::Leader(id) => (4, id.get()),
            Self::Stdout(id) => (5, id.get()),
            Self::Stderr(id) => (6, id.get()),
            Self::Stdin(id) => (7, id.get()),
            Self::Lingering(number) => (8, number),
        };
        (number << KIND) | kind
    }

    /// As it was before [`encode`](Self::encode).
    pub(super) fn decode(data: u64) -> Option<Self> {
        let number = data >> KIND;
        let id = || ExecId::new(number);
        Some(match data & ((1 << KIND) - 1) {
            0 => Self::Port,
            1 => Self::Signals,
            2 => Self::Leaves,
            3 => Self::Status(id()?),
            4 => Self::Leader(id()?),
            5 => Self::Stdout(id()?),
            6 => Self::Stderr(id()?),
            7 => Self::Stdin(id()?),
            8 => Self::Lingering(number),
            _ => return None,
        })
    }
}

#[cfg(test)]
#[path = "token_test.rs"]
mod tests;
