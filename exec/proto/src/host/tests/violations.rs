//! A guest that breaks the rules.

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::pair::{Pair, bytes, exit_code, raw};

#[test]
fn one_unit_over_the_allowance_is_never_accepted_and_ends_only_that_execution() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Null);
    let other = pair.running(Stdin::Null);
    let chunk = raw(FromGuest::Stdout.to_wire(), id.get(), &[0; 100]);
    // 1024 = 2 × (100 + 256) + 312: 56 bytes still fit, 57 do not.
    for _ in 0..2 {
        assert_eq!(pair.host_receives(&chunk, 100), Verdict::Accept(100));
    }
    let over = raw(FromGuest::Stdout.to_wire(), id.get(), &[0; 57]);
    assert_eq!(pair.host_receives(&over, 57), Verdict::Discard(57));
    assert!(failed_with_protocol(&pair, id));
    // What was accepted before stays readable; later frames are skipped.
    assert_eq!(pair.host_receives(&chunk, 100), Verdict::Discard(100));
    assert_eq!(pair.read_all(id, Stream::Stdout).len(), 200);
    let fine = raw(FromGuest::Stdout.to_wire(), other.get(), &[0; 57]);
    assert_eq!(pair.host_receives(&fine, 57), Verdict::Accept(57));
    // Its slot waits for the guest's confirmation, which the kill brings.
    assert_eq!(pair.host.active(), 2);
    pair.settle();
    assert_eq!(pair.commands[&id].kills, 1);
    assert_eq!(pair.host.active(), 1);
}

#[test]
fn each_rule_that_a_guest_breaks_ends_its_execution() {
    type Attack = (&'static str, fn(ExecId) -> Vec<Vec<u8>>);
    let attacks: [Attack; 8] = [
        ("empty chunk", |id| vec![raw(0x91, id.get(), b"")]),
        ("chunk too large", |id| {
            vec![raw(0x92, id.get(), &[0; 16385])]
        }),
        ("second Started", |id| vec![raw(0x90, id.get(), &[0; 4])]),
        ("ack beyond", |id| {
            vec![raw(0x93, id.get(), &1u64.to_le_bytes())]
        }),
        ("ack length", |id| vec![raw(0x93, id.get(), b"1")]),
        ("garbage status", |id| {
            vec![raw(0x95, id.get(), b"\xff\xff\xff")]
        }),
        ("failed after started", |id| vec![raw(0x96, id.get(), b"")]),
        ("event too large", |id| {
            vec![raw(0x95, id.get(), &[0; 10_000])]
        }),
    ];
    for (name, frames) in attacks {
        let mut pair = pair();
        let id = pair.running(Stdin::Pipe);
        for frame in frames(id) {
            pair.host_receives(&frame, frame.len() - HEADER_LEN);
        }
        assert!(
            failed_with_protocol(&pair, id),
            "{name}: {:?}",
            pair.host.terminal(id)
        );
        assert!(pair.host.is_ready(), "{name}: the connection goes on");
    }
}

#[test]
fn an_ack_that_goes_back_ends_the_execution() {
    let mut pair = pair();
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(10)).unwrap();
    pair.settle();
    pair.host_receives(&raw(0x93, id.get(), &6u64.to_le_bytes()), 8);
    assert_eq!(pair.view(id).stdin_acked, 6);
    pair.host_receives(&raw(0x93, id.get(), &6u64.to_le_bytes()), 8);
    assert!(
        pair.host.terminal(id).is_none(),
        "a repeated total is legal"
    );
    pair.host_receives(&raw(0x93, id.get(), &5u64.to_le_bytes()), 8);
    assert!(failed_with_protocol(&pair, id));
}

#[test]
fn data_before_started_and_after_the_end_is_a_violation_of_that_execution() {
    let mut pair = pair();
    let id = pair.start(Stdin::Null);
    pair.host_sends();
    let data = raw(0x91, id.get(), b"early");
    assert_eq!(pair.host_receives(&data, 5), Verdict::Discard(5));
    assert!(failed_with_protocol(&pair, id));
    let late = pair.running(Stdin::Null);
    pair.exit(late, exit_code(0));
    pair.settle();
    assert_eq!(
        pair.host_receives(&raw(0x91, late.get(), b"late"), 4),
        Verdict::Discard(4)
    );
    assert_eq!(
        pair.host.terminal(late),
        Some(&Terminal::Exited(exit_code(0)))
    );
}

