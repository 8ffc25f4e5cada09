//! The client's reading of the server's stream: header, verdict, payload.
//!
//! Holds at most one frame. A payload is read into an allocation of its own size, which is made
//! only after its header was judged and is at most what one frame may hold.

use forebay_exec_proto::{HEADER_LEN, Header};

use super::last_words;
use crate::hub::Hub;
use forebay_exec_proto::host::Verdict;

/// Why nothing more is to be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    /// The server broke the protocol.
    #[error("the program that has the VM broke the exec protocol: {0}")]
    Fault(&'static str),
    /// It said why it ends the connection.
    #[error("{0}")]
    Told(String),
}

/// A frame coming in.
#[derive(Debug)]
pub(super) struct Inbox {
    head: [u8; HEADER_LEN],
    have: usize,
    body: Option<Body>,
}

#[derive(Debug)]
enum Body {
    /// This much of it is still to come.
    Accepted { payload: Vec<u8>, left: usize },
    /// The server's last words, of which this much is still to come.
    LastWords { text: Vec<u8>, left: usize },
    /// This much is to be skipped.
    Discarded { left: usize },
}

impl Inbox {
    pub(super) const fn new() -> Self {
        Self {
            head: [0; HEADER_LEN],
            have: 0,
            body: None,
        }
    }

    /// Takes bytes of the stream, in whatever pieces they came.
    ///
    /// # Errors
    /// The connection cannot go on, and why.
    pub(super) fn take(&mut self, hub: &Hub, mut bytes: &[u8]) -> Result<(), Ended> {
        loop {
            let body = match &mut self.body {
                Some(body) => body,
                None => {
                    bytes = self.fill_head(bytes);
                    if self.have < HEADER_LEN {
                        return Ok(());
                    }
                    self.have = 0;
                    let body = open(hub, &self.head)?;
                    self.body.insert(body)
                }
            };
            let left = match body {
                Body::Accepted { left, .. }
                | Body::LastWords { left, .. }
                | Body::Discarded { left } => left,
            };
            let (piece, rest) = bytes.split_at(bytes.len().min(*left));
            bytes = rest;
            *left = left.saturating_sub(piece.len());
            let whole = *left == 0;
            if let Body::Accepted { payload: into, .. } | Body::LastWords { text: into, .. } = body
            {
                into.extend_from_slice(piece);
            }
            if !whole {
                return Ok(());
            }
            match self.body.take() {
                Some(Body::Accepted { payload, .. }) => {
                    hub.deliver(payload).map_err(Ended::Fault)?;
                }
                Some(Body::LastWords { text, .. }) => {
                    return Err(Ended::Told(String::from_utf8_lossy(&text).into_owned()));
                }
                Some(Body::Discarded { .. }) | None => {}
            }
        }
    }

    /// Moves bytes into the header; gives the rest.
    fn fill_head<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let missing = HEADER_LEN.saturating_sub(self.have);
        let (piece, rest) = bytes.split_at(bytes.len().min(missing));
        let end = self.have.saturating_add(piece.len());
        if let Some(slot) = self.head.get_mut(self.have..end) {
            slot.copy_from_slice(piece);
        }
        self.have = end;
        rest
    }
}

fn open(hub: &Hub, head: &[u8; HEADER_LEN]) -> Result<Body, Ended> {
    if let Some(left) = last_words::announced(head) {
        let text = Vec::with_capacity(left);
        return Ok(Body::LastWords { text, left });
    }
    // A stream has no chain that a frame could cross: what the header announces is there, or
    // will come.
    let announced = usize::try_from(Header::decode(head).len).unwrap_or(usize::MAX);
    match hub.judge(head, announced) {
        Verdict::Accept(left) => Ok(Body::Accepted {
            payload: Vec::with_capacity(left),
            left,
        }),
        Verdict::Discard(left) => Ok(Body::Discarded { left }),
        Verdict::Close(rule) => Err(Ended::Fault(rule)),
    }
}
