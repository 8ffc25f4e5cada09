//! The rules of one connection, each as a sentence.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;

use super::*;
use crate::frame::{FromGuest, Stream};
use crate::message::{FailureKind, encode};
use crate::pair::{Pair, bytes, exit_code, raw};
use crate::{CONTROL_QUEUE, FRAME_MAX, REQUEST_MAX};

fn pair() -> Pair {
    Pair::new(Limits::default())
}

fn small() -> Limits {
    Limits {
        max_executions: 4,
        input_limit: 64,
        output_limit: 1024,
        stdin_chunk_size: 16,
        output_chunk_size: 128,
    }
}

fn failed_with_protocol(pair: &Pair, id: ExecId) -> bool {
    matches!(pair.host.terminal(id), Some(Terminal::Failed(f))
        if f.kind == FailureKind::Protocol && f.stage == "protocol")
}

#[test]
fn bootstrap_is_the_first_frame_and_ready_opens_the_connection() {
    let mut pair = Pair::closed(Limits::default());
    assert!(
        pair.host.poll_transmit().is_none(),
        "nothing before the guest opened its port"
    );
    assert_eq!(
        pair.try_start(&["x"], Stdin::Null),
        Err(StartError::NotReady)
    );
    pair.host.handle_opened();
    pair.settle();
    assert!(pair.notices.iter().any(|n| matches!(n, Notice::Ready(_))));
}

#[test]
fn a_ready_with_other_limits_or_none_is_refused() {
    for limits in [
        None,
        Some(Limits {
            input_limit: 99_999,
            ..Limits::default()
        }),
    ] {
        let mut pair = Pair::closed(Limits::default());
        pair.host.handle_opened();
        pair.host.poll_transmit().unwrap();
        let ready = Ready {
            generation: crate::GENERATION,
            connection: 1,
            exec_limits: limits,
            ..Ready::default()
        };
        let frame = raw(FromGuest::Ready.to_wire(), 0, &encode(&ready));
        let head = frame.first_chunk().unwrap();
        let n = frame.len() - HEADER_LEN;
        assert_eq!(pair.host.judge(head, n), Verdict::Accept(n));
        let why = pair.host.deliver(frame[HEADER_LEN..].to_vec()).unwrap_err();
        assert!(why.contains("exec_limits"), "{why}");
    }
}

#[test]
fn output_arrives_in_order_and_the_end_comes_last() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, b"one");
    pair.settle();
    pair.produce(id, Stream::Stderr, b"two");
    pair.settle();
    pair.produce(id, Stream::Stdout, b"three");
    pair.exit(id, exit_code(3));
    pair.settle();
    let mut events = Vec::new();
    while let Some(event) = pair.host.next_event(id) {
        events.push(event);
    }
    assert_eq!(
        events,
        [
            Event::Started { pid: 100 },
            Event::Stdout(Bytes::from_static(b"one")),
            Event::Stderr(Bytes::from_static(b"two")),
            Event::Stdout(Bytes::from_static(b"three")),
            Event::End(Terminal::Exited(exit_code(3))),
        ]
    );
}

#[test]
fn a_stalled_reader_stops_the_command_at_the_window_and_nothing_else() {
    let mut pair = Pair::new(small());
    let stalled = pair.running(Stdin::Null);
    let other = pair.running(Stdin::Null);
    pair.produce(stalled, Stream::Stdout, &[7; 5000]);
    pair.settle();
    let view = pair.view(stalled);
    assert!(view.output_received <= 1024, "{view:?}");
    assert!(
        view.output_received + 256 + 128 > 1024,
        "the window is used: {view:?}"
    );
    pair.produce(other, Stream::Stdout, b"hello");
    pair.exit(other, exit_code(0));
    pair.settle();
    assert_eq!(pair.read_all(other, Stream::Stdout), b"hello");
    assert!(pair.host.terminal(other).is_some());
    // Reading makes it go on, to the last byte.
    let mut total = 0;
    loop {
        let got = pair.read_all(stalled, Stream::Stdout).len();
        pair.settle();
        total += got;
        if got == 0 {
            break;
        }
    }
    assert_eq!(total, 5000);
}

#[test]
fn a_partial_read_releases_its_bytes_and_the_last_one_the_charge() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, &[1; 100]);
    pair.settle();
    let mut buf = [0; 60];
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::Data(60));
    assert_eq!(pair.view(id).output_released, 60);
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::Data(40));
    assert_eq!(pair.view(id).output_released, 100 + 256);
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::Empty);
}

