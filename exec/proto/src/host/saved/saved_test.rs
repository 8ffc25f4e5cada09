//! What comes back, and that it goes on as before.

use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use super::*;
use crate::frame::{FromGuest, ToGuest};
use crate::host::{Event, Notice, Start, Stdin, Terminal, Verdict};
use crate::message::{ExitStatus, StdinError};
use crate::pair::{Pair, argv, bytes, exit_code, now, raw, set_now};
use crate::{FailureKind, HEADER_LEN, Header, Stream};

pub(super) fn small() -> Limits {
    Limits {
        max_executions: 16,
        input_limit: 64,
        output_limit: 1024,
        stdin_chunk_size: 16,
        output_chunk_size: 128,
    }
}

fn epipe() -> StdinError {
    StdinError {
        errno: 32,
        name: "EPIPE".into(),
        message: "Broken pipe".into(),
    }
}

pub(super) fn restored(saved: SavedConn) -> Result<Conn, RestoreError> {
    let options = RestoreOptions {
        allow_legacy_guest: true,
        ..RestoreOptions::default()
    };
    Conn::restore(saved, options)
}

/// Four with deadlines: overdue since 1 s, with 1 s left to confirm the end, ended by it, and with
/// 92 s left. The guest has not read the kills of the first two.
fn deadlines(pair: &mut Pair) {
    let ids = [1, 3, 3, 100].map(|seconds| {
        let limit = Duration::from_secs(seconds);
        let id = pair.try_start_within(limit).unwrap();
        pair.settle();
        id
    });
    for seconds in [2, 2, 4] {
        pair.pass(Duration::from_secs(seconds));
        while let Some(frame) = pair.host.poll_transmit() {
            assert_eq!(Header::decode(&frame.head).kind, ToGuest::Kill.to_wire());
        }
    }
    pair.exit(
        ids[2],
        ExitStatus {
            signal: Some(9),
            ..ExitStatus::default()
        },
    );
    pair.settle();
}

/// Ends with an execution in every state that there is, and something in every line.
pub(super) fn busy() -> Pair {
    let mut pair = Pair::new(small());
    deadlines(&mut pair);
    let streaming = pair.running(Stdin::Pipe);
    pair.produce(streaming, Stream::Stdout, b"first line\n");
    pair.host.write_stdin(streaming, bytes(200)).unwrap();
    pair.settle();
    pair.produce(streaming, Stream::Stderr, b"a warning\n");
    pair.eat(streaming, 10);
    pair.settle();
    // Little room is left, so that what is read is worth saying.
    pair.produce(streaming, Stream::Stdout, b"second line\n");
    pair.settle();
    pair.host.read(streaming, Stream::Stdout, &mut [0; 4]);

    let broken = pair.running(Stdin::Pipe);
    pair.produce(broken, Stream::Stdout, b"before");
    pair.settle();
    pair.guest.stdin_error(broken, epipe());
    pair.settle();
    pair.produce(broken, Stream::Stdout, b"after");
    pair.settle();

    let discarding = pair.running(Stdin::Null);
    pair.host.discard(discarding, Stream::Stderr);
    pair.produce(discarding, Stream::Stderr, &[0; 100]);
    pair.settle();
    pair.host.kill(discarding).unwrap();
    pair.host_sends();

    let ended = pair.running(Stdin::Null);
    pair.produce(ended, Stream::Stdout, b"the result");
    pair.exit(ended, exit_code(3));
    pair.settle();

    pair.refuse = Some(FailureKind::NotFound);
    let failed = pair.start(Stdin::Null);
    pair.settle();
    assert!(pair.host.next_event(failed).is_some());

    let forgotten = pair.running(Stdin::Pipe);
    pair.host.forget(forgotten);

    let condemned = pair.running(Stdin::Pipe);
    let chunk = raw(FromGuest::Stdout.to_wire(), condemned.get(), b"kept");
    pair.host_receives(&chunk, 4);

    pair.start(Stdin::Bytes(Bytes::from_static(b"fixed")));
    let large = "w".repeat(50_000);
    pair.try_start(&["half", &large], Stdin::Null).unwrap();
    for _ in 0..3 {
        pair.host.signal(streaming, 10).unwrap();
    }
    let half_sent = |pair: &Pair| {
        let begun = |exec: &format::ExecV1| {
            matches!(exec.phase, format::PhaseV1::Requesting { begun: true, .. })
        };
        pair.host.save().unwrap().0.execs.iter().any(begun)
    };
    while !half_sent(&pair) {
        assert!(pair.host_sends());
    }
    pair.start(Stdin::Null);
    let empty = raw(FromGuest::Stdout.to_wire(), condemned.get(), b"");
    pair.host_receives(&empty, 0);
    pair.host.read(streaming, Stream::Stdout, &mut [0; 4]);
    pair.host.signal(streaming, 15).unwrap();
    pair.host.ping(77).unwrap();
    // Of a kind that a newer agent may know, with the flag that it may be skipped.
    let mut unknown = raw(0xff, 0, b"");
    unknown[5] = 0x80;
    pair.host_receives(&unknown, 0);
    pair.host.power_off(true, 1500);
    pair.host.read(ended, Stream::Stdout, &mut [0; 4]);
    pair
}

