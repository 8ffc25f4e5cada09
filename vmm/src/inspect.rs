//! A whole VM as a value that can be printed and serialised.

use forebay_exec::{ExecView, View};

use crate::machine::MachineView;

/// A VM at one moment. The parts are taken one after another.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct VmView {
    /// vCPUs, boot and devices.
    pub machine: MachineView,
    /// The connection to the agent and what runs over it.
    pub executions: ExecutionsView,
}

/// The connection to the agent.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ExecutionsView {
    /// `waiting`, `greeting`, `ready` or `closed`.
    pub state: &'static str,
    /// Connections begun so far.
    pub connection: u64,
    /// Executions that hold a slot.
    pub active: u32,
    /// Signals and pings in line.
    pub controls: usize,
    /// Rules that the guest broke.
    pub faults: u64,
    /// Every execution that is still known.
    pub executions: Vec<ExecutionView>,
}

/// One execution. Counts are since its start, in bytes plus the fixed charge per chunk.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ExecutionView {
    /// Its id.
    pub id: u64,
    /// `requesting`, `starting`, `started`, `condemned` or `ended`.
    pub phase: &'static str,
    /// Whether it counts against `max_executions`.
    pub admitted: bool,
    /// Output units received.
    pub output_received: u64,
    /// Output units released by the application.
    pub output_released: u64,
    /// Output units handed to an attached client that has not acknowledged them.
    pub output_forwarded: u64,
    /// Payload bytes held for the application.
    pub output_held: usize,
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

impl From<View> for ExecutionsView {
    fn from(view: View) -> Self {
        let View {
            state,
            connection,
            active,
            controls,
            faults,
            executions,
        } = view;
        Self {
            state,
            connection,
            active,
            controls,
            faults,
            executions: executions.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ExecView> for ExecutionView {
    fn from(view: ExecView) -> Self {
        let ExecView {
            id,
            phase,
            admitted,
            output_received,
            output_released,
            output_forwarded,
            output_held,
            chunks_held,
            stdin_sent,
            stdin_acked,
            stdin_window,
            stdin_pending,
            stdin,
        } = view;
        Self {
            id: id.get(),
            phase,
            admitted,
            output_received,
            output_released,
            output_forwarded,
            output_held,
            chunks_held,
            stdin_sent,
            stdin_acked,
            stdin_window,
            stdin_pending,
            stdin,
        }
    }
}
