//! Leaving an execution and taking one over, at the VM's connection and at a client's.

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

#[test]
fn an_adopted_execution_goes_on_at_the_bytes_at_which_it_stood() {
    let mut pair = client(small());
    let id = adopted(
        &mut pair,
        Adopted {
            pid: Some(31),
            on_terminal: true,
            stdin_open: true,
            stdin_accepted: 1000,
            stdout_consumed: 2000,
            stderr_consumed: 3000,
            ..Adopted::default()
        },
    );
    assert!(!pair.host.is_adopting(id));
    assert_eq!(pair.host.pid(id), Some(31));
    assert!(pair.host.on_terminal(id));
    assert_eq!(pair.host.next_event(id), None, "the start was told before");
    pair.host.write_stdin(id, bytes(20)).unwrap();
    pair.produce(id, Stream::Stdout, &[1; 30]);
    pair.settle();
    assert_eq!(pair.read_all(id, Stream::Stdout), [1; 30]);
    pair.settle();
    let progress = pair.host.progress(id).unwrap();
    assert_eq!(
        (progress.stdin_accepted, progress.stdout_consumed),
        (1020, 2030)
    );
    let (_, acked) = pair.guest.poll_acked().unwrap();
    assert_eq!(acked.total, 30 + u64::from(CHUNK_CHARGE));
    assert_eq!(acked.consumed, [2030, 3000]);
    pair.eat(id, 20);
    assert_eq!(pair.commands[&id].eaten, bytes(20));
}

#[test]
fn what_was_not_told_before_an_adoption_is_told_after_it() {
    let mut pair = client(small());
    let id = adopted(&mut pair, Adopted::default());
    assert!(!pair.host.is_adopting(id));
    assert_eq!(pair.host.pid(id), None);
    pair.guest.started(id, 8);
    pair.settle();
    assert_eq!(pair.host.next_event(id), Some(Event::Started { pid: 8 }));
    let error = StdinError {
        errno: 32,
        name: "EPIPE".into(),
        message: "closed".into(),
    };
    let broken = adopted(
        &mut pair,
        Adopted {
            pid: Some(9),
            stdin_open: true,
            stdin_error: Some(error.clone()),
            ..Adopted::default()
        },
    );
    assert_eq!(pair.host.next_event(broken), None);
    assert_eq!(
        pair.host.stdin_state(broken),
        Err(host::WriteError::Broken(error))
    );
}

#[test]
fn a_refused_adoption_is_a_failure_and_frees_its_place() {
    let mut pair = client(small());
    let of = ExecId::new(4).unwrap();
    let id = pair.host.adopt(of).unwrap();
    assert_eq!(asked(&mut pair), guest::Event::Adopt { id, of });
    pair.guest.failed(
        id,
        Failure {
            kind: FailureKind::Other,
            errno: None,
            stage: "adopt".into(),
            message: "there is no such execution".into(),
        },
    );
    pair.settle();
    assert!(matches!(pair.host.terminal(id), Some(Terminal::Failed(_))));
    assert_eq!(pair.host.active(), 0);
    pair.running(Stdin::Null);
}

#[test]
fn adoptions_and_requests_keep_their_order() {
    let mut pair = client(small());
    let first = pair.start(Stdin::Null);
    let of = ExecId::new(4).unwrap();
    let second = pair.host.adopt(of).unwrap();
    assert!(first < second);
    assert_eq!(
        pair.host.adopt(of),
        Err(StartError::AtCapacity {
            limit: 2,
            active: 2
        })
    );
    pair.settle();
    assert!(pair.commands.contains_key(&first));
    assert_eq!(pair.asked, [guest::Event::Adopt { id: second, of }]);
}

#[test]
fn no_agent_is_asked_to_hand_over() {
    let mut pair = Pair::new(small());
    let of = ExecId::new(4).unwrap();
    assert_eq!(pair.host.adopt(of), Err(StartError::NotReady));
}