#[test]
fn broken_framing_closes_the_connection() {
    let mut reserved = raw(0x91, 1, b"x");
    reserved[6] = 1;
    let frames: [(&str, Vec<u8>, usize); 8] = [
        ("reserved bytes", reserved, 1),
        ("a pong of an execution", raw(0x82, 1, &[0; 8]), 8),
        ("crosses the chain", raw(0x91, 1, b"abc"), 2),
        (
            "over the ceiling",
            raw(0x91, 1, &vec![0; FRAME_MAX]),
            FRAME_MAX,
        ),
        ("unknown kind", raw(0x77, 1, b""), 0),
        ("unknown id", raw(0x91, 99, b"x"), 1),
        ("no id", raw(0x91, 0, b"x"), 1),
        ("second ready", raw(0x81, 0, b"x"), 1),
    ];
    for (name, frame, rest) in frames {
        let mut pair = pair();
        let id = pair.running(Stdin::Null);
        let verdict = pair.host_receives(&frame, rest);
        assert!(matches!(verdict, Verdict::Close(_)), "{name}: {verdict:?}");
        assert!(
            matches!(pair.host.terminal(id), Some(Terminal::Lost(_))),
            "{name}"
        );
        assert_eq!(pair.host.active(), 0, "{name}");
    }
}

#[test]
fn an_unknown_optional_frame_is_skipped_and_counted() {
    let mut pair = pair();
    let mut frame = raw(0x77, 0, b"news");
    frame[5] = crate::frame::OPTIONAL;
    for skipped in 1..=2 {
        assert_eq!(pair.host_receives(&frame, 4), Verdict::Discard(4));
        assert_eq!(pair.host.inspect().skipped, skipped);
    }
    assert_eq!(pair.host.inspect().faults, 0);
    assert!(pair.host.is_ready());
}

#[test]
fn a_terminal_that_breaks_a_rule_is_the_confirmation_of_the_end_all_the_same() {
    let both = crate::ExitStatus {
        code: Some(1),
        signal: Some(9),
        ..crate::ExitStatus::default()
    };
    let none = crate::ExitStatus::default();
    let code = crate::ExitStatus {
        code: Some(-1),
        ..none.clone()
    };
    let signal = crate::ExitStatus {
        signal: Some(65),
        ..none.clone()
    };
    let terminals = [
        raw(0x95, 0, b"\xff\xff"),
        raw(0x96, 0, b"after started"),
        raw(0x95, 0, &[0; 10_000]),
        raw(0x95, 0, &encode(&both)),
        raw(0x95, 0, &encode(&none)),
        raw(0x95, 0, &encode(&code)),
        raw(0x95, 0, &encode(&signal)),
    ];
    for mut frame in terminals {
        let mut pair = pair();
        let id = pair.running(Stdin::Null);
        frame[8..16].copy_from_slice(&id.get().to_le_bytes());
        pair.host_receives(&frame, frame.len() - HEADER_LEN);
        assert!(
            failed_with_protocol(&pair, id),
            "{:?}",
            pair.host.terminal(id)
        );
        assert_eq!(pair.host.active(), 0);
    }
}

#[test]
fn a_failure_of_a_kind_that_only_a_newer_guest_knows_is_another_failure() {
    let mut pair = pair();
    let id = pair.start(Stdin::Null);
    pair.host_sends();
    let failure = crate::Failure {
        kind: FailureKind::Protocol,
        errno: None,
        stage: "new".into(),
        message: "new".into(),
    };
    let mut body = encode(&failure);
    // The map's first value: key 0, then the kind as a small integer.
    assert_eq!(body[1..3], [0, 12]);
    body[2] = 23;
    pair.host_receives(&raw(0x96, id.get(), &body), body.len());
    let Some(Terminal::Failed(failure)) = pair.host.terminal(id) else {
        panic!()
    };
    assert_eq!(
        (failure.kind, failure.stage.as_str()),
        (FailureKind::Other, "new")
    );
}

