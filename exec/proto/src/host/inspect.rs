//! A look at the state of a connection, for people and for tests.

use alloc::vec::Vec;

use super::execution::{InputState, Phase};
use super::{Conn, State};
use crate::id::ExecId;

/// A connection at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// `waiting`, `greeting`, `ready` or `closed`.
    pub state: &'static str,
    /// Connections begun so far.
    pub connection: u64,
    /// Executions that hold a slot.
    pub active: u32,
    /// Controls in line.
    pub controls: usize,
    /// Rules that the guest broke.
    pub faults: u64,
    /// Every execution that is still known.
    pub executions: Vec<ExecView>,
}

/// An execution at one moment. Counts are units of credit since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecView {
    /// Its id.
    pub id: ExecId,
    /// `requesting`, `starting`, `started`, `condemned` or `ended`.
    pub phase: &'static str,
    /// Whether it counts against `max_executions`.
    pub admitted: bool,
    /// Output units received.
    pub output_received: u64,
    /// Output units released.
    pub output_released: u64,
    /// Payload bytes held for the application.
    pub output_held: usize,
    /// Output units that a relay has passed on and its own reader has not consumed.
    pub output_forwarded: u64,
    /// Chunks held for the application.
    pub chunks_held: usize,
    /// Stdin bytes sent.
    pub stdin_sent: u64,
    /// Stdin bytes that the guest acknowledged.
    pub stdin_acked: u64,
    /// Stdin bytes that may be sent now.
    pub stdin_window: u64,
    /// Bytes of the write under way that are not sent yet.
    pub stdin_pending: usize,
    /// `open`, `closing`, `closed` or `broken`.
    pub stdin: &'static str,
}

impl Conn {
    /// Describes the connection as it is now.
    #[must_use]
    pub fn inspect(&self) -> View {
        View {
            state: match self.state {
                State::Waiting => "waiting",
                State::Greeting => "greeting",
                State::Ready => "ready",
                State::Closed(_) => "closed",
            },
            connection: self.connection,
            active: self.active,
            controls: self.schedule.controls(),
            faults: self.faults,
            executions: self
                .execs
                .iter()
                .map(|(id, exec)| {
                    let chunks = || exec.stdout.chunks.iter().chain(&exec.stderr.chunks);
                    ExecView {
                        id: *id,
                        phase: match exec.phase {
                            Phase::Ended => "ended",
                            _ if exec.condemned => "condemned",
                            Phase::Requesting { .. } => "requesting",
                            Phase::Starting => "starting",
                            Phase::Started => "started",
                        },
                        admitted: exec.admitted,
                        output_received: exec.window.received(),
                        output_released: exec.window.released(),
                        output_held: chunks().map(|c| c.data.len()).sum(),
                        output_forwarded: exec.forwarded,
                        chunks_held: chunks().count(),
                        stdin_sent: exec.input.credit.sent(),
                        stdin_acked: exec.input.credit.acked(),
                        stdin_window: exec.input.credit.available(),
                        stdin_pending: exec.input.pending.len(),
                        stdin: match exec.input.state {
                            InputState::Open => "open",
                            InputState::Closing => "closing",
                            InputState::Closed => "closed",
                            InputState::Broken(_) => "broken",
                        },
                    }
                })
                .collect(),
        }
    }
}
