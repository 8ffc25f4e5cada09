//! Leaving an execution, at the VM's connection and at a client's.

#[path = "leave_test/adopting.rs"]
mod adopting;

use alloc::vec::Vec;

use super::*;
use crate::frame::{FromGuest, Header, ToGuest};
use crate::host::{Config, Event, Read, Stdin, Verdict};
use crate::limits::Limits;
use crate::message::{ExitStatus, Failure, FailureKind, StdinError, TerminalSize};
use crate::pair::{self, Pair, bytes, exit_code, raw};
use crate::{guest, host};
use core::time::Duration;

/// Room for three chunks of output.
fn small() -> Limits {
    Limits {
        max_executions: 2,
        output_limit: 1000,
        output_chunk_size: 64,
        ..Limits::default()
    }
}

/// A client and a relay, which the test plays.
fn client(limits: Limits) -> Pair {
    pair::set_now(Duration::ZERO);
    let mut pair = Pair::closed(limits);
    pair.host = Conn::facing_relay(Config {
        limits,
        clock: pair::now,
        ..Config::default()
    });
    pair.guest = guest::Conn::for_relay();
    pair.host.handle_opened();
    pair.settle();
    pair
}

/// What the relay was asked last.
fn asked(pair: &mut Pair) -> guest::Event {
    pair.settle();
    pair.asked.pop().expect("the relay was asked")
}

/// An execution that a client took over.
fn adopted(pair: &mut Pair, adopted: Adopted) -> ExecId {
    let of = ExecId::new(70).unwrap();
    let id = pair.host.adopt(of).unwrap();
    assert_eq!(asked(pair), guest::Event::Adopt { id, of });
    pair.commands.insert(id, pair::Command::default());
    pair.guest.adopted(id, adopted);
    pair.settle();
    id
}

#[test]
fn what_was_passed_on_and_not_acknowledged_is_there_for_whoever_takes_it_up() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Null);
    let (stdout, stderr) = (bytes(400), bytes(90));
    pair.produce(id, Stream::Stderr, &stderr);
    pair.produce(id, Stream::Stdout, &stdout);
    pair.settle();
    assert!(pair.host.take_forwarded(id, Stream::Stdout).is_some());
    assert!(pair.host.take_forwarded(id, Stream::Stderr).is_some());
    pair.host.release_forwarded(id, [10, 0]).unwrap();
    assert_eq!(pair.host.left(id), None);
    pair.host.leave(id).unwrap();
    assert_eq!(pair.host.left(id), Some(id));
    assert_eq!(pair.host.progress(id).unwrap().stdout_consumed, 10);
    assert_eq!(pair.host.progress(id).unwrap().stderr_consumed, 0);
    pair.host.take_up(id);
    assert_eq!(pair.host.left(id), None);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        out.extend(pair.read_all(id, Stream::Stdout));
        err.extend(pair.read_all(id, Stream::Stderr));
        pair.settle();
    }
    assert_eq!(out, stdout[10..]);
    assert_eq!(err, stderr);
    let view = pair.view(id);
    assert_eq!(view.output_forwarded, 0);
    assert_eq!(view.output_released, view.output_received);
}

#[test]
fn what_is_left_stalls_at_its_window_and_keeps_its_slot_until_it_is_taken_up() {
    let mut pair = Pair::new(small());
    let left = pair.running(Stdin::Null);
    let silent = pair.running(Stdin::Null);
    pair.host.leave(left).unwrap();
    pair.host.leave(silent).unwrap();
    pair.produce(left, Stream::Stdout, &bytes(5000));
    pair.settle();
    assert!(!pair.commands[&left].pipes[&Stream::Stdout].is_empty());
    assert!(pair.view(left).output_received <= 1000);
    pair.exit(silent, exit_code(3));
    pair.settle();
    assert_eq!(pair.host.active(), 2, "though it has nothing to say");
    pair.host.take_up(silent);
    assert_eq!(pair.host.active(), 1);
    assert!(matches!(
        pair.host.next_event(silent),
        Some(Event::End(Terminal::Exited(_)) | Event::Started { .. })
    ));
    // Or until nobody wants it any more.
    pair.host.kill(left).unwrap();
    pair.host.forget(left);
    pair.settle();
    assert_eq!(pair.host.active(), 0);
    assert_eq!(pair.host.left(left), None);
}

#[test]
fn what_holds_no_slot_cannot_be_left() {
    let mut pair = Pair::new(small());
    let read = pair.running(Stdin::Null);
    pair.exit(read, exit_code(0));
    let forgotten = pair.running(Stdin::Null);
    pair.host.forget(forgotten);
    let unknown = ExecId::new(99).unwrap();
    for id in [read, forgotten, unknown] {
        assert_eq!(pair.host.leave(id), Err(ControlError::Ended));
        assert_eq!(pair.host.left(id), None);
    }
}

#[test]
fn a_snapshot_of_what_was_left_can_be_taken_up() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, b"hello");
    pair.settle();
    pair.host.take_forwarded(id, Stream::Stdout).unwrap();
    pair.host.leave(id).unwrap();
    let mut pair = pair.restored();
    assert_eq!(pair.host.executions().collect::<Vec<_>>(), [id]);
    pair.host.take_up(id);
    assert_eq!(pair.read_all(id, Stream::Stdout), b"hello");
}