#[test]
fn every_state_of_an_execution_comes_back_and_goes_on_to_its_end() {
    let mut pair = busy().restored();
    // Everything in line leaves, the guest answers, and nothing is owed.
    pair.settle();
    assert!(pair.notices.contains(&Notice::Pong(77)));
    let ids: Vec<ExecId> = pair
        .host
        .inspect()
        .executions
        .iter()
        .map(|e| e.id)
        .collect();
    assert_eq!(ids.len(), 14);
    for id in ids {
        pair.eat(id, usize::MAX);
        while pair.host.next_event(id).is_some() {}
        pair.settle();
        pair.exit(id, exit_code(0));
        pair.settle();
        pair.host.forget(id);
    }
    assert_eq!(pair.host.active(), 0);
    assert!(pair.host.inspect().executions.is_empty());
    assert_eq!(pair.guest.executions(), 0);
}

#[test]
fn what_stands_in_line_leaves_in_the_same_order() {
    let mut original = busy();
    let mut restored = original.restored();
    let mut kinds = Vec::new();
    loop {
        let frames = [original.host.poll_transmit(), restored.host.poll_transmit()];
        let [a, b] = frames.map(|frame| frame.map(|frame| (frame.head, frame.body)));
        assert_eq!(a, b);
        let Some((head, _)) = a else { break };
        kinds.extend(ToGuest::from_wire(Header::decode(&head).kind));
    }
    let sent = |kind| kinds.iter().filter(|sent| **sent == kind).count();
    for kind in [
        ToGuest::PowerOff,
        ToGuest::Ping,
        ToGuest::Kill,
        ToGuest::Signal,
        ToGuest::OutputAck,
    ] {
        assert!(sent(kind) > 0, "{kind:?} in {kinds:?}");
    }
    assert!(sent(ToGuest::Request) > 2);
    assert_eq!(restored.host.save(), original.host.save());
    let (restored, original) = (restored.host.inspect(), original.host.inspect());
    assert_eq!(restored.faults, original.faults);
    assert_eq!((restored.skipped, original.skipped), (1, 1));
    for (restored, original) in restored.executions.iter().zip(&original.executions) {
        assert_eq!(restored.program, original.program);
    }
}

#[test]
fn a_ping_that_was_sent_is_answered_after_the_restore() {
    let mut pair = Pair::new(small());
    pair.host.ping(5).unwrap();
    assert!(pair.host_sends());
    let mut pair = pair.restored();
    pair.settle();
    assert_eq!(pair.notices, [Notice::Pong(5)]);
}

#[test]
fn what_was_told_before_the_snapshot_is_not_told_again() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Null);
    assert!(matches!(
        pair.host.next_event(id),
        Some(Event::Started { .. })
    ));
    let mut pair = pair.restored();
    assert_eq!(pair.host.next_event(id), None);
    assert_eq!(pair.host.pid(id), Some(100));
    pair.exit(id, exit_code(0));
    pair.settle();
    assert!(matches!(pair.host.next_event(id), Some(Event::End(_))));
    let mut pair = pair.restored();
    assert_eq!(pair.host.next_event(id), None);
}

