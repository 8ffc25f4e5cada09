//! The server's last frame on a connection: why it ends it.
//!
//! It is of a kind that no guest sends and optional: a client that does not know it skips it and
//! sees a connection that was closed. It goes out if the socket takes it at once, and is never
//! waited for.

use forebay_exec_proto::frame::OPTIONAL;
use forebay_exec_proto::{HEADER_LEN, Header, TEXT_MAX};

/// Outside what a VM's port knows, [`FromGuest`](forebay_exec_proto::frame::FromGuest).
const KIND: u8 = 0xf0;

/// The frame that says `reason`, of which at most 4 KiB are said.
pub(super) fn encode(reason: &str) -> Vec<u8> {
    let mut end = reason.len().min(TEXT_MAX);
    while !reason.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let text = reason.get(..end).unwrap_or_default();
    let header = Header {
        // At most `TEXT_MAX`.
        len: u32::try_from(text.len()).unwrap_or_default(),
        kind: KIND,
        flags: OPTIONAL,
        reserved: 0,
        exec: 0,
    };
    let mut frame = header.encode().to_vec();
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// The length of the text behind `head`, if that begins the last words.
pub(super) fn announced(head: &[u8; HEADER_LEN]) -> Option<usize> {
    let header = Header::decode(head);
    let len = usize::try_from(header.len).ok()?;
    (header.kind == KIND && len <= TEXT_MAX).then_some(len)
}