#[test]
fn a_client_leaves_with_what_it_has_consumed_and_hears_the_id() {
    let mut pair = client(small());
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, &[1; 150]);
    pair.settle();
    let mut buf = [0; 70];
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::Data(70));
    pair.host.leave(id).unwrap();
    let leave = Leave { timeout: None };
    assert_eq!(asked(&mut pair), guest::Event::Leave { id, leave });
    let consumed = core::iter::from_fn(|| pair.guest.poll_acked()).last();
    assert_eq!(consumed.unwrap().1.consumed, [70, 0]);
    // Whatever is read or comes from now on is not the client's.
    pair.produce(id, Stream::Stderr, &[2; 64]);
    pair.settle();
    assert!(!pair.read_all(id, Stream::Stdout).is_empty());
    pair.settle();
    assert_eq!(pair.guest.poll_acked(), None);
    assert_eq!(pair.host.left(id), None);
    let of = ExecId::new(7).unwrap();
    pair.guest.left(id, of);
    pair.settle();
    assert_eq!(pair.host.left(id), Some(of));
    assert!(matches!(pair.host.terminal(id), Some(Terminal::Lost(_))));
    assert!(pair.read_all(id, Stream::Stderr).is_empty());
    assert_eq!((pair.host.active(), pair.guest.executions()), (0, 0));
    pair.host.forget(id);
    assert!(pair.host.inspect().executions.is_empty());
    // Its place is free at both ends.
    pair.running(Stdin::Null);
    pair.running(Stdin::Null);
}

#[test]
fn a_signal_and_a_size_that_were_queued_first_leave_first() {
    let mut pair = client(small());
    let id = pair.running(Stdin::Null);
    let other = pair.running(Stdin::Null);
    let size = TerminalSize { rows: 7, cols: 9 };
    for n in 1..=5 {
        pair.host.signal(id, n).unwrap();
    }
    pair.host.resize(id, size).unwrap();
    pair.host.leave(id).unwrap();
    pair.host.leave(other).unwrap();
    let mut order = Vec::new();
    while let Some(frame) = pair.host.poll_transmit() {
        let head = Header::decode(&frame.head);
        order.push((head.exec, ToGuest::from_wire(head.kind).unwrap()));
    }
    let of = |id: ExecId| {
        let mine = order.iter().filter(|(exec, _)| *exec == id.get());
        mine.map(|(_, kind)| *kind).collect::<Vec<_>>()
    };
    let mut said = [ToGuest::Signal; 7];
    said[5..].copy_from_slice(&[ToGuest::Resize, ToGuest::Leave]);
    assert_eq!(of(id), said);
    assert_eq!(of(other), [ToGuest::Leave]);
}

#[test]
fn what_is_being_killed_is_not_left() {
    let mut pair = client(small());
    let id = pair.running(Stdin::Null);
    pair.host.kill(id).unwrap();
    assert_eq!(pair.host.leave(id), Err(ControlError::Ended));
    pair.settle();
    assert_eq!(pair.commands[&id].kills, 1);
    assert_eq!(pair.host.leave(id), Err(ControlError::Ended));
    assert!(!pair.host.is_leaving(id));
    assert!(pair.asked.is_empty());
}

#[test]
fn a_leave_that_a_deadline_overtakes_is_given_up() {
    let mut pair = client(Limits {
        input_limit: 100,
        stdin_chunk_size: 100,
        ..small()
    });
    let id = pair.try_start_within(Duration::from_secs(60)).unwrap();
    pair.settle();
    pair.host.signal(id, 10).unwrap();
    pair.host.leave(id).unwrap();
    assert!(pair.host.is_leaving(id));
    pair.notices.clear();
    pair.pass(Duration::from_secs(61));
    pair.drain_notices();
    assert!(!pair.host.is_leaving(id));
    let told = pair.notices.iter().any(|notice| {
        matches!(notice, host::Notice::Exec { id: of, what } if *of == id && what & what::KILLED != 0)
    });
    assert!(told, "{:?}", pair.notices);
    pair.settle();
    assert_eq!(pair.commands[&id].kills, 1);
    assert!(pair.asked.is_empty());
}

#[test]
fn what_is_asked_for_with_a_deadline_is_killed_by_whoever_has_it_then() {
    let mut pair = client(small());
    let id = pair.try_start_within(Duration::from_secs(60)).unwrap();
    pair.settle();
    pair.host.leave(id).unwrap();
    asked(&mut pair);
    assert_eq!(pair.host.next_deadline(), None);
    pair.pass(Duration::from_secs(61));
    pair.settle();
    assert_eq!(pair.commands[&id].kills, 0);
    assert_eq!(pair.host.unconfirmed(id), None);
}

#[test]
fn a_client_leaves_when_what_it_wrote_has_left() {
    let mut pair = client(Limits {
        input_limit: 100,
        stdin_chunk_size: 100,
        ..small()
    });
    let id = pair.running(Stdin::Bytes(bytes(250)));
    pair.host.leave(id).unwrap();
    for _ in 0..2 {
        pair.settle();
        assert!(pair.asked.is_empty());
        pair.eat(id, usize::MAX);
    }
    let event = asked(&mut pair);
    assert!(matches!(event, guest::Event::Leave { .. }), "{event:?}");
    assert!(pair.commands[&id].stdin_eof);
}

#[test]
fn an_end_that_comes_first_is_the_clients_with_all_its_output() {
    let mut pair = client(small());
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, b"all of it");
    pair.settle();
    pair.host.leave(id).unwrap();
    pair.exit(id, exit_code(5));
    pair.settle();
    assert_eq!(pair.host.left(id), None);
    assert_eq!(
        pair.host.terminal(id),
        Some(&Terminal::Exited(exit_code(5)))
    );
    assert_eq!(pair.read_all(id, Stream::Stdout), b"all of it");
    pair.settle();
    let (of, acked) = pair.guest.poll_acked().unwrap();
    assert_eq!((of, acked.consumed), (id, [9, 0]));
    assert_eq!(pair.host.leave(id), Err(ControlError::Ended));
}
