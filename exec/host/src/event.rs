//! What `ExecHandle::recv` reports, in the order in which it happened.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, StdinError};
use crate::status::ExitStatus;

/// One thing that happened in an execution.
///
/// `Started` comes first. Each stream's chunks come in their own order, and one of `Exited` and
/// `Failed` comes last, after all output. A chunk has at most `output_chunk_size` bytes (16 KiB
/// unless the VM was given another limit) and may end inside a character.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExecEvent {
    /// The program runs.
    Started {
        /// Its process id in the guest.
        pid: u32,
    },
    /// Bytes that it wrote to its stdout.
    Stdout(Bytes),
    /// Bytes that it wrote to its stderr.
    Stderr(Bytes),
    /// It no longer reads its stdin. It goes on running.
    StdinError(StdinError),
    /// It ended. Last event.
    Exited(ExitStatus),
    /// It ended without an exit: the protocol was broken, or the VM is gone. Last event. (A
    /// program that never ran is an error of `spawn` already.)
    Failed(Failure),
}