#[test]
fn what_was_not_read_comes_back_in_the_order_in_which_it_came() {
    let mut pair = busy();
    let mut restored = pair.restored();
    for id in pair.host.executions().collect::<Vec<_>>() {
        loop {
            let event = pair.host.next_event(id);
            assert_eq!(restored.host.next_event(id), event, "of {id}");
            if event.is_none() {
                break;
            }
        }
    }
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.produce(id, Stream::Stderr, b"one");
    pair.settle();
    pair.guest.stdin_error(id, epipe());
    pair.settle();
    pair.produce(id, Stream::Stdout, b"two");
    pair.settle();
    pair.exit(id, exit_code(0));
    pair.settle();
    let mut restored = pair.restored();
    let events: Vec<Event> = core::iter::from_fn(|| restored.host.next_event(id)).collect();
    assert_eq!(
        events,
        [
            Event::Started { pid: 100 },
            Event::Stderr(Bytes::from_static(b"one")),
            Event::StdinError(epipe()),
            Event::Stdout(Bytes::from_static(b"two")),
            Event::End(Terminal::Exited(exit_code(0))),
        ]
    );
}

#[test]
fn a_restored_chunk_owns_an_allocation_of_its_own_size() {
    let mut pair = busy().restored();
    let mut chunks = 0;
    for id in pair.host.executions().collect::<Vec<_>>() {
        for stream in Stream::ALL {
            while let Some(chunk) = pair.host.take_chunk(id, stream) {
                let len = chunk.len();
                let owned = chunk.try_into_mut().expect("nobody else holds it");
                assert_eq!(owned.capacity(), len);
                chunks += 1;
            }
        }
    }
    assert!(chunks > 4);
}

#[test]
fn what_is_left_of_a_deadline_goes_on_by_the_new_clock() {
    let secs = Duration::from_secs;
    let mut pair = Pair::new(small());
    deadlines(&mut pair);
    let ids: Vec<ExecId> = pair.host.executions().collect();
    let saved = pair.host.save().unwrap();
    // Elsewhere, on a machine that was started later.
    set_now(secs(1));
    let options = RestoreOptions {
        clock: now,
        ..RestoreOptions::default()
    };
    let mut host = Conn::restore(saved.clone(), options).unwrap();
    assert_eq!(host.save(), Ok(saved));
    let unconfirmed = |host: &Conn| {
        ids.iter()
            .map(|id| host.unconfirmed(*id))
            .collect::<Vec<_>>()
    };
    assert_eq!(unconfirmed(&host), [Some(secs(1)), None, None, None]);
    assert_eq!(host.next_deadline(), Some(secs(1 + 1)));
    host.expire(secs(2));
    assert_eq!(
        unconfirmed(&host),
        [Some(secs(1)), Some(secs(3)), None, None]
    );
    assert!(
        matches!(host.terminal(ids[2]), Some(Terminal::TimedOut { limit, .. }) if *limit == secs(3))
    );
    assert_eq!(host.next_deadline(), Some(secs(1 + 92)));
    assert!(host.poll_transmit().is_none(), "those before are killed");
    host.expire(secs(1 + 92));
    let kill = host.poll_transmit().unwrap();
    assert_eq!(Header::decode(&kill.head).exec_id(), Some(ids[3]));
    assert!(host.poll_transmit().is_none());
}

#[test]
fn ids_go_on_behind_the_last_one_used_before_the_snapshot() {
    let mut pair = Pair::new(small());
    for _ in 0..3 {
        let id = pair.running(Stdin::Null);
        pair.exit(id, exit_code(0));
        pair.settle();
        pair.host.forget(id);
    }
    let mut pair = pair.restored();
    assert_eq!(pair.host.executions().count(), 0);
    // Late frames of those that are gone reach nobody; those of one to come are no frames yet.
    let late = raw(FromGuest::Stdout.to_wire(), 3, b"late");
    assert_eq!(pair.host_receives(&late, 4), Verdict::Discard(4));
    let id = pair.running(Stdin::Null);
    assert_eq!(id.get(), 4);
    let early = raw(FromGuest::Stdout.to_wire(), 5, b"early");
    assert!(matches!(pair.host_receives(&early, 5), Verdict::Close(_)));
}

#[test]
fn limits_and_ready_are_those_that_were_captured() {
    let limits = Limits {
        output_limit: 5000,
        ..small()
    };
    assert_ne!(limits, Limits::default());
    let pair = Pair::new(limits);
    let saved = pair.host.save().unwrap();
    assert_eq!(saved.limits(), &limits);
    assert_eq!(saved.ready().exec_limits, Some(limits));
    let restored = pair.restored();
    assert_eq!(restored.host.limits(), &limits);
    assert!(restored.host.is_ready());
}