#[test]
fn a_condemned_execution_reaches_its_end_whether_or_not_anybody_reads() {
    for discard in [false, true] {
        let mut pair = Pair::new(small());
        let id = pair.running(Stdin::Null);
        if discard {
            pair.host.discard(id, Stream::Stdout);
        }
        pair.produce(id, Stream::Stdout, &[1; 50_000]);
        pair.guest_sends();
        pair.host_receives(&raw(0x90, id.get(), &[0; 4]), 4);
        pair.settle();
        assert!(failed_with_protocol(&pair, id));
        assert_eq!(pair.guest.executions(), 0, "the guest got rid of it");
        pair.host.forget(id);
        assert_eq!(pair.host.active(), 0);
    }
}

#[test]
fn a_frame_for_a_request_that_was_not_sent_ends_that_execution_alone() {
    let mut pair = pair();
    let word = "w".repeat(40_000);
    let first = pair.try_start(&["cmd", &word], Stdin::Null).unwrap();
    pair.host_sends();
    let waiting = pair.start(Stdin::Null);
    // One is half sent, one not at all; a guest can only guess their ids.
    for id in [first, waiting] {
        pair.host_receives(&raw(0x91, id.get(), b"guess"), 5);
        assert!(failed_with_protocol(&pair, id));
    }
    let next = pair.running(Stdin::Null);
    assert!(pair.host.is_ready());
    assert_eq!(
        pair.commands[&first].kills, 1,
        "what was half sent is sent whole, then killed"
    );
    assert!(!pair.commands.contains_key(&waiting) && pair.commands.contains_key(&next));
    assert_eq!(pair.host.active(), 1);
}

#[test]
fn a_second_stdin_error_ends_the_execution() {
    let mut pair = pair();
    let id = pair.running(Stdin::Pipe);
    let error = crate::StdinError {
        errno: 32,
        name: "EPIPE".into(),
        message: "broken pipe".into(),
    };
    let frame = raw(FromGuest::StdinError.to_wire(), id.get(), &encode(&error));
    pair.host_receives(&frame, frame.len() - HEADER_LEN);
    assert!(pair.host.terminal(id).is_none(), "the first one is no end");
    pair.host_receives(&frame, frame.len() - HEADER_LEN);
    assert!(failed_with_protocol(&pair, id));
}

#[test]
fn whatever_comes_after_the_end_is_counted_and_changes_nothing() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.exit(id, exit_code(3));
    pair.settle();
    let late = [
        raw(FromGuest::Started.to_wire(), id.get(), &[0; 4]),
        raw(FromGuest::Stdout.to_wire(), id.get(), b"late"),
        raw(
            FromGuest::Exited.to_wire(),
            id.get(),
            &encode(&exit_code(4)),
        ),
        raw(FromGuest::Failed.to_wire(), id.get(), b""),
    ];
    for (n, frame) in (1..).zip(&late) {
        let len = frame.len() - HEADER_LEN;
        assert_eq!(pair.host_receives(frame, len), Verdict::Discard(len));
        assert_eq!(pair.host.inspect().faults, n);
    }
    assert_eq!(
        pair.host.terminal(id),
        Some(&Terminal::Exited(exit_code(3)))
    );
    assert_eq!((pair.view(id).output_held, pair.host.active()), (0, 0));
}

#[test]
fn texts_of_events_are_cut_at_four_kibibytes_and_between_characters() {
    let mut pair = pair();
    let id = pair.start(Stdin::Null);
    pair.host_sends();
    let failure = crate::Failure {
        kind: FailureKind::NotFound,
        errno: Some(2),
        stage: "execve".into(),
        // Three bytes each: the limit falls inside one.
        message: "\u{20ac}".repeat(1400),
    };
    let frame = raw(FromGuest::Failed.to_wire(), id.get(), &encode(&failure));
    pair.host_receives(&frame, frame.len() - HEADER_LEN);
    let Some(Terminal::Failed(told)) = pair.host.terminal(id) else {
        panic!()
    };
    assert_eq!(told.kind, FailureKind::NotFound);
    assert_eq!(told.message, "\u{20ac}".repeat(crate::TEXT_MAX / 3));
}
