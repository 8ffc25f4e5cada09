//! The cut: what there is, with payloads shared instead of copied.
//!
//! Structs are taken apart field by field, so that one with a new field compiles again when it
//! was decided whether that belongs into a snapshot.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::format::{
    ConnV1, ControlV1, DeadlineV1, ExecV1, KillV1, OutputV1, PhaseV1, PowerOffV1, StageV1, StdinV1,
    UnreadV1,
};
use super::{SaveError, SavedConn};
use crate::frame::Stream;
use crate::host::deadline::{Deadline, Stage};
use crate::host::execution::{Exec, Input, Keep, Output, Phase};
use crate::host::{Conn, Control, State};
use crate::id::ExecId;
use crate::message::CAPABILITIES;

impl Conn {
    /// The connection as it is now, with every execution in it. Copies no payload.
    ///
    /// The caller has stopped what it must be coherent with: the guest, and the device between
    /// two chains. Notices are not saved; drain them before the cut.
    ///
    /// # Errors
    /// See [`SaveError`].
    pub fn save(&self) -> Result<SavedConn, SaveError> {
        let Self {
            config,
            time,
            relayed,
            // Said by the agent's Ready.
            legacy: _,
            state,
            agent,
            connection,
            ids,
            execs,
            // Those of the executions.
            deadlines: _,
            active: _,
            schedule,
            bootstrap_due: _,
            power_off,
            power_off_due,
            // Those that are still to be sent, in the order of their ids.
            requests: _,
            incoming,
            coalesced: _,
            ping_due,
            pings,
            dropped: _,
            noticed: _,
            control_room: _,
            ready_notice: _,
            pong_notice: _,
            closed_notice: _,
            faults,
            skipped,
            // Only a relay can be asked.
            look: _,
            looked: _,
            rest,
        } = self;
        if *relayed {
            return Err(SaveError::Relayed);
        }
        let (State::Ready, Some(ready)) = (state, agent) else {
            return Err(SaveError::NotReady);
        };
        if incoming.is_some() {
            return Err(SaveError::MidFrame);
        }
        let (asked, frozen) = rest.settled().ok_or(SaveError::Quiescing)?;
        let (order, controls) = schedule.save();
        let now = time.now();
        Ok(SavedConn(ConnV1 {
            bootstrap: config.bootstrap(*connection),
            ready: ready.clone(),
            last_id: ids.last(),
            execs: execs
                .iter()
                .map(|(id, exec)| save(*id, exec, now))
                .collect(),
            order,
            controls: controls
                .into_iter()
                .map(|control| match control {
                    Control::Signal { id, signal } => ControlV1::Signal { id, signal },
                    Control::Resize { id, size } => ControlV1::Resize { id, size },
                })
                .collect(),
            ping_due: *ping_due,
            pings: *pings as u64,
            power_off: power_off.map(|(reboot, grace_ms)| PowerOffV1 {
                reboot,
                grace_ms,
                due: *power_off_due,
            }),
            faults: *faults,
            skipped: *skipped,
            asked,
            frozen,
            relies_on: CAPABILITIES
                .into_iter()
                .filter(|name| ready.can(name))
                .map(String::from)
                .collect(),
        }))
    }
}

fn save(id: ExecId, exec: &Exec, now: Duration) -> ExecV1 {
    let Exec {
        phase,
        condemned,
        program,
        on_terminal,
        input: Input {
            credit,
            pending,
            state,
        },
        window,
        stdout,
        stderr,
        // What was passed on went with a client that does not survive, so it is unread.
        forwarded: _,
        // No end that faces a relay is saved.
        stdin_base: _,
        leaving: _,
        adopting: _,
        seq: _,
        // By a clock of this process; but see the deadline.
        output_meter,
        stdin_meter: _,
        pid,
        started_event,
        stdin_event,
        terminal,
        terminal_event,
        // Until it has ended and nothing of it is retained.
        admitted: _,
        forgotten,
        // After a restore everything that somebody might hold can be adopted.
        left: _,
        kill_due,
        kill_sent,
        deadline,
        // Only a relay's client waits for acknowledgements.
        behind_acks: _,
        in_acks: _,
        in_slots: _,
        notice: _,
        held_back: _,
    } = exec;
    let mut unread: Vec<(u64, UnreadV1)> = [(Stream::Stdout, stdout), (Stream::Stderr, stderr)]
        .into_iter()
        .flat_map(|(stream, output)| {
            let chunks = output.passed.iter().chain(&output.chunks);
            chunks.map(move |chunk| (stream, chunk))
        })
        .map(|(stream, chunk)| (chunk.seq, UnreadV1::chunk(stream, chunk.data.clone())))
        .chain(
            stdin_event
                .iter()
                .map(|(seq, _)| (*seq, UnreadV1::StdinError)),
        )
        .collect();
    unread.sort_by_key(|(seq, _)| *seq);
    ExecV1 {
        id,
        phase: match phase {
            Phase::Requesting { rest, begun } => PhaseV1::Requesting {
                rest: rest.clone(),
                begun: *begun,
            },
            Phase::Starting => PhaseV1::Starting,
            Phase::Started => PhaseV1::Started,
            Phase::Ended => PhaseV1::Ended,
        },
        condemned: *condemned,
        program: String::from(&**program),
        on_terminal: *on_terminal,
        stdin: StdinV1 {
            credit: credit.save(),
            pending: pending.clone(),
            state: state.clone(),
        },
        window: window.save(),
        stdout: output(stdout),
        stderr: output(stderr),
        unread: unread.into_iter().map(|(_, unread)| unread).collect(),
        pid: *pid,
        started_unread: *started_event,
        terminal: terminal.clone(),
        terminal_read: *terminal_event,
        forgotten: *forgotten,
        kill: match (kill_due, kill_sent) {
            (true, _) => KillV1::Due,
            (false, true) => KillV1::Sent,
            (false, false) => KillV1::No,
        },
        deadline: deadline.map(|deadline| {
            let waited = output_meter.read(now).application;
            save_deadline(deadline, waited, exec.received(), now)
        }),
    }
}

/// `in_all` is how long output has waited for the application, `come` how many bytes of it came.
fn save_deadline(deadline: Deadline, in_all: Duration, come: u64, now: Duration) -> DeadlineV1 {
    let Deadline {
        limit,
        stage,
        left,
        killed,
    } = deadline;
    DeadlineV1 {
        limit,
        stage: match stage {
            Stage::Running { at } => StageV1::Running {
                left: at.saturating_sub(now),
            },
            Stage::Expired {
                until,
                waited,
                received,
            } => StageV1::Expired {
                left: until.saturating_sub(now),
                waited: in_all.saturating_sub(waited),
                received: come.saturating_sub(received),
            },
            Stage::Unconfirmed => StageV1::Unconfirmed,
        },
        left,
        killed,
    }
}

fn output(output: &Output) -> OutputV1 {
    let Output {
        keep,
        chunks: _,
        held: _,
        passed: _,
        passed_bytes: _,
        received,
    } = output;
    OutputV1 {
        received: *received,
        discard: *keep == Keep::Discard,
    }
}
