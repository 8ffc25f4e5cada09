//! Taking an execution over, and what neither end may ask of the other.

use super::*;

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
