//! The bytes of a saved state, and the strict way back, for every device of this project.
//!
//! A record is CBOR: a version, then one array whose order the state's struct gives. A version is
//! never changed, only followed by another. Bytes that come back are input like any other:
//! [`decode`] reads the form to the last byte and accepts nothing that [`encode`] would not have
//! written; what the numbers mean is judged by the restore that follows. Neither allocates more
//! than a small multiple of what it was given.

use std::fmt;

use minicbor::{Decode, Decoder, Encode};

use crate::queue_config::QueueConfigError;

/// A saved device, or its transport, that cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Another version of the saved form.
    #[error(
        "the saved {what} has version {found}, this library reads {supported}; restore it with the \
         library that saved it"
    )]
    Version {
        /// Of what.
        what: &'static str,
        /// What was found.
        found: u32,
        /// What this library reads.
        supported: u32,
    },
    /// Cut off, or not what was written.
    #[error("the saved {what} cannot be read: {reason}; take the snapshot again")]
    Malformed {
        /// Of what.
        what: &'static str,
        /// What is wrong, for people.
        reason: String,
    },
    /// A state that no live object could have had.
    #[error("the saved {what} contradicts itself: {rule}; take the snapshot again")]
    Rule {
        /// Of what.
        what: &'static str,
        /// What is wrong, for people.
        rule: &'static str,
    },
    /// A queue of a running device that this guest's memory cannot hold.
    #[error("queue {queue} of the saved virtio transport cannot live in this guest: {error}")]
    Queue {
        /// Its index.
        queue: usize,
        /// What is wrong with it.
        error: QueueConfigError,
    },
}

/// `Err(rule)` unless it `holds`.
///
/// # Errors
/// The rule, if it does not.
pub fn must(holds: bool, rule: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(rule) }
}

/// The bytes of a record.
#[must_use]
pub fn encode<T: Encode<()>>(version: u32, state: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Infallible: the writer is a growing vector and the states have no failing encoder.
    let _: Result<(), _> = minicbor::encode((version, state), &mut bytes);
    bytes
}

/// Reads a record of `what`, which must be of this `version`, to the last byte.
///
/// # Errors
/// [`RestoreError::Version`] or [`RestoreError::Malformed`].
pub fn decode<T>(what: &'static str, version: u32, bytes: &[u8]) -> Result<T, RestoreError>
where
    T: for<'b> Decode<'b, ()> + Encode<()>,
{
    let malformed = |reason: &dyn fmt::Display| RestoreError::Malformed {
        what,
        reason: reason.to_string(),
    };
    let mut decoder = Decoder::new(bytes);
    if decoder.array().map_err(|error| malformed(&error))? != Some(2) {
        return Err(malformed(&"it is not a version and a state"));
    }
    let found = decoder.u32().map_err(|error| malformed(&error))?;
    if found != version {
        return Err(RestoreError::Version {
            what,
            found,
            supported: version,
        });
    }
    let state: T = decoder.decode().map_err(|error| malformed(&error))?;
    let more = bytes.len().saturating_sub(decoder.position());
    if more > 0 {
        return Err(malformed(&format_args!("{more} bytes follow it")));
    }
    // The decoder skips fields that it does not know, and takes other forms of the same.
    if encode(version, &state) != bytes {
        return Err(malformed(
            &"it holds what this library does not know, or would not write",
        ));
    }
    Ok(state)
}

#[cfg(test)]
#[path = "saved_test.rs"]
mod tests;
