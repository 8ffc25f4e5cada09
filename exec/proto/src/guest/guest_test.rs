//! What the guest's end refuses from a host that breaks the rules.

use alloc::vec;
use alloc::vec::Vec;

use super::super::*;
use crate::ExecId;
use crate::message::{Bootstrap, encode};
use crate::pair::{argv, raw};

pub(in crate::guest) fn greeted() -> Conn {
    greet(Conn::new())
}

pub(in crate::guest) fn greet(mut conn: Conn) -> Conn {
    let bootstrap = Bootstrap {
        generation: crate::GENERATION,
        connection: 1,
        limits: crate::Limits {
            max_executions: 2,
            ..crate::Limits::default()
        },
        hostname: None,
        env: vec![],
        cwd: None,
        resources: None,
    };
    conn.handle_bytes(&raw(0x01, 0, &encode(&bootstrap)))
        .unwrap();
    assert!(matches!(conn.poll_event(), Some(Event::Bootstrap(_))));
    conn.ready(crate::Ready::default());
    conn
}

pub(in crate::guest) fn request(id: u64) -> Vec<u8> {
    let mut request = argv(&["cmd"]);
    request.stdin = crate::StdinMode::Pipe;
    let mut frame = raw(0x10, id, &encode(&request));
    frame[5] = crate::frame::LAST;
    frame
}

/// A connection with execution 1 running.
pub(in crate::guest) fn running() -> Conn {
    let mut conn = greeted();
    conn.handle_bytes(&request(1)).unwrap();
    start(&mut conn);
    conn
}

fn start(conn: &mut Conn) {
    conn.started(ExecId::new(1).unwrap(), 5);
    let mut buf = vec![0; crate::FRAME_MAX];
    while conn.poll_transmit(&mut buf) != Transmit::Idle {}
}

#[test]
fn each_rule_that_a_host_breaks_ends_the_connection() {
    let too_big = vec![0; 16_385];
    let mut reserved = raw(0x11, 1, b"x");
    reserved[7] = 1;
    let end = raw(0x12, 1, b"");
    let after_end = [end.clone(), raw(0x11, 1, b"x")].concat();
    let cases: [(&str, Vec<u8>, &str); 14] = [
        ("reserved bytes", reserved, "reserved"),
        ("stdin after its end", after_end, "after its end"),
        ("end again", end.repeat(2), "second end"),
        (
            "stdin chunk",
            raw(0x11, 1, &too_big),
            "larger than stdin_chunk_size",
        ),
        ("empty stdin", raw(0x11, 1, b""), "empty"),
        ("never started", raw(0x11, 9, b"x"), "never started"),
        ("id again", request(1), "used again"),
        (
            "ack beyond",
            raw(0x15, 1, &9u64.to_le_bytes()),
            "beyond what was sent",
        ),
        ("second bootstrap", raw(0x01, 0, b""), "second bootstrap"),
        ("unknown kind", raw(0x7f, 0, b""), "not known"),
        ("no id", raw(0x12, 0, b""), "names no execution"),
        ("no rows", raw(0x16, 1, &[0, 0, 80, 0]), "or columns"),
        ("no columns", raw(0x16, 1, &[24, 0, 0, 0]), "or columns"),
        (
            "ceiling",
            raw(0x11, 1, &vec![0; crate::FRAME_MAX]),
            "ceiling",
        ),
    ];
    for (name, frame, rule) in cases {
        let mut conn = running();
        let fault = conn.handle_bytes(&frame).unwrap_err();
        assert!(fault.0.contains(rule), "{name}: {fault}");
    }
}

#[test]
fn stdin_beyond_the_allowance_is_refused() {
    let mut conn = running();
    for _ in 0..4 {
        conn.handle_bytes(&raw(0x11, 1, &vec![0; 16_384])).unwrap();
    }
    assert!(conn.handle_bytes(&raw(0x11, 1, b"x")).is_err());
}

#[test]
fn an_execution_beyond_the_maximum_is_refused() {
    let mut conn = greeted();
    conn.handle_bytes(&request(1)).unwrap();
    conn.handle_bytes(&request(2)).unwrap();
    assert!(
        conn.handle_bytes(&request(3))
            .unwrap_err()
            .0
            .contains("max_executions")
    );
}

