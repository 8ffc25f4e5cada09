//! Rules broken, or the host's patience tried, without end.

use std::io::Write as _;

use forebay_exec_proto::frame::FromGuest;
use forebay_exec_proto::{FRAME_MAX, HEADER_LEN, Header, Stream};

use super::breach::Over;
use super::{Agent, Stop, wire};

/// A kind of frame that nobody knows and everybody may skip.
const OPTIONAL_KIND: u8 = 0xef;

/// A chain full of empty frames that may be skipped.
pub(super) fn to_be_skipped() -> Vec<u8> {
    let header = Header {
        flags: wire::OPTIONAL,
        ..wire::header(OPTIONAL_KIND, 0, 0)
    };
    header.encode().repeat(FRAME_MAX / HEADER_LEN)
}

impl Agent {
    /// Sends one kind of thing until `bytes` were sent or the agent gives in. What the host says of
    /// it meanwhile is not heard.
    ///
    /// | kind | what | and at its end the execution |
    /// |---|---|---|
    /// | `output` | output, whatever the allowance says | is told to have been killed |
    /// | `late` | output of this execution, which has ended | has ended before |
    /// | `optional` | chains full of empty frames that may be skipped | exits |
    /// | `acks` | the same total again and again | exits |
    /// | `console` | lines on the console | exits |
    pub(super) fn flood(&self, id: u64, kind: &str, bytes: u64) -> Result<Over, Stop> {
        self.started(id)?;
        let chunk = wire::output(id, Stream::Stdout, &vec![b'x'; self.chunk_size()]);
        let (piece, over) = match kind {
            "output" => (chunk, Over::Killed),
            "late" => {
                self.exited(id, Some(0))?;
                (chunk, Over::Said)
            }
            "optional" => (to_be_skipped(), Over::With(0)),
            "acks" => {
                let ack = wire::frame(FromGuest::StdinAck, id, &0_u64.to_le_bytes());
                (ack.repeat(FRAME_MAX / ack.len()), Over::With(0))
            }
            "console" => {
                let line = "the console of a hostile guest\n";
                (line.repeat(64).into_bytes(), Over::With(0))
            }
            _ => return Ok(Over::With(2)),
        };
        let before = self.lock().truces;
        let mut sent = 0;
        while sent < bytes && self.lock().truces == before {
            if kind == "console" {
                std::io::stderr().write_all(&piece)?;
            } else {
                self.send(&piece)?;
            }
            sent += piece.len() as u64;
        }
        Ok(over)
    }
}
