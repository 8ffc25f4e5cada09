//! The rules of one connection, each as a sentence.

mod coalescing;
mod confirming;
mod controls;
mod deadlines;
mod greeting;
mod inspection;
mod legacy;
mod output;
mod quiescing;
mod requests;
mod slots;
mod stalls;
mod stdin;
mod violations;

use super::*;
use crate::frame::{FromGuest, Stream};
use crate::message::{FailureKind, encode};
use crate::pair::Pair;
use crate::{CONTROL_QUEUE, FRAME_MAX, Limits, REQUEST_MAX};

pub(super) fn pair() -> Pair {
    Pair::new(Limits::default())
}

pub(super) fn small() -> Limits {
    Limits {
        max_executions: 4,
        input_limit: 64,
        output_limit: 1024,
        stdin_chunk_size: 16,
        output_chunk_size: 128,
    }
}

pub(super) fn failed_with_protocol(pair: &Pair, id: ExecId) -> bool {
    matches!(pair.host.terminal(id), Some(Terminal::Failed(f))
        if f.kind == FailureKind::Protocol && f.stage == "protocol")
}
