//! A client's end and its relay's end, joined.

use alloc::vec::Vec;
use bytes::Bytes;

use super::*;
use crate::host::{self, Stdin, Terminal};
use crate::limits::Limits;
use crate::message::{Failure, FailureKind};
use crate::pair::{Pair, exit_code, raw};
use crate::{CHUNK_CHARGE, HEADER_LEN, Stream};

/// A client and a relay, of whose execution's output the relay plays the source.
fn relay(limits: Limits) -> Pair {
    let mut pair = Pair::closed(limits);
    pair.host = host::Conn::facing_relay(host::Config {
        limits,
        ..host::Config::default()
    });
    pair.guest = Conn::for_relay();
    pair.host.handle_opened();
    pair.settle();
    assert!(pair.host.is_ready());
    pair
}

fn acked(pair: &mut Pair) -> Vec<(ExecId, u64)> {
    let acked = core::iter::from_fn(|| pair.guest.poll_acked());
    acked.map(|(id, acked)| (id, acked.total)).collect()
}

fn failure(kind: FailureKind) -> Failure {
    Failure {
        kind,
        errno: None,
        stage: "vm".into(),
        message: "it burnt down".into(),
    }
}

#[test]
fn output_read_after_the_end_is_acknowledged_to_the_last_unit() {
    let mut pair = relay(Limits::default());
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, b"hello");
    pair.exit(id, exit_code(0));
    pair.settle();
    assert!(pair.host.terminal(id).is_some());
    assert_eq!(acked(&mut pair), []);
    assert_eq!(pair.guest.slots_held(), 1, "unread output holds the slot");
    pair.read_all(id, Stream::Stdout);
    pair.settle();
    let total = 5 + u64::from(CHUNK_CHARGE);
    assert_eq!(acked(&mut pair), [(id, total)]);
    assert_eq!(pair.guest.slots_held(), 0);
}

#[test]
fn output_that_is_let_go_after_the_end_is_acknowledged_too() {
    let mut pair = relay(Limits::default());
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stderr, b"x");
    pair.exit(id, exit_code(0));
    pair.settle();
    pair.host.forget(id);
    pair.settle();
    assert_eq!(acked(&mut pair), [(id, 1 + u64::from(CHUNK_CHARGE))]);
    assert!(
        pair.host.inspect().executions.is_empty(),
        "the entry went then"
    );
}

#[test]
fn a_request_never_overtakes_the_acknowledgement_that_frees_its_slot() {
    let mut pair = relay(Limits {
        max_executions: 2,
        ..Limits::default()
    });
    let other = pair.running(Stdin::Null);
    for _ in 0..20 {
        let id = pair.running(Stdin::Null);
        pair.produce(id, Stream::Stdout, b"x");
        pair.exit(id, exit_code(0));
        pair.settle();
        // A round is under way, with its acknowledgements behind it, when both are asked for.
        pair.host.signal(other, 1).unwrap();
        pair.host.signal(other, 2).unwrap();
        assert!(pair.host_sends());
        pair.read_all(id, Stream::Stdout);
        let next = pair.start(Stdin::Null);
        // A request before the acknowledgement would be one beyond max_executions, which ends
        // the connection.
        pair.settle();
        pair.host.kill(next).unwrap();
        pair.settle();
        pair.host.forget(id);
        pair.host.forget(next);
    }
}

#[test]
fn a_failure_may_follow_the_start_and_say_that_the_vm_is_gone() {
    let mut pair = relay(Limits::default());
    let id = pair.running(Stdin::Null);
    pair.guest.failed(id, failure(FailureKind::Lost));
    pair.settle();
    assert_eq!(
        pair.host.terminal(id),
        Some(&Terminal::Lost("it burnt down".into()))
    );
}

#[test]
fn an_agent_that_claims_to_be_a_relay_breaks_the_protocol() {
    let mut pair = Pair::new(Limits::default());
    let id = pair.start(Stdin::Null);
    pair.refuse = Some(FailureKind::Lost);
    pair.settle();
    let Some(Terminal::Failed(failure)) = pair.host.terminal(id) else {
        panic!("{:?}", pair.host.terminal(id));
    };
    assert_eq!(failure.kind, FailureKind::Protocol);
}

#[test]
fn an_acknowledgement_beyond_what_was_sent_is_refused_after_the_end_as_before() {
    let mut pair = relay(Limits::default());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, Bytes::from_static(b"x")).unwrap();
    pair.produce(id, Stream::Stdout, b"hello");
    pair.exit(id, exit_code(0));
    pair.settle();
    assert!(pair.guest.is_settling(id));
    let beyond = raw(0x15, id.get(), &10_000u64.to_le_bytes());
    assert!(beyond.len() > HEADER_LEN);
    assert!(pair.guest.handle_bytes(&beyond).is_err());
}
