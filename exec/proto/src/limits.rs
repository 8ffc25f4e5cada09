//! The limits that the host advertises and both ends enforce.

use core::fmt;

use minicbor::{Decode, Encode};

use crate::frame::{CHUNK_CHARGE, FRAME_MAX, HEADER_LEN};

/// What one VM allows its executions to hold outstanding. The host owns the values; they reach
/// the guest in its bootstrap message and come back in its Ready.
///
/// They bound data under way. They are neither totals over an execution's life nor rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Limits {
    /// Executions admitted at once, over all clients of the VM.
    #[n(0)]
    pub max_executions: u32,
    /// Stdin bytes per execution that were sent and not yet written into the command's stdin.
    #[n(1)]
    pub input_limit: u32,
    /// Output units per execution that were sent and not yet consumed by the application,
    /// stdout and stderr together. A chunk costs its bytes plus
    /// [`CHUNK_CHARGE`].
    #[n(2)]
    pub output_limit: u32,
    /// Largest stdin payload in one frame, in bytes.
    #[n(3)]
    pub stdin_chunk_size: u32,
    /// Largest stdout or stderr payload in one frame, in bytes.
    #[n(4)]
    pub output_chunk_size: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_executions: 128,
            input_limit: 64 * 1024,
            output_limit: 1024 * 1024,
            stdin_chunk_size: 16 * 1024,
            output_chunk_size: 16 * 1024,
        }
    }
}

/// A set of limits that cannot work: which field, its value, and the bound it misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitError {
    /// The field's name in [`Limits`].
    pub field: &'static str,
    /// The refused value.
    pub value: u32,
    /// Smallest value that would have been accepted beside the other fields.
    pub min: u32,
    /// Largest value that would have been accepted beside the other fields.
    pub max: u32,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is {}, it must be between {} and {}",
            self.field, self.value, self.min, self.max
        )
    }
}

impl core::error::Error for LimitError {}

/// Largest payload of a frame, in bytes.
#[allow(clippy::cast_possible_truncation, reason = "a constant below 32 KiB")]
const PAYLOAD_MAX: u32 = (FRAME_MAX - HEADER_LEN) as u32;

impl Limits {
    /// Checks the values against each other and against the frame ceiling. Zero is an error,
    /// never "unlimited".
    ///
    /// # Errors
    /// The first field that is out of its bounds.
    pub fn validate(&self) -> Result<(), LimitError> {
        let check = |field, value, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(LimitError {
                    field,
                    value,
                    min,
                    max,
                })
            }
        };
        let charge = CHUNK_CHARGE;
        check("max_executions", self.max_executions, 1, u32::MAX)?;
        check("stdin_chunk_size", self.stdin_chunk_size, 1, PAYLOAD_MAX)?;
        check("output_chunk_size", self.output_chunk_size, 1, PAYLOAD_MAX)?;
        check(
            "input_limit",
            self.input_limit,
            self.stdin_chunk_size,
            u32::MAX,
        )?;
        check(
            "output_limit",
            self.output_limit,
            self.output_chunk_size.saturating_add(charge),
            u32::MAX,
        )
    }
}

#[cfg(test)]
#[path = "limits_test.rs"]
mod tests;
