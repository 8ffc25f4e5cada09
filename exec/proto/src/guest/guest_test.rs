//! What the guest's end refuses from a host that breaks the rules.

use alloc::vec;
use alloc::vec::Vec;

use super::super::*;
use crate::ExecId;
use crate::message::{Bootstrap, encode};
use crate::pair::{argv, raw};

fn greeted() -> Conn {
    let mut conn = Conn::new();
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
    };
    conn.handle_bytes(&raw(0x01, 0, &encode(&bootstrap)))
        .unwrap();
    assert!(matches!(conn.poll_event(), Some(Event::Bootstrap(_))));
    conn.ready(crate::Ready::default());
    conn
}

fn request(id: u64) -> Vec<u8> {
    let mut request = argv(&["cmd"]);
    request.stdin = crate::StdinMode::Pipe;
    let mut frame = raw(0x10, id, &encode(&request));
    frame[5] = crate::frame::LAST;
    frame
}

/// A connection with execution 1 running.
fn running() -> Conn {
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
    let cases: [(&str, Vec<u8>, &str); 9] = [
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
