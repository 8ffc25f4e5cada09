//! A guest that is too old to know of limits.

use alloc::vec::Vec;

use super::*;
use crate::pair::{argv, bytes, exit_code, raw};

const CHUNK: usize = 4096;

/// A host that takes a legacy guest, and such a guest's Ready.
fn greeted(limits: Limits) -> Pair {
    let mut pair = Pair::closed(limits);
    pair.host = Conn::new(Config {
        limits,
        allow_legacy_guest: true,
        ..Config::default()
    });
    connect(&mut pair, None);
    pair
}

/// The guest opens its port and says Ready.
fn connect(pair: &mut Pair, exec_limits: Option<Limits>) {
    pair.host.handle_opened();
    pair.host.poll_transmit().unwrap();
    let ready = Ready {
        generation: crate::GENERATION,
        connection: pair.host.inspect().connection,
        exec_limits,
        ..Ready::default()
    };
    receive(pair, FromGuest::Ready, 0, &encode(&ready));
    assert!(pair.host.is_ready());
}

fn receive(pair: &mut Pair, kind: FromGuest, exec: u64, payload: &[u8]) -> Verdict {
    pair.host_receives(&raw(kind.to_wire(), exec, payload), payload.len())
}

fn running(pair: &mut Pair, stdin: Stdin) -> ExecId {
    let id = pair.start(stdin);
    let request = pair.host.poll_transmit().unwrap();
    assert_eq!(request.head[4], 0x10);
    receive(pair, FromGuest::Started, id.get(), &7_u32.to_le_bytes());
    id
}

fn sent(pair: &mut Pair) -> Vec<Frame> {
    core::iter::from_fn(|| pair.host.poll_transmit()).collect()
}

#[test]
fn a_legacy_guest_is_taken_if_allowed_and_claims_no_bound() {
    let pair = greeted(Limits::default());
    let told = pair
        .notices
        .iter()
        .any(|notice| matches!(notice, Notice::Ready(ready) if ready.exec_limits.is_none()));
    assert!(told, "{:?}", pair.notices);
    assert!(!pair.host.inspect().bounded);
}

#[test]
fn being_allowed_to_be_old_does_not_allow_other_limits() {
    let mut pair = Pair::closed(Limits::default());
    pair.host = Conn::new(Config {
        allow_legacy_guest: true,
        ..Config::default()
    });
    pair.host.handle_opened();
    pair.host.poll_transmit().unwrap();
    let ready = encode(&Ready {
        generation: crate::GENERATION,
        connection: 1,
        exec_limits: Some(small()),
        ..Ready::default()
    });
    let frame = raw(FromGuest::Ready.to_wire(), 0, &ready);
    pair.host.judge(frame.first_chunk().unwrap(), ready.len());
    assert!(pair.host.deliver(ready).is_err());
}

#[test]
fn a_request_that_demands_bounds_is_refused_by_a_legacy_guest_alone() {
    let demanding = || {
        Start::new(argv(&["cmd"]), Stdin::Null)
            .unwrap()
            .demanding_bounds()
    };
    let mut pair = greeted(Limits::default());
    assert_eq!(pair.host.start(demanding()), Err(StartError::Unbounded));
    assert_eq!(pair.host.active(), 0);
    let id = running(&mut pair, Stdin::Null);
    assert_eq!(id.get(), 1, "the refused one used up no id");
    // The next connection's agent is judged by its own Ready.
    connect(&mut pair, Some(Limits::default()));
    assert!(pair.host.inspect().bounded);
    assert!(pair.host.start(demanding()).is_ok());
}

#[test]
fn a_legacy_guest_is_given_stdin_without_a_window_in_chunks_of_four_kibibytes() {
    let mut pair = greeted(Limits::default());
    let id = running(&mut pair, Stdin::Pipe);
    pair.host.write_stdin(id, bytes(1 << 20)).unwrap();
    let frames = sent(&mut pair);
    assert!(frames.iter().all(|frame| frame.body.len() <= CHUNK));
    let all: Vec<u8> = frames
        .iter()
        .flat_map(|frame| frame.body.to_vec())
        .collect();
    assert!(
        all == bytes(1 << 20),
        "all of it, though nothing was acknowledged"
    );
    assert_eq!(pair.host.pending_stdin(id), 0);
    pair.host.close_stdin(id).unwrap();
    assert_eq!(sent(&mut pair).len(), 1);
}

#[test]
fn a_legacy_guest_is_told_nothing_of_what_was_read() {
    let mut pair = greeted(small());
    let id = running(&mut pair, Stdin::Null);
    for _ in 0..100 {
        let verdict = receive(&mut pair, FromGuest::Stdout, id.get(), &[b'x'; 700]);
        assert_eq!(verdict, Verdict::Accept(700));
        assert_eq!(pair.read_all(id, Stream::Stdout).len(), 700);
    }
    assert!(sent(&mut pair).is_empty(), "it would not understand");
    assert_eq!(pair.view(id).output_waits_for, "command");
    receive(
        &mut pair,
        FromGuest::Exited,
        id.get(),
        &encode(&exit_code(3)),
    );
    assert_eq!(
        pair.host.terminal(id),
        Some(&Terminal::Exited(exit_code(3)))
    );
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn the_host_holds_no_more_of_a_legacy_guest_than_of_any_other() {
    let mut pair = greeted(small());
    let id = running(&mut pair, Stdin::Null);
    let other = running(&mut pair, Stdin::Null);
    assert_eq!(
        receive(&mut pair, FromGuest::Stdout, id.get(), &[b'x'; 768]),
        Verdict::Accept(768),
        "1024 units with its charge"
    );
    assert_eq!(
        receive(&mut pair, FromGuest::Stdout, id.get(), b"x"),
        Verdict::Discard(1)
    );
    let Some(Terminal::Failed(failure)) = pair.host.terminal(id) else {
        panic!("{:?}", pair.host.terminal(id));
    };
    assert_eq!(
        (failure.kind, &*failure.stage),
        (FailureKind::Protocol, "protocol")
    );
    assert!(
        failure.message.contains("output_limit"),
        "{}",
        failure.message
    );
    // It is killed; what was accepted stays, and others go on.
    let kills: Vec<u8> = sent(&mut pair).iter().map(|frame| frame.head[4]).collect();
    assert_eq!(kills, [0x14]);
    assert_eq!(pair.read_all(id, Stream::Stdout).len(), 768);
    assert_eq!(
        receive(&mut pair, FromGuest::Stdout, other.get(), &[b'x'; 700]),
        Verdict::Accept(700)
    );
}

#[test]
fn a_legacy_guests_chunks_are_at_most_four_kibibytes() {
    let mut pair = greeted(Limits::default());
    let id = running(&mut pair, Stdin::Null);
    let whole = [b'x'; CHUNK + 1];
    assert_eq!(
        receive(&mut pair, FromGuest::Stdout, id.get(), &whole[1..]),
        Verdict::Accept(CHUNK)
    );
    assert_eq!(
        receive(&mut pair, FromGuest::Stdout, id.get(), &whole),
        Verdict::Discard(CHUNK + 1)
    );
    assert!(failed_with_protocol(&pair, id));
}