#[test]
fn frames_for_an_execution_that_ended_are_skipped() {
    let mut conn = greeted();
    conn.handle_bytes(&request(1)).unwrap();
    let id = ExecId::new(1).unwrap();
    conn.started(id, 5);
    conn.stream_ended(id, Stream::Stdout);
    conn.stream_ended(id, Stream::Stderr);
    conn.exited(id, crate::pair::exit_code(0));
    let mut buf = vec![0; crate::FRAME_MAX];
    while conn.poll_transmit(&mut buf) != Transmit::Idle {}
    assert_eq!(conn.executions(), 0);
    conn.handle_bytes(&raw(0x11, 1, b"late")).unwrap();
    conn.handle_bytes(&raw(0x15, 1, &1u64.to_le_bytes()))
        .unwrap();
    conn.handle_bytes(&raw(0x13, 1, &9u32.to_le_bytes()))
        .unwrap();
    while let Some(event) = conn.poll_event() {
        assert!(matches!(event, Event::Start { .. }), "{event:?}");
    }
}

#[test]
fn a_stream_cut_into_single_bytes_means_the_same() {
    let mut whole = greeted();
    let mut cut = greeted();
    let mut rest = raw(0x11, 1, b"hello");
    rest.extend(raw(0x12, 1, b""));
    for stream in [request(1), rest] {
        whole.handle_bytes(&stream).unwrap();
        for byte in &stream {
            cut.handle_bytes(core::slice::from_ref(byte)).unwrap();
        }
        start(&mut whole);
        start(&mut cut);
    }
    let events = |conn: &mut Conn| core::iter::from_fn(|| conn.poll_event()).collect::<Vec<_>>();
    assert_eq!(events(&mut whole), events(&mut cut));
    let id = ExecId::new(1).unwrap();
    assert_eq!(cut.stdin_pending(id).unwrap().0, b"hello");
}

#[test]
fn an_announced_length_allocates_nothing() {
    let mut conn = greeted();
    conn.handle_bytes(&request(1)).unwrap();
    let header = crate::Header {
        len: u32::MAX,
        kind: 0x15,
        flags: 0,
        reserved: 0,
        exec: 1,
    };
    assert!(conn.handle_bytes(&header.encode()).is_err());
}

#[test]
fn stdin_before_started_is_refused() {
    let mut conn = greeted();
    conn.handle_bytes(&request(1)).unwrap();
    assert!(
        conn.handle_bytes(&raw(0x11, 1, b"x"))
            .unwrap_err()
            .0
            .contains("before Started")
    );
}

#[test]
fn pending_stdin_holds_its_allowance_and_not_more_and_nothing_when_it_was_taken() {
    let mut conn = running();
    let id = ExecId::new(1).unwrap();
    let mut stream = Vec::new();
    for _ in 0..4 {
        stream.extend(raw(0x11, 1, &vec![7; 16_384]));
    }
    for piece in stream.chunks(4096) {
        conn.handle_bytes(piece).unwrap();
    }
    assert_eq!(conn.execs[&id].stdin.len(), 65_536);
    assert_eq!(conn.execs[&id].stdin.capacity(), 65_536);
    conn.stdin_written(id, 65_536);
    assert!(conn.execs[&id].stdin.capacity() <= STDIN_RING_KEPT);
}

#[test]
fn a_bootstrap_that_cannot_work_is_refused() {
    let good = Bootstrap {
        generation: crate::GENERATION,
        connection: 1,
        limits: crate::Limits::default(),
        hostname: None,
        env: vec![],
        cwd: None,
        resources: None,
    };
    let newer = Bootstrap {
        generation: crate::GENERATION + 1,
        ..good.clone()
    };
    let unlimited = Bootstrap {
        limits: crate::Limits {
            output_limit: 0,
            ..good.limits
        },
        ..good.clone()
    };
    let cases = [
        (encode(&newer), "generation"),
        (encode(&unlimited), "limits"),
        (vec![0xff], "decoded"),
    ];
    for (body, rule) in cases {
        let fault = Conn::new().handle_bytes(&raw(0x01, 0, &body)).unwrap_err();
        assert!(fault.0.contains(rule), "{fault}");
    }
    assert!(
        Conn::new()
            .handle_bytes(&raw(0x01, 0, &encode(&good)))
            .is_ok()
    );
}

