//! One execution from what was saved.
//!
//! It is built with nothing in it and filled through what checks: credit by its own bounds, the
//! rest by the rules below, each of which holds for a live execution at any time.

use core::time::Duration;

use bytes::Bytes;

use super::format::{DeadlineV1, ExecV1, KillV1, OutputV1, PhaseV1, StageV1, StdinV1, UnreadV1};
use crate::credit::Sender;
use crate::frame::{CHUNK_CHARGE, Stream};
use crate::host::command::PROGRAM_MAX;
use crate::host::deadline::{CONFIRM_WITHIN, Deadline, Stage, is_limit};
use crate::host::execution::{Chunk, Exec, InputState, Keep, Output, Peer, Phase, Terminal};
use crate::host::stall::Meter;
use crate::limits::Limits;
use crate::message::{FailureKind, StdinError};
use crate::{FRAME_MAX, REQUEST_MAX, TEXT_MAX};

type Rule = &'static str;

/// `Err(rule)` unless it `holds`.
fn must(holds: bool, rule: Rule) -> Result<(), Rule> {
    if holds { Ok(()) } else { Err(rule) }
}

/// The execution as it was, in no line and with no notice. `chunk` is the largest payload of
/// output in one frame, `now` the time by the new clock.
pub(super) fn restore(
    saved: ExecV1,
    limits: &Limits,
    peer: Peer,
    chunk: u32,
    now: Duration,
) -> Result<Exec, Rule> {
    let ExecV1 {
        id: _,
        phase,
        condemned,
        stdin,
        window,
        stdout,
        stderr,
        unread,
        pid,
        started_unread,
        terminal,
        terminal_read,
        forgotten,
        kill,
        program,
        deadline,
        on_terminal,
    } = saved;
    must(
        program.len() <= PROGRAM_MAX,
        "the name of its program is too long",
    )?;
    let mut exec = Exec::new(limits, Bytes::new(), program.into(), peer);
    exec.on_terminal = on_terminal;
    exec.phase = match phase {
        PhaseV1::Requesting { rest, begun } => {
            must(
                (1..=REQUEST_MAX).contains(&rest.len()),
                "its request is empty or too large",
            )?;
            Phase::Requesting { rest, begun }
        }
        PhaseV1::Starting => Phase::Starting,
        PhaseV1::Started => Phase::Started,
        PhaseV1::Ended => Phase::Ended,
    };
    exec.condemned = condemned;
    exec.pid = pid;
    exec.started_event = started_unread;
    exec.terminal = terminal;
    exec.terminal_event = terminal_read;
    exec.forgotten = forgotten;
    exec.kill_due = kill == KillV1::Due;
    exec.kill_sent = kill == KillV1::Sent;
    check_end(&exec)?;
    exec.stdout = output(&stdout);
    exec.stderr = output(&stderr);
    if let Some(deadline) = deadline {
        exec.deadline = Some(restore_deadline(&exec, deadline, now)?);
        if let StageV1::Expired { waited, .. } = deadline.stage {
            exec.output_meter = Meter::resumed(waited);
        }
    }

    restore_stdin(&mut exec, stdin)?;
    exec.window
        .resume(window)
        .map_err(|_| "its output counters contradict themselves or output_limit")?;
    // What ended may have been an earlier connection's, whose agent had other chunks.
    let chunk = if exec.ended() {
        FRAME_MAX
    } else {
        chunk as usize
    };
    for unread in unread {
        restore_unread(&mut exec, unread, chunk)?;
    }
    check_output(&exec, limits)?;

    exec.admitted = !(exec.ended() && exec.drained());
    must(
        !forgotten || exec.admitted,
        "it has ended and nobody holds it",
    )?;
    Ok(exec)
}