#[test]
fn consumption_coalesces_into_one_ack_and_is_never_said_twice() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    for _ in 0..10 {
        pair.produce(id, Stream::Stdout, b"x");
        pair.settle();
    }
    for _ in 0..10 {
        pair.host.take_chunk(id, Stream::Stdout).unwrap();
    }
    let frame = pair.host.poll_transmit().unwrap();
    assert_eq!(frame.head[4], crate::frame::ToGuest::OutputAck.to_wire());
    assert_eq!(frame.body[..], (10u64 * 257).to_le_bytes());
    assert!(pair.host.poll_transmit().is_none());
}

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
    let frames: [(&str, Vec<u8>, usize); 6] = [
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
fn an_unknown_optional_frame_is_skipped() {
    let mut pair = pair();
    let mut frame = raw(0x77, 0, b"news");
    frame[5] = crate::frame::OPTIONAL;
    assert_eq!(pair.host_receives(&frame, 4), Verdict::Discard(4));
    assert!(pair.host.is_ready());
}

#[test]
fn admission_refuses_at_the_cap_and_names_the_numbers() {
    let mut pair = Pair::new(small());
    for _ in 0..4 {
        pair.start(Stdin::Null);
    }
    let refused = pair.try_start(&["x"], Stdin::Null).unwrap_err();
    assert_eq!(
        refused,
        StartError::AtCapacity {
            limit: 4,
            active: 4
        }
    );
    assert_eq!(
        refused.to_string(),
        "4 executions are active, max_executions is 4"
    );
}

#[test]
fn a_finished_unread_execution_keeps_its_slot_until_it_is_read() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, b"tail");
    pair.exit(id, exit_code(0));
    pair.settle();
    assert!(pair.host.terminal(id).is_some());
    assert_eq!(pair.host.active(), 1);
    assert_eq!(pair.read_all(id, Stream::Stdout), b"tail");
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn every_cleanup_path_frees_the_slot_once() {
    type Path = (&'static str, fn(&mut Pair, ExecId));
    let paths: [Path; 6] = [
        ("exit", |pair, id| pair.exit(id, exit_code(0))),
        ("kill", |pair, id| pair.host.kill(id).unwrap()),
        ("forget and exit", |pair, id| {
            pair.host.forget(id);
            pair.exit(id, exit_code(0));
        }),
        ("exit and forget", |pair, id| {
            pair.produce(id, Stream::Stderr, b"unread");
            pair.exit(id, exit_code(0));
            pair.settle();
            pair.host.forget(id);
            pair.host.forget(id);
        }),
        ("violation and kill", |pair, id| {
            pair.host_receives(&raw(0x90, id.get(), &[0; 4]), 4);
        }),
        ("closed", |pair, _| pair.host.handle_closed("test")),
    ];
    for (name, end) in paths {
        let mut pair = pair();
        let keep = pair.running(Stdin::Null);
        let id = pair.running(Stdin::Null);
        assert_eq!(pair.host.active(), 2);
        end(&mut pair, id);
        pair.settle();
        let left = if name == "closed" { 0 } else { 1 };
        assert_eq!(pair.host.active(), left, "{name}");
        pair.host.forget(id);
        pair.host.forget(keep);
        let _ = pair.host.kill(keep);
        pair.settle();
        assert_eq!(pair.host.active(), 0, "{name}");
        assert!(
            pair.host.inspect().executions.is_empty(),
            "{name}: entries stay behind"
        );
    }
}

#[test]
fn a_failed_start_frees_its_slot_and_says_why() {
    let mut pair = pair();
    pair.refuse = Some(FailureKind::NotFound);
    let id = pair.start(Stdin::Null);
    pair.settle();
    let Some(Terminal::Failed(failure)) = pair.host.terminal(id) else {
        panic!()
    };
    assert_eq!(
        (failure.kind, failure.errno),
        (FailureKind::NotFound, Some(2))
    );
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn no_stdin_leaves_before_started() {
    let mut pair = pair();
    let id = pair.start(Stdin::Bytes(bytes(10)));
    pair.host_sends();
    assert!(!pair.host_sends(), "only the request may leave");
    pair.settle();
    pair.eat(id, 100);
    assert_eq!(pair.commands[&id].eaten, bytes(10));
    assert!(pair.commands[&id].stdin_eof);
}

#[test]
fn stdin_stops_at_its_allowance_and_comes_back_with_what_the_command_takes() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(200)).unwrap();
    pair.settle();
    assert_eq!(pair.view(id).stdin_sent, 64);
    assert_eq!(pair.host.pending_stdin(id), 136);
    pair.eat(id, 10);
    pair.settle();
    assert_eq!(pair.view(id).stdin_sent, 74);
    while pair.host.pending_stdin(id) > 0 {
        pair.eat(id, 33);
        pair.settle();
    }
    pair.eat(id, 1000);
    assert_eq!(pair.commands[&id].eaten, bytes(200));
}