#[test]
fn what_has_no_two_ends_to_go_on_is_not_saved() {
    let mut pair = Pair::closed(small());
    assert_eq!(pair.host.save(), Err(SaveError::NotReady));
    pair.host.handle_opened();
    assert_eq!(pair.host.save(), Err(SaveError::NotReady));
    pair.settle();
    let id = pair.running(Stdin::Null);
    assert!(pair.host.save().is_ok());

    let frame = raw(FromGuest::Stdout.to_wire(), id.get(), b"four");
    let (head, payload) = frame.split_first_chunk::<HEADER_LEN>().unwrap();
    assert_eq!(pair.host.judge(head, 4), Verdict::Accept(4));
    assert_eq!(pair.host.save(), Err(SaveError::MidFrame));
    pair.host.deliver(payload.to_vec()).unwrap();
    assert!(pair.host.save().is_ok());

    pair.host.handle_closed("the end");
    assert_eq!(pair.host.save(), Err(SaveError::NotReady));

    let client = Conn::facing_relay(crate::host::Config::default());
    assert_eq!(client.save(), Err(SaveError::Relayed));
}

#[test]
fn a_second_connection_is_saved_with_what_the_first_left_unread() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Null);
    let frame = raw(FromGuest::Stdout.to_wire(), id.get(), b"kept");
    pair.host_receives(&frame, 4);
    // One more was charged when the connection ended, and never delivered.
    pair.host.judge(frame.first_chunk().unwrap(), 4);
    pair.host.handle_closed("the guest closed its agent port");
    pair.guest = crate::guest::Conn::new();
    pair.to_guest.clear();
    pair.host.handle_opened();
    pair.settle();
    let mut pair = pair.restored();
    assert_eq!(pair.read_all(id, Stream::Stdout), b"kept");
    assert!(matches!(pair.host.terminal(id), Some(Terminal::Lost(_))));
    assert_eq!(pair.host.active(), 0);
}

/// A pair whose agent knows no limits.
fn legacy() -> Pair {
    let mut pair = Pair::closed(small());
    pair.host = Conn::new(crate::host::Config {
        limits: small(),
        allow_legacy_guest: true,
        ..crate::host::Config::default()
    });
    connect(&mut pair, None);
    pair
}

fn connect(pair: &mut Pair, exec_limits: Option<Limits>) {
    pair.host.handle_opened();
    pair.host.poll_transmit().unwrap();
    let ready = crate::message::encode(&Ready {
        generation: GENERATION,
        connection: pair.host.inspect().connection,
        exec_limits,
        ..Ready::default()
    });
    pair.host_receives(&raw(FromGuest::Ready.to_wire(), 0, &ready), ready.len());
    assert!(pair.host.is_ready());
}

#[test]
fn a_guest_without_limits_comes_back_as_one_and_so_does_what_it_left() {
    let mut pair = legacy();
    let id = pair.start(Stdin::Pipe);
    pair.host.poll_transmit().unwrap();
    let started = raw(FromGuest::Started.to_wire(), id.get(), &[7, 0, 0, 0]);
    pair.host_receives(&started, 4);
    // More than the window, and more than the largest chunk, of a guest that has them.
    pair.host.write_stdin(id, bytes(500)).unwrap();
    while pair.host.poll_transmit().is_some() {}
    let frame = raw(FromGuest::Stdout.to_wire(), id.get(), &[1; 500]);
    assert_eq!(pair.host_receives(&frame, 500), Verdict::Accept(500));
    let mut pair = pair.restored();
    assert!(!pair.host.inspect().bounded);
    assert_eq!(pair.host.write_stdin(id, bytes(500)), Ok(()));
    assert!(pair.host.poll_transmit().is_some());
    // The next connection's agent knows limits; what is left unread stays what it was.
    pair.host.handle_closed("the guest closed its agent port");
    connect(&mut pair, Some(small()));
    let mut pair = pair.restored();
    assert!(pair.host.inspect().bounded);
    assert_eq!(pair.read_all(id, Stream::Stdout).len(), 500);
}

#[test]
fn a_request_is_sent_whole_over_a_snapshot_between_any_two_of_its_parts() {
    let large = "w".repeat(60_000);
    for parts in 0..5 {
        let mut pair = Pair::new(small());
        let start = Start::new(argv(&["cmd", &large]), Stdin::Null).unwrap();
        let id = pair.host.start(start).unwrap();
        for _ in 0..parts {
            pair.host_sends();
            pair.guest_receives(1000);
        }
        let mut pair = pair.restored();
        pair.settle();
        assert_eq!(pair.requests[&id].argv[1].len(), 60_000, "after {parts}");
    }
}