/// How far it has got, and whether its end fits that.
fn check_end(exec: &Exec) -> Result<(), Rule> {
    let started = exec.pid.is_some();
    must(
        match exec.phase {
            Phase::Requesting { .. } | Phase::Starting => !started,
            Phase::Started => started,
            Phase::Ended => true,
        },
        "it has a process id before it started, or none after",
    )?;
    must(
        !exec.started_event || started,
        "its start is still to be told and it has not started",
    )?;
    must(
        !exec.kill_due || !exec.ended(),
        "a kill is due after its end",
    )?;
    must(
        !exec.kill_due || !matches!(exec.phase, Phase::Requesting { begun: false, .. }),
        "a kill is due of what the guest never heard of",
    )?;
    must(
        !exec.kill_sent || !exec.requesting(),
        "a kill overtook its request",
    )?;
    match &exec.terminal {
        None => {
            must(!exec.ended(), "it has ended and nothing says how")?;
            must(!exec.condemned, "it broke the protocol and does not say so")?;
            must(!exec.terminal_event, "an end was told that never was")
        }
        Some(terminal) => {
            must(
                exec.ended() || exec.condemned,
                "it says how it ended and has not",
            )?;
            must(
                exec.ended() || exec.kill_due || exec.kill_sent,
                "it broke the protocol and is not killed",
            )?;
            check_terminal(terminal, exec)
        }
    }
}

fn check_terminal(terminal: &Terminal, exec: &Exec) -> Result<(), Rule> {
    let started = exec.pid.is_some();
    match terminal {
        Terminal::Exited(status) | Terminal::TimedOut { status, .. } => {
            must(
                !exec.condemned,
                "it broke the protocol and exited all the same",
            )?;
            must(started, "it exited and never started")?;
            must(
                matches!(
                    (status.code, status.signal),
                    (Some(0..=255), None) | (None, Some(1..=64))
                ),
                "it ended with neither a code nor a signal that exists",
            )?;
            let Terminal::TimedOut { limit, .. } = terminal else {
                return Ok(());
            };
            must(
                is_limit(*limit) && status.signal == Some(9),
                "it had its time, which was none, or was not killed for it",
            )
        }
        Terminal::Failed(failure) => {
            must(
                failure.stage.len() <= TEXT_MAX && failure.message.len() <= TEXT_MAX,
                "the text of its failure is too long",
            )?;
            if exec.condemned {
                must(
                    failure.kind == FailureKind::Protocol,
                    "it broke the protocol and failed by something else",
                )
            } else {
                must(!started, "it failed to start and has started")
            }
        }
        Terminal::Lost(_) => must(
            !exec.condemned,
            "it broke the protocol and is said to be lost",
        ),
    }
}

/// The deadline by the new clock.
fn restore_deadline(exec: &Exec, saved: DeadlineV1, now: Duration) -> Result<Deadline, Rule> {
    let DeadlineV1 {
        limit,
        stage,
        left: at_start,
        killed,
    } = saved;
    must(exec.terminal.is_none(), "it has ended and has a deadline")?;
    let most = at_start.unwrap_or(limit);
    let (left, most) = match stage {
        StageV1::Running { left } => (left, most.min(limit)),
        StageV1::Expired { left, .. } => (left, CONFIRM_WITHIN),
        StageV1::Unconfirmed => (Duration::ZERO, Duration::ZERO),
    };
    must(
        is_limit(limit) && left <= most && at_start.is_none_or(|left| left <= limit),
        "its deadline is further away than it can be",
    )?;
    let then = now
        .checked_add(left)
        .ok_or("its deadline is beyond the end of the clock")?;
    let stage = match stage {
        StageV1::Running { .. } => Stage::Running { at: then },
        StageV1::Expired { received, .. } => Stage::Expired {
            until: then,
            // The meter goes on from what it had since.
            waited: Duration::ZERO,
            received: exec
                .received()
                .checked_sub(received)
                .ok_or("more output came since its deadline than in all")?,
        },
        StageV1::Unconfirmed => Stage::Unconfirmed,
    };
    let deadline = Deadline {
        limit,
        stage,
        left: at_start,
        killed,
    };
    must(
        !deadline.expired()
            || match exec.phase {
                Phase::Requesting { begun, .. } => begun,
                Phase::Starting => true,
                Phase::Started => exec.kill_due || exec.kill_sent,
                Phase::Ended => false,
            },
        "its deadline has expired and it goes on",
    )?;
    let started = exec.pid.is_some();
    must(
        if deadline.expired() {
            at_start.is_none() || started
        } else {
            at_start.is_some() == started
        },
        "what was left of its time at its start does not fit how far it has got",
    )?;
    must(
        !killed || (deadline.expired() && (exec.kill_due || exec.kill_sent)),
        "it was killed before its deadline and is not",
    )?;
    Ok(deadline)
}