#[test]
fn a_deadline_goes_on_where_the_execution_does() {
    let mut pair = client(small());
    let id = pair.try_start_within(Duration::from_secs(60)).unwrap();
    pair.settle();
    pair.pass(Duration::from_secs(20));
    pair.host.leave(id).unwrap();
    let timeout = Timeout {
        limit: Duration::from_secs(60),
        left: Duration::from_secs(40),
        at_start: Duration::from_secs(60),
    };
    let leave = Leave {
        timeout: Some(timeout),
    };
    assert_eq!(asked(&mut pair), guest::Event::Leave { id, leave });
    pair.guest.left(id, id);
    pair.settle();
    assert_eq!(pair.host.next_deadline(), None);

    let mut vm = Pair::new(small());
    let id = vm.running(Stdin::Null);
    vm.host.leave(id).unwrap();
    vm.host.keep_deadline(id, timeout);
    vm.pass(Duration::from_secs(39));
    vm.settle();
    assert_eq!(vm.commands[&id].kills, 0);
    vm.pass(Duration::from_secs(1));
    vm.settle();
    assert_eq!(vm.commands[&id].kills, 1);
    assert!(matches!(
        vm.host.terminal(id),
        Some(Terminal::TimedOut { limit, .. }) if *limit == timeout.limit
    ));
    // A deadline that cannot be is none.
    let id = vm.running(Stdin::Null);
    let zero = Timeout {
        limit: Duration::ZERO,
        ..timeout
    };
    vm.host.keep_deadline(id, zero);
    assert_eq!(vm.host.next_deadline(), None);
    vm.host.keep_deadline(
        id,
        Timeout {
            left: Duration::MAX,
            ..timeout
        },
    );
    let at = pair::now() + timeout.limit;
    assert_eq!(
        vm.host.next_deadline(),
        Some(at),
        "no more than it was given"
    );
}

#[test]
fn an_end_by_the_vms_deadline_is_one_to_its_client() {
    let mut pair = client(small());
    let id = pair.running(Stdin::Null);
    let status = ExitStatus {
        signal: Some(9),
        ..ExitStatus::default()
    };
    let limit = Duration::from_secs(3);
    pair.guest.timed_out(id, limit, status.clone());
    pair.settle();
    assert_eq!(
        pair.host.terminal(id),
        Some(&Terminal::TimedOut { status, limit })
    );
}

#[test]
fn an_agent_that_says_what_only_a_relay_does_breaks_its_execution() {
    for kind in [FromGuest::Left, FromGuest::Adopted, FromGuest::TimedOut] {
        let mut pair = Pair::new(small());
        let id = pair.running(Stdin::Null);
        let frame = raw(kind.to_wire(), id.get(), &[1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(pair.host_receives(&frame, 8), Verdict::Discard(8));
        assert!(matches!(
            pair.host.terminal(id),
            Some(Terminal::Failed(Failure {
                kind: FailureKind::Protocol,
                ..
            }))
        ));
    }
}

#[test]
fn a_relay_that_answers_what_was_not_asked_breaks_the_execution() {
    for kind in [FromGuest::Left, FromGuest::Adopted] {
        let mut pair = client(small());
        let id = pair.running(Stdin::Null);
        let frame = raw(kind.to_wire(), id.get(), &[1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(pair.host_receives(&frame, 8), Verdict::Discard(8));
    }
    let mut pair = client(small());
    let id = pair.host.adopt(ExecId::new(4).unwrap()).unwrap();
    asked(&mut pair);
    let frame = raw(FromGuest::Started.to_wire(), id.get(), &[1, 0, 0, 0]);
    assert_eq!(pair.host_receives(&frame, 4), Verdict::Discard(4));
}

#[test]
fn a_host_that_asks_an_agent_for_what_a_relay_does_ends_the_connection() {
    for (kind, id) in [(ToGuest::Leave, 1), (ToGuest::Adopt, 2)] {
        let mut pair = Pair::new(small());
        pair.running(Stdin::Null);
        let frame = raw(kind.to_wire(), id, &4u64.to_le_bytes());
        assert!(pair.guest.handle_bytes(&frame).is_err());
    }
}

#[test]
fn a_client_that_asks_for_nonsense_ends_its_connection() {
    let adopt = ToGuest::Adopt.to_wire();
    let part = raw(ToGuest::Request.to_wire(), 2, b"begun");
    for frame in [
        raw(adopt, 2, &0u64.to_le_bytes()),
        raw(adopt, 2, b"short"),
        raw(adopt, 0, &4u64.to_le_bytes()),
        raw(adopt, 1, &4u64.to_le_bytes()),
        [part, raw(adopt, 3, &4u64.to_le_bytes())].concat(),
        raw(ToGuest::Leave.to_wire(), 1, b"nonsense"),
        raw(ToGuest::Leave.to_wire(), 9, b"\xa0"),
        raw(ToGuest::OutputAck.to_wire(), 1, &0u64.to_le_bytes()),
    ] {
        let mut pair = client(small());
        pair.running(Stdin::Null);
        let outcome = pair.guest.handle_bytes(&frame);
        assert!(outcome.is_err(), "{frame:x?}");
    }
}
