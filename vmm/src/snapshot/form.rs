//! The bytes of a record: CBOR by position, and KVM's structs as they are.
//!
//! Reading is strict: what this library would not have written is an error, since it would be
//! forgotten. Nothing is allocated but a small multiple of what is read.

use minicbor::{Decode, Encode};
use zerocopy::FromBytes;

use super::error::RestoreError;

/// A record's bytes.
pub(crate) fn encode(value: &impl Encode<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A vector takes everything.
    let _ = minicbor::encode(value, &mut bytes);
    bytes
}

/// The way back, to the last byte.
pub(crate) fn decode<T>(record: &str, bytes: &[u8]) -> Result<T, RestoreError>
where
    T: Encode<()> + for<'b> Decode<'b, ()>,
{
    let mut decoder = minicbor::Decoder::new(bytes);
    let value: T = decoder
        .decode()
        .map_err(|e| RestoreError::malformed(record, e.to_string()))?;
    // The decoder skips fields that it does not know, and takes other forms of the same.
    if encode(&value) != bytes {
        let reason = "it holds what this library does not know, or would not write";
        return Err(RestoreError::malformed(record, reason));
    }
    Ok(value)
}

/// One of KVM's structs, of exactly its length.
pub(crate) fn one<T: FromBytes>(
    record: &str,
    field: &str,
    bytes: &[u8],
) -> Result<T, RestoreError> {
    T::read_from_bytes(bytes).map_err(|_| wrong_length::<T>(record, field, bytes.len()))
}

/// Any number of one of KVM's structs.
pub(crate) fn several<T: FromBytes>(
    record: &str,
    field: &str,
    bytes: &[u8],
) -> Result<Vec<T>, RestoreError> {
    let each = bytes.chunks(size_of::<T>());
    each.map(|bytes| one(record, field, bytes)).collect()
}

fn wrong_length<T>(record: &str, field: &str, len: usize) -> RestoreError {
    let want = size_of::<T>();
    RestoreError::malformed(
        record,
        format!("`{field}` has {len} bytes where KVM's struct has {want}"),
    )
}

#[cfg(test)]
#[path = "form_test.rs"]
mod tests;