fn restore_stdin(exec: &mut Exec, saved: StdinV1) -> Result<(), Rule> {
    let StdinV1 {
        credit,
        pending,
        state,
    } = saved;
    must(
        exec.pid.is_some() || credit.sent == 0,
        "stdin was sent before it started",
    )?;
    if let InputState::Broken(StdinError { name, message, .. }) = &state {
        must(exec.pid.is_some(), "its stdin broke before it started")?;
        must(
            name.len() <= TEXT_MAX && message.len() <= TEXT_MAX,
            "the text of its stdin error is too long",
        )?;
    }
    must(
        pending.is_empty()
            || (exec.terminal.is_none() && matches!(state, InputState::Open | InputState::Closing)),
        "a write waits for a stdin that nobody will read",
    )?;
    if exec.ended() && exec.input.credit.clone().resume(credit).is_err() {
        // It ended on an earlier connection, whose agent may have been one without a window.
        exec.input.credit = Sender::unbounded();
    }
    exec.input
        .credit
        .resume(credit)
        .map_err(|_| "its stdin counters contradict themselves or input_limit")?;
    exec.input.pending = pending;
    exec.input.state = state;
    Ok(())
}

fn restore_unread(exec: &mut Exec, unread: UnreadV1, chunk: usize) -> Result<(), Rule> {
    let seq = exec.next_seq();
    let (stream, data) = match unread {
        UnreadV1::Stdout(data) => (Stream::Stdout, data),
        UnreadV1::Stderr(data) => (Stream::Stderr, data),
        UnreadV1::StdinError => {
            let InputState::Broken(error) = &exec.input.state else {
                return Err("a stdin error is to be told that never was");
            };
            must(!exec.forgotten, "a stdin error is to be told to nobody")?;
            return match exec.stdin_event.replace((seq, error.clone())) {
                None => Ok(()),
                Some(_) => Err("two stdin errors are to be told"),
            };
        }
    };
    must(
        (1..=chunk).contains(&data.len()),
        "a chunk of output is empty or larger than output_chunk_size",
    )?;
    let output = exec.output(stream);
    must(
        output.keep == Keep::Keep,
        "output is retained of a stream that is discarded",
    )?;
    output.push(Chunk::new(seq, data));
    Ok(())
}

/// Whether what is held agrees with the counters.
fn check_output(exec: &Exec, limits: &Limits) -> Result<(), Rule> {
    let mut held: u64 = 0;
    let mut received: u64 = 0;
    for output in [&exec.stdout, &exec.stderr] {
        let bytes = output.held;
        must(
            bytes <= output.received,
            "more output of a stream is held than came",
        )?;
        let charges = (output.chunks.len() as u64).saturating_mul(u64::from(CHUNK_CHARGE));
        held = held.saturating_add(bytes).saturating_add(charges);
        received = received.saturating_add(output.received);
    }
    must(
        received <= exec.window.received(),
        "more output came than was charged",
    )?;
    must(
        exec.pid.is_some() || (received == 0 && held == 0),
        "output came before it started",
    )?;
    let outstanding = exec.window.outstanding();
    if exec.condemned {
        must(outstanding == 0, "credit is held back after a broken rule")?;
        must(
            held <= u64::from(limits.output_limit),
            "more output is held than output_limit",
        )?;
    } else if exec.ended() {
        // A frame may have been charged whose connection ended before it was delivered.
        must(held <= outstanding, "more output is held than is charged")?;
    } else {
        must(
            held == outstanding,
            "output is held and charged differently",
        )?;
    }
    must(
        exec.pid.is_some() || exec.condemned || exec.window.received() == 0,
        "output was charged before it started",
    )?;
    let untold = exec.started_event || exec.stdin_event.is_some() || held > 0;
    must(
        !exec.terminal_event || !untold,
        "its end was told before what came before it",
    )?;
    let dropped = |output: &Output| output.keep == Keep::Discard;
    must(
        !exec.forgotten || (dropped(&exec.stdout) && dropped(&exec.stderr)),
        "nobody holds it and its output is kept",
    )
}

/// A stream before its chunks.
fn output(saved: &OutputV1) -> Output {
    let mut output = Output::new();
    output.received = saved.received;
    if saved.discard {
        output.keep = Keep::Discard;
    }
    output
}