#[test]
fn a_cancelled_write_leaves_a_prefix_and_loses_no_credit() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(200)).unwrap();
    pair.settle();
    pair.host.cancel_write(id);
    assert_eq!(pair.host.pending_stdin(id), 0);
    pair.host.close_stdin(id).unwrap();
    for _ in 0..10 {
        pair.eat(id, 100);
        pair.settle();
    }
    assert_eq!(pair.commands[&id].eaten, bytes(200)[..64]);
    assert!(pair.commands[&id].stdin_eof);
    assert_eq!(pair.view(id).stdin_window, 64, "all credit came back");
}

#[test]
fn eof_follows_the_last_byte_and_later_writes_are_refused() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(100)).unwrap();
    pair.host.close_stdin(id).unwrap();
    pair.host.close_stdin(id).unwrap();
    assert_eq!(pair.host.write_stdin(id, bytes(1)), Err(WriteError::Closed));
    pair.settle();
    assert!(!pair.commands[&id].stdin_eof, "bytes are still under way");
    for _ in 0..5 {
        pair.eat(id, 64);
        pair.settle();
    }
    assert!(pair.commands[&id].stdin_eof);
    assert_eq!(pair.commands[&id].eaten.len(), 100);
}

#[test]
fn a_command_that_closes_its_stdin_wakes_the_writer_and_releases_its_credit() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(200)).unwrap();
    pair.settle();
    let error = StdinErrorSample::epipe();
    pair.guest.stdin_error(id, error.clone());
    pair.guest.stdin_error(id, error.clone());
    pair.settle();
    assert_eq!(
        pair.host.write_stdin(id, bytes(1)),
        Err(WriteError::Broken(error.clone()))
    );
    assert_eq!(pair.host.pending_stdin(id), 0);
    assert_eq!(pair.view(id).stdin_window, 64);
    assert!(pair.host.terminal(id).is_none(), "the execution goes on");
    pair.host.next_event(id);
    assert_eq!(pair.host.next_event(id), Some(Event::StdinError(error)));
    assert_eq!(pair.host.next_event(id), None);
}

struct StdinErrorSample;

impl StdinErrorSample {
    fn epipe() -> crate::StdinError {
        crate::StdinError {
            errno: 32,
            name: "EPIPE".into(),
            message: "broken pipe".into(),
        }
    }
}

#[test]
fn a_dropped_reader_lets_the_command_run_on_with_its_output_discarded() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Null);
    pair.host.discard(id, Stream::Stdout);
    pair.host.discard(id, Stream::Stderr);
    for _ in 0..100 {
        pair.produce(id, Stream::Stdout, &[1; 500]);
        pair.produce(id, Stream::Stderr, &[2; 500]);
    }
    pair.exit(id, exit_code(0));
    pair.settle();
    assert_eq!(
        pair.host.terminal(id),
        Some(&Terminal::Exited(exit_code(0)))
    );
    assert_eq!(pair.host.active(), 0);
    assert_eq!(pair.view(id).output_held, 0);
}

#[test]
fn controls_pass_with_every_window_exhausted() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.produce(id, Stream::Stdout, &[0; 4000]);
    pair.host.write_stdin(id, bytes(500)).unwrap();
    pair.settle();
    assert_eq!(pair.view(id).stdin_window, 0);
    pair.host.signal(id, 15).unwrap();
    pair.host.ping(77).unwrap();
    pair.settle();
    assert_eq!(pair.commands[&id].signals, [15]);
    assert!(pair.notices.contains(&Notice::Pong(77)));
}

#[test]
fn saturated_stdin_does_not_hold_back_output_acks() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(500)).unwrap();
    pair.settle();
    pair.produce(id, Stream::Stdout, &[0; 4000]);
    pair.settle();
    let before = pair.view(id).output_received;
    pair.read_all(id, Stream::Stdout);
    pair.settle();
    assert!(pair.view(id).output_received > before);
}