#[test]
fn requests_that_break_the_rules_of_their_parts_end_the_connection() {
    let part = |id, len| raw(0x10, id, &vec![0; len]);
    let words = argv(&alloc::vec!["w"; crate::REQUEST_MAX / crate::WORD_CHARGE + 1]);
    let mut parts: Vec<_> = encode(&words)
        .chunks(crate::REQUEST_PART)
        .map(|part| raw(0x10, 1, part))
        .collect();
    parts.last_mut().unwrap()[5] = crate::frame::LAST;
    let cases: [(&str, Vec<Vec<u8>>, &str); 5] = [
        ("too many words", parts, "decoded"),
        ("part", vec![part(1, crate::REQUEST_PART + 1)], "16 KiB"),
        (
            "two at once",
            vec![part(1, 9), part(2, 9)],
            "second request",
        ),
        (
            "whole",
            vec![part(1, crate::REQUEST_PART); crate::REQUEST_MAX / crate::REQUEST_PART + 1],
            "1 MiB",
        ),
        (
            "nonsense",
            vec![{
                let mut last = part(1, 9);
                last[5] = crate::frame::LAST;
                last
            }],
            "decoded",
        ),
    ];
    for (name, frames, rule) in cases {
        let mut conn = greeted();
        let (last, before) = frames.split_last().unwrap();
        for frame in before {
            conn.handle_bytes(frame).unwrap();
        }
        let fault = conn.handle_bytes(last).unwrap_err();
        assert!(fault.0.contains(rule), "{name}: {fault}");
    }
}

#[test]
fn a_repeated_output_ack_grants_nothing_and_one_that_goes_back_ends_the_connection() {
    let mut conn = running();
    let id = ExecId::new(1).unwrap();
    conn.stream_ready(id, Stream::Stdout, true);
    let mut buf = vec![0; crate::FRAME_MAX];
    assert!(matches!(
        conn.poll_transmit(&mut buf),
        Transmit::Read { .. }
    ));
    assert_eq!(conn.output_read(id, Stream::Stdout, 100, &mut buf), 116);
    let room = |conn: &Conn| conn.execs[&id].window.available();
    let ack = |total: u64| raw(0x15, 1, &total.to_le_bytes());
    conn.handle_bytes(&ack(300)).unwrap();
    let granted = room(&conn);
    conn.handle_bytes(&ack(300)).unwrap();
    assert_eq!(room(&conn), granted);
    let fault = conn.handle_bytes(&ack(299)).unwrap_err();
    assert!(fault.0.contains("goes back"), "{fault}");
}

#[test]
fn stdin_taken_in_pieces_is_acknowledged_once_and_never_said_twice() {
    let mut conn = running();
    let id = ExecId::new(1).unwrap();
    // The whole window, so that the host is short of credit.
    for _ in 0..4 {
        conn.handle_bytes(&raw(0x11, 1, &vec![7; 16_384])).unwrap();
    }
    let mut buf = vec![0; crate::FRAME_MAX];
    assert_eq!(
        conn.poll_transmit(&mut buf),
        Transmit::Idle,
        "receiving gives no capacity back"
    );
    for n in [1, 1, 2] {
        conn.stdin_written(id, n);
    }
    let Transmit::Frame(n) = conn.poll_transmit(&mut buf) else {
        panic!()
    };
    assert_eq!(buf[..n], raw(0x93, 1, &4u64.to_le_bytes()));
    assert_eq!(conn.poll_transmit(&mut buf), Transmit::Idle);
}

#[test]
fn stdin_in_frames_of_one_byte_costs_a_byte_each() {
    let mut conn = running();
    let id = ExecId::new(1).unwrap();
    for _ in 0..5000 {
        conn.handle_bytes(&raw(0x11, 1, b"x")).unwrap();
        while conn.poll_event().is_some() {}
    }
    assert_eq!(conn.execs[&id].stdin.len(), 5000);
    assert!(conn.execs[&id].stdin.capacity() < 2 * 5000);
}

