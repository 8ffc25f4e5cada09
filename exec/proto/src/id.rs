//! Execution ids: chosen by the host, never zero, never used twice in a VM's life.

use core::fmt;
use core::num::NonZeroU64;

use minicbor::{Decode, Encode};

/// Names one execution for the life of its VM, snapshot and restore included. Because an id is
/// never used again, a late acknowledgement or signal can never reach another execution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ExecId(#[n(0)] NonZeroU64);

impl ExecId {
    /// The id `value`, or `None` for zero.
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The number as it stands in a frame header.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for ExecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExecId({})", self.0)
    }
}

impl fmt::Display for ExecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// All 2⁶⁴ − 1 ids of this VM are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdSpaceExhausted;

/// Hands out ids in rising order. Its one number is the whole state, so that saving it is
/// enough to never repeat an id after a restore.
#[derive(Debug, Clone)]
pub(crate) struct IdSource {
    last: u64,
}

impl IdSource {
    pub(crate) const fn new() -> Self {
        Self { last: 0 }
    }

    pub(crate) fn next(&mut self) -> Result<ExecId, IdSpaceExhausted> {
        let next = self.last.checked_add(1).ok_or(IdSpaceExhausted)?;
        self.last = next;
        ExecId::new(next).ok_or(IdSpaceExhausted)
    }

    /// Goes on behind `last`, the last id that was handed out; zero for none.
    pub(crate) const fn after(last: u64) -> Self {
        Self { last }
    }

    /// The last id that was handed out, zero for none.
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// Whether `id` was handed out before.
    pub(crate) fn issued(&self, id: ExecId) -> bool {
        id.get() <= self.last
    }
}

#[cfg(test)]
#[path = "id_test.rs"]
mod tests;