#[test]
fn a_full_control_queue_refuses_and_tells_when_there_is_room() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.notices.clear();
    for _ in 0..CONTROL_QUEUE {
        pair.host.signal(id, 1).unwrap();
    }
    assert_eq!(pair.host.signal(id, 1), Err(ControlError::Full));
    pair.host.kill(id).unwrap();
    pair.settle();
    assert!(pair.notices.contains(&Notice::ControlRoom));
    assert_eq!(
        pair.commands[&id].kills, 1,
        "a kill needs no room in the queue"
    );
}

#[test]
fn signals_for_an_ended_execution_are_refused() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.exit(id, exit_code(0));
    pair.settle();
    assert_eq!(pair.host.signal(id, 9), Err(ControlError::Ended));
    assert_eq!(pair.host.kill(id), Err(ControlError::Ended));
}

#[test]
fn a_large_request_goes_in_parts_one_at_a_time() {
    let mut pair = pair();
    let word = "w".repeat(100_000);
    let big: Vec<ExecId> = (0..3)
        .map(|_| pair.try_start(&["cmd", &word], Stdin::Null).unwrap())
        .collect();
    let little = pair.start(Stdin::Null);
    pair.settle();
    for id in big {
        assert_eq!(pair.requests[&id].argv[1][..], *word.as_bytes());
    }
    assert_eq!(pair.requests[&little].argv.len(), 1);
}

#[test]
fn a_request_over_the_ceiling_is_refused_before_anything_is_sent() {
    let mut pair = pair();
    let word = "w".repeat(REQUEST_MAX);
    let error = pair.try_start(&["cmd", &word], Stdin::Null).unwrap_err();
    assert!(
        matches!(
            error,
            StartError::TooLarge {
                limit: REQUEST_MAX,
                ..
            }
        ),
        "{error}"
    );
    assert!(!pair.host_sends());
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn a_kill_during_a_request_in_parts_is_not_lost() {
    let mut pair = pair();
    let word = "w".repeat(50_000);
    let id = pair.try_start(&["cmd", &word], Stdin::Null).unwrap();
    pair.host_sends();
    pair.host.kill(id).unwrap();
    pair.settle();
    assert_eq!(pair.commands[&id].kills, 1);
    assert!(matches!(pair.host.terminal(id), Some(Terminal::Exited(s)) if s.signal == Some(9)));
}

#[test]
fn a_kill_before_the_request_left_ends_it_on_the_host_and_lets_others_start() {
    let mut pair = pair();
    let word = "w".repeat(50_000);
    let first = pair.try_start(&["cmd", &word], Stdin::Null).unwrap();
    pair.host_sends();
    let waiting = pair.start(Stdin::Null);
    let next = pair.start(Stdin::Null);
    pair.host.kill(waiting).unwrap();
    pair.settle();
    assert!(!pair.commands.contains_key(&waiting));
    assert!(pair.commands.contains_key(&first) && pair.commands.contains_key(&next));
}

#[test]
fn a_lost_connection_ends_everything_and_the_next_one_starts_clean() {
    let mut pair = pair();
    let id = pair.running(Stdin::Pipe);
    pair.produce(id, Stream::Stdout, b"kept");
    pair.settle();
    pair.host.handle_closed("the guest closed its agent port");
    assert_eq!(
        pair.try_start(&["x"], Stdin::Null),
        Err(StartError::Closed("the guest closed its agent port".into()))
    );
    let mut buf = [0; 16];
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::Data(4));
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::End);
    assert!(matches!(pair.host.terminal(id), Some(Terminal::Lost(_))));
    assert_eq!(pair.host.write_stdin(id, bytes(1)), Err(WriteError::Ended));
    pair.guest = crate::guest::Conn::new();
    pair.to_guest.clear();
    pair.host.handle_opened();
    pair.settle();
    let next = pair.running(Stdin::Null);
    assert!(next > id, "ids are never used twice");
}

#[test]
fn a_chunk_of_one_byte_holds_no_more_than_it_is_charged() {
    assert!(core::mem::size_of::<execution::Chunk>() + 64 <= crate::CHUNK_CHARGE as usize);
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    let mut payload = Vec::with_capacity(16_384);
    payload.push(1);
    let head = raw(0x91, id.get(), &payload);
    pair.host.judge(head.first_chunk().unwrap(), 1);
    pair.host.deliver(payload).unwrap();
    let chunk = pair.host.take_chunk(id, Stream::Stdout).unwrap();
    let vec: Vec<u8> = chunk.into();
    assert!(
        vec.capacity() < 64,
        "spare capacity of {} is retained",
        vec.capacity()
    );
}

