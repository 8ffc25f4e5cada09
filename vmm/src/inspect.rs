//! A whole VM as a value that can be printed and serialised.

use std::time::Duration;

use forebay_exec::{ExecView, Stalls, View};

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
    /// Signals in line.
    pub controls: usize,
    /// Rules that the guest broke.
    pub faults: u64,
    /// Frames of kinds that only a newer agent knows, which may be skipped and were.
    pub skipped: u64,
    /// Whether the agent keeps the limits; one of a legacy guest keeps none.
    pub bounded: bool,
    /// Every execution that is still known.
    pub executions: Vec<ExecutionView>,
}

/// One execution. Counts are since its start. A unit of output is a byte, and each chunk costs 256
/// units more; what is said in bytes is payload alone.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ExecutionView {
    /// Its id.
    pub id: u64,
    /// The last part of its program's name, at most 64 bytes of it.
    pub program: String,
    /// The program's process id in the guest, once it runs.
    pub pid: Option<u32>,
    /// `requesting`, `starting`, `started`, `condemned` or `ended`.
    pub phase: &'static str,
    /// Whether it counts against `max_executions`.
    pub admitted: bool,
    /// Output units received.
    pub output_received: u64,
    /// Output units released by the application.
    pub output_released: u64,
    /// Output units released as far as the guest was told.
    pub output_acked: u64,
    /// Output units that may still arrive before more is released.
    pub output_window: u64,
    /// Output units handed to an attached client that has not acknowledged them.
    pub output_forwarded: u64,
    /// Payload bytes held for the application.
    pub output_held: usize,
    /// Chunks held for the application.
    pub chunks_held: usize,
    /// Whom output waits for now: `application`, `link`, `command`, or `nobody` when it is over.
    pub output_waits_for: &'static str,
    /// How long output has waited for each: its reader, the channel, the command that writes it.
    pub output_stalls: StallsView,
    /// Stdin bytes sent.
    pub stdin_sent: u64,
    /// Stdin bytes that the guest acknowledged.
    pub stdin_acked: u64,
    /// Stdin bytes that may be sent now. Without a bound in a legacy guest.
    pub stdin_window: u64,
    /// Bytes of the write under way that are not sent yet.
    pub stdin_pending: usize,
    /// `open`, `closing`, `closed` or `broken`.
    pub stdin: &'static str,
    /// Whom stdin waits for now, as with output.
    pub stdin_waits_for: &'static str,
    /// How long stdin has waited for each: its writer, the channel, the command that reads it.
    pub stdin_stalls: StallsView,
    /// Nobody holds it: it was left, or survived a restore, and can be
    /// [adopted](crate::Client::adopt).
    pub adoptable: bool,
}

/// How long one direction of an execution has waited for each of the three that it can wait for, in
/// microseconds. They add up to the direction's life so far: output's ends when all of it was read
/// after the command's end, stdin's when its own end has left or nobody can read it any more.
///
/// Of each direction one entry is where a healthy one may spend its life: output waits for a command
/// that has nothing to say, and stdin for an application that has nothing to hand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct StallsView {
    /// Output: the allowance was used up by what its reader had not read. Stdin: nothing was handed
    /// in.
    pub application_us: u64,
    /// Bytes, or the room for them, were there, and the channel had not taken them.
    pub link_us: u64,
    /// Output: the command could write. Stdin: the allowance was used up by what it had not read.
    pub command_us: u64,
}

impl From<Stalls> for StallsView {
    fn from(stalls: Stalls) -> Self {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            application_us: us(stalls.application),
            link_us: us(stalls.link),
            command_us: us(stalls.command),
        }
    }
}

impl From<View> for ExecutionsView {
    fn from(view: View) -> Self {
        let View {
            state,
            connection,
            active,
            controls,
            faults,
            skipped,
            bounded,
            executions,
        } = view;
        Self {
            state,
            connection,
            active,
            controls,
            faults,
            skipped,
            bounded,
            executions: executions.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<ExecView> for ExecutionView {
    fn from(view: ExecView) -> Self {
        let ExecView {
            id,
            program,
            pid,
            phase,
            admitted,
            output_received,
            output_released,
            output_acked,
            output_window,
            output_forwarded,
            output_held,
            chunks_held,
            output_waits_for,
            output_stalls,
            stdin_sent,
            stdin_acked,
            stdin_window,
            stdin_pending,
            stdin,
            stdin_waits_for,
            stdin_stalls,
            adoptable,
        } = view;
        Self {
            id: id.get(),
            program,
            pid,
            phase,
            admitted,
            output_received,
            output_released,
            output_acked,
            output_window,
            output_forwarded,
            output_held,
            chunks_held,
            output_waits_for,
            output_stalls: output_stalls.into(),
            stdin_sent,
            stdin_acked,
            stdin_window,
            stdin_pending,
            stdin,
            stdin_waits_for,
            stdin_stalls: stdin_stalls.into(),
            adoptable,
        }
    }
}