#[test]
fn a_stdin_ring_grows_by_doubling_and_not_beyond_its_allowance() {
    let mut conn = running();
    let id = ExecId::new(1).unwrap();
    let mut capacities = alloc::collections::BTreeSet::new();
    for _ in 0..65_536 {
        conn.handle_bytes(&raw(0x11, 1, b"x")).unwrap();
        while conn.poll_event().is_some() {}
        capacities.insert(conn.execs[&id].stdin.capacity());
    }
    assert_eq!(capacities.last(), Some(&65_536));
    assert!(capacities.len() <= 20, "{capacities:?}");
}

#[test]
fn more_pings_than_the_agent_slot_holds_end_the_connection() {
    let mut conn = greeted();
    let ping = raw(0x02, 0, &7u64.to_le_bytes());
    let mut taken = 0;
    let fault = loop {
        match conn.handle_bytes(&ping) {
            Ok(()) => taken += 1,
            Err(fault) => break fault,
        }
    };
    // Ready has not left either, and has its own place.
    assert_eq!(taken, crate::CONTROL_QUEUE);
    assert!(fault.0.contains("agent slot"), "{fault}");
}

#[test]
fn an_unknown_optional_frame_is_skipped_whatever_it_holds() {
    let mut conn = running();
    let mut news = raw(0x7f, 1, &[0xff; 1000]);
    news[5] = crate::frame::OPTIONAL;
    conn.handle_bytes(&news).unwrap();
    while conn.poll_event().is_some() {}
    conn.handle_bytes(&raw(0x11, 1, b"x")).unwrap();
    assert_eq!(
        conn.poll_event(),
        Some(Event::StdinData(ExecId::new(1).unwrap()))
    );
}

#[test]
fn frames_before_the_agent_was_ready_end_the_connection() {
    for frame in [request(1), raw(0x02, 0, &[0; 8]), raw(0x11, 1, b"x")] {
        let fault = Conn::new().handle_bytes(&frame).unwrap_err();
        assert!(fault.0.contains("before the agent was ready"), "{fault}");
    }
}

#[test]
fn the_end_that_was_reported_first_is_the_end() {
    let mut conn = running();
    let id = ExecId::new(1).unwrap();
    for stream in Stream::ALL {
        conn.stream_ended(id, stream);
    }
    conn.exited(id, crate::pair::exit_code(3));
    conn.exited(id, crate::pair::exit_code(4));
    let mut buf = vec![0; crate::FRAME_MAX];
    let Transmit::Frame(n) = conn.poll_transmit(&mut buf) else {
        panic!()
    };
    assert_eq!(buf[..n], raw(0x95, 1, &encode(&crate::pair::exit_code(3))));
    assert_eq!(conn.poll_transmit(&mut buf), Transmit::Idle);
}

#[test]
fn a_request_with_a_field_that_only_a_newer_host_knows_is_refused_and_others_run() {
    let mut conn = greeted();
    let mut body = encode(&argv(&["cmd"]));
    // One more entry in the map: 99 => 1.
    body[0] += 1;
    body.extend([0x18, 99, 1]);
    let mut frame = raw(0x10, 1, &body);
    frame[5] = crate::frame::LAST;
    conn.handle_bytes(&frame).unwrap();
    assert_eq!(conn.poll_event(), None, "it is not run without that field");
    let mut buf = vec![0; crate::FRAME_MAX];
    let mut told = Vec::new();
    while let Transmit::Frame(n) = conn.poll_transmit(&mut buf) {
        told.push((buf[4], buf[crate::HEADER_LEN..n].to_vec()));
    }
    let (kind, body) = told.pop().unwrap();
    assert_eq!(kind, 0x96);
    let failure: crate::Failure = crate::message::decode(&body).unwrap();
    assert_eq!(failure.stage, "request");
    conn.handle_bytes(&request(2)).unwrap();
    assert!(matches!(conn.poll_event(), Some(Event::Start { .. })));
}