#[test]
fn a_killed_waiter_does_not_hold_up_the_requests_behind_it() {
    let mut pair = pair();
    let word = "w".repeat(40_000);
    let big = pair.try_start(&["cmd", &word], Stdin::Null).unwrap();
    pair.host_sends();
    let killed = pair.start(Stdin::Null);
    let last = pair.start(Stdin::Null);
    while pair.host.inspect().executions[0].phase == "requesting" {
        assert!(pair.host_sends());
    }
    pair.host.kill(killed).unwrap();
    pair.host.forget(killed);
    pair.settle();
    for id in [big, last] {
        assert!(
            pair.commands.contains_key(&id),
            "{id} never reached the guest"
        );
    }
}

#[test]
fn unanswered_pings_are_bounded_and_an_unasked_pong_is_refused() {
    let mut pair = pair();
    for seq in 0..CONTROL_QUEUE as u64 {
        pair.host.ping(seq).unwrap();
        pair.host_sends();
    }
    assert_eq!(pair.host.ping(99), Err(ControlError::Full));
    pair.settle();
    assert!(
        pair.host.is_ready(),
        "an honest guest can answer all of them"
    );
    pair.host.ping(100).unwrap();
    pair.settle();
    let pong = raw(FromGuest::Pong.to_wire(), 0, &1u64.to_le_bytes());
    let head = pong.first_chunk().unwrap();
    assert_eq!(pair.host.judge(head, 8), Verdict::Accept(8));
    assert!(pair.host.deliver(pong[HEADER_LEN..].to_vec()).is_err());
}

#[test]
fn a_terminal_that_breaks_a_rule_is_the_confirmation_of_the_end_all_the_same() {
    let both = crate::ExitStatus {
        code: Some(1),
        signal: Some(9),
        duration_us: 0,
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
fn starts_that_are_killed_while_the_guest_does_not_read_leave_nothing_in_line() {
    let mut pair = pair();
    let word = "w".repeat(40_000);
    pair.try_start(&["cmd", &word], Stdin::Null).unwrap();
    for round in 0..1000 {
        if round == 500 {
            pair.host_sends();
        }
        let id = pair.start(Stdin::Null);
        pair.host.kill(id).unwrap();
        pair.host.forget(id);
    }
    assert_eq!(pair.host.active(), 1);
    assert!(pair.host.waiting_requests.is_empty());
    let mut turns = 0;
    while pair.host.schedule.next_turn().is_some() {
        turns += 1;
    }
    assert!(turns <= 1, "{turns} turns wait for one execution");
}

#[test]
fn the_applications_buffers_are_handed_back_instead_of_dropped() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(200)).unwrap();
    pair.settle();
    assert!(pair.host.take_dropped().is_empty());
    pair.host.cancel_write(id);
    assert_eq!(pair.host.take_dropped(), [bytes(200).slice(64..)]);
    pair.host.write_stdin(id, bytes(50)).unwrap();
    pair.host.handle_closed("test");
    assert_eq!(pair.host.take_dropped(), [bytes(50)]);
}

#[test]
fn a_drained_stream_keeps_no_memory_of_the_many_chunks_it_held() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    for _ in 0..4000 {
        pair.host_receives(&raw(0x91, id.get(), b"x"), 1);
    }
    let held = pair.host.execs[&id].stdout.chunks.capacity();
    let room = held * core::mem::size_of::<execution::Chunk>();
    assert!(room / 4000 + 64 <= 256, "{room} bytes for 4000 chunks");
    while pair.host.take_chunk(id, Stream::Stdout).is_some() {}
    assert!(pair.host.execs[&id].stdout.chunks.capacity() <= 64);
}

#[test]
fn an_environment_that_fits_no_frame_is_refused_by_size() {
    let mut config = Config::default();
    config.validate().unwrap();
    config.env.push(crate::EnvVar {
        key: b"BIG".to_vec().into(),
        value: alloc::vec![b'x'; 40_000].into(),
    });
    let error = config.validate().unwrap_err();
    assert!(matches!(error, ConfigError::TooLarge { size, limit: 32_752 } if size > 40_000));
}
