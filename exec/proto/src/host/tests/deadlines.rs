//! How long an execution may take, by a clock that the test moves.

use core::time::Duration;

use super::*;
use crate::frame::ToGuest;
use crate::message::ExitStatus;
use crate::pair::{argv, exit_code, now, raw, set_now};
use crate::{HEADER_LEN, Header, REQUEST_PART};

pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// Both ends after Ready, by a clock that does not begin at zero.
pub(super) fn timed() -> Pair {
    set_now(Duration::from_secs(1000));
    pair()
}

fn start_of(words: &[&str], limit: Duration) -> Start {
    let start = Start::new(argv(words), Stdin::Null).unwrap();
    start.with_timeout(limit).unwrap()
}

pub(super) fn running(pair: &mut Pair, limit: Duration) -> ExecId {
    let id = pair.try_start_within(limit).unwrap();
    pair.settle();
    assert!(pair.commands.contains_key(&id));
    id
}

fn killed() -> ExitStatus {
    ExitStatus {
        signal: Some(9),
        ..ExitStatus::default()
    }
}

/// Killed after it ran for so long by the guest's clock.
fn killed_after(ran: Duration) -> ExitStatus {
    ExitStatus {
        duration_us: ran.as_micros() as u64,
        ..killed()
    }
}

pub(super) fn timed_out(limit: Duration) -> Terminal {
    Terminal::TimedOut {
        status: killed(),
        limit,
    }
}

/// The kinds of the frames that the host has to send, which it then has sent.
pub(super) fn sent(pair: &mut Pair) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let Some(frame) = pair.host.poll_transmit() {
        kinds.push(Header::decode(&frame.head).kind);
        pair.to_guest.extend(frame.head);
        pair.to_guest.extend(frame.body.iter());
    }
    kinds
}

/// What the guest says reaches the host.
fn exits(pair: &mut Pair, id: ExecId, status: ExitStatus) {
    pair.exit(id, status);
    pair.guest_sends();
}

#[test]
fn what_takes_too_long_is_killed_whole_and_its_end_says_so() {
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    pair.produce(id, Stream::Stdout, b"so far");
    pair.settle();
    pair.pass(LIMIT - Duration::from_nanos(1));
    assert_eq!(sent(&mut pair), [], "it has a nanosecond left");
    pair.pass(Duration::from_nanos(1));
    assert_eq!(pair.host.terminal(id), None, "it is not known to be dead");
    pair.settle();
    assert_eq!(pair.commands[&id].kills, 1);
    assert_eq!(pair.host.terminal(id), Some(&timed_out(LIMIT)));
    assert_eq!(pair.read_all(id, Stream::Stdout), b"so far");
    assert_eq!(pair.host.active(), 0);
    assert_eq!(pair.host.next_deadline(), None);
    pair.pass(LIMIT);
    assert_eq!(pair.host.unconfirmed(id), None);
}

#[test]
fn a_deadline_is_counted_from_the_admission() {
    let mut pair = timed();
    let id = pair.try_start_within(LIMIT).unwrap();
    assert_eq!(pair.host.next_deadline(), Some(now() + LIMIT));
    pair.pass(LIMIT - Duration::from_secs(1));
    pair.settle();
    pair.pass(Duration::from_secs(1));
    pair.settle();
    assert_eq!(pair.host.terminal(id), Some(&timed_out(LIMIT)));
}

#[test]
fn an_end_of_its_own_is_never_a_timeout_and_never_lost() {
    // B07: however close to the deadline. `expired` says whether that came first.
    let by = |signal| ExitStatus {
        signal: Some(signal),
        ..ExitStatus::default()
    };
    for (expired, status) in [
        (false, exit_code(0)),
        (false, killed()),
        (true, exit_code(0)),
        (true, exit_code(137)),
        (true, by(15)),
    ] {
        let mut pair = timed();
        let id = running(&mut pair, LIMIT);
        if expired {
            pair.pass(LIMIT);
        }
        exits(&mut pair, id, status.clone());
        let plain = Terminal::Exited(status);
        assert_eq!(pair.host.terminal(id), Some(&plain), "{expired}");
        // The kill that may be under way reaches nobody, and time changes nothing any more.
        pair.settle();
        pair.pass(LIMIT * 2);
        assert_eq!(pair.host.terminal(id), Some(&plain), "{expired}");
        assert_eq!(pair.host.unconfirmed(id), None);
        assert_eq!(pair.host.active(), 0);
    }
}

#[test]
fn what_starts_after_its_deadline_is_killed_then_and_not_before() {
    let mut pair = timed();
    let id = pair.try_start_within(LIMIT).unwrap();
    assert_eq!(sent(&mut pair), [ToGuest::Request.to_wire()]);
    pair.pass(LIMIT);
    assert_eq!(sent(&mut pair), [], "there is nothing to kill yet");
    pair.guest_receives(usize::MAX);
    pair.guest_sends();
    assert_eq!(pair.host.pid(id), Some(100));
    assert_eq!(sent(&mut pair), [ToGuest::Kill.to_wire()]);
    pair.settle();
    assert_eq!(pair.host.terminal(id), Some(&timed_out(LIMIT)));
}

#[test]
fn a_request_that_is_half_sent_is_sent_whole_and_what_it_starts_is_killed() {
    let mut pair = timed();
    let long = "x".repeat(2 * REQUEST_PART);
    let request = start_of(&["cmd", &long], LIMIT);
    let id = pair.host.start(request).unwrap();
    pair.host_sends();
    pair.pass(LIMIT);
    pair.settle();
    assert_eq!(pair.commands[&id].kills, 1);
    assert_eq!(pair.host.terminal(id), Some(&timed_out(LIMIT)));
}

#[test]
fn a_request_of_which_nothing_was_sent_is_not_sent_after_its_deadline() {
    let mut pair = timed();
    let id = pair.try_start_within(LIMIT).unwrap();
    let next = pair.try_start_within(LIMIT * 2).unwrap();
    pair.pass(LIMIT);
    assert!(
        matches!(pair.host.terminal(id), Some(Terminal::Failed(f))
            if f.stage == "timeout" && f.message.contains("60s")),
        "{:?}",
        pair.host.terminal(id)
    );
    assert_eq!(pair.host.active(), 1);
    assert_eq!(pair.host.next_deadline(), Some(now() + LIMIT));
    pair.settle();
    assert_eq!(pair.commands.keys().collect::<Vec<_>>(), [&next]);
}

#[test]
fn deadlines_come_in_the_order_of_their_times() {
    let mut pair = timed();
    let limits = [3, 1, 2].map(Duration::from_secs);
    let ids = limits.map(|limit| running(&mut pair, limit));
    let mut ended = Vec::new();
    for _ in limits {
        let next = pair.host.next_deadline().unwrap();
        let wait = next - now();
        pair.pass(wait);
        pair.settle();
        let new = |id: &&ExecId| !ended.contains(*id) && pair.host.terminal(**id).is_some();
        let new: Vec<ExecId> = ids.iter().filter(new).copied().collect();
        assert_eq!(new.len(), 1);
        ended.extend(new);
    }
    assert_eq!(ended, [ids[1], ids[2], ids[0]]);
}

#[test]
fn what_nobody_holds_is_killed_by_its_deadline() {
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    pair.host.forget(id);
    pair.settle();
    assert_eq!((pair.host.active(), pair.commands[&id].kills), (1, 0));
    pair.pass(LIMIT);
    pair.settle();
    assert_eq!((pair.host.active(), pair.commands[&id].kills), (0, 1));
    assert!(pair.host.inspect().executions.is_empty());
    assert_eq!(pair.host.next_deadline(), None);
}

#[test]
fn whoever_was_killed_before_is_not_killed_again() {
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    pair.host.kill(id).unwrap();
    assert_eq!(sent(&mut pair), [ToGuest::Kill.to_wire()]);
    pair.pass(LIMIT);
    assert_eq!(sent(&mut pair), []);
}

#[test]
fn a_kill_that_was_wanted_before_the_deadline_is_not_told_as_a_timeout() {
    // Its end is heard of after the deadline: output was read late.
    for sent_before in [false, true] {
        let mut pair = timed();
        let id = running(&mut pair, LIMIT);
        pair.host.kill(id).unwrap();
        if sent_before {
            assert_eq!(sent(&mut pair), [ToGuest::Kill.to_wire()]);
        }
        pair.pass(LIMIT);
        pair.settle();
        let plain = Terminal::Exited(killed());
        assert_eq!(pair.host.terminal(id), Some(&plain), "{sent_before}");
    }
    // One that was wanted after it changes nothing.
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    pair.pass(LIMIT);
    pair.host.kill(id).unwrap();
    pair.settle();
    assert_eq!(pair.host.terminal(id), Some(&timed_out(LIMIT)));
}

#[test]
fn what_was_killed_by_others_well_before_its_deadline_has_not_timed_out() {
    // For want of memory, or by itself: the guest's clock says when.
    let start_took = Duration::from_secs(10);
    let left = LIMIT - start_took;
    // The thousandth by which clocks may differ is 50 ms here.
    let differ = Duration::from_millis(150);
    for (ran, timed_out) in [
        (Duration::from_micros(1), false),
        (left - differ - Duration::from_micros(1), false),
        (left - differ, true),
        (left, true),
        (LIMIT * 9, true),
        // It does not measure.
        (Duration::ZERO, true),
    ] {
        let mut pair = timed();
        let id = pair.try_start_within(LIMIT).unwrap();
        pair.host_sends();
        pair.pass(start_took);
        pair.settle();
        pair.pass(left);
        let status = killed_after(ran);
        exits(&mut pair, id, status.clone());
        let end = if timed_out {
            Terminal::TimedOut {
                status,
                limit: LIMIT,
            }
        } else {
            Terminal::Exited(status)
        };
        assert_eq!(pair.host.terminal(id), Some(&end), "{ran:?}");
    }
}

#[test]
fn a_deadline_ends_with_the_connection_and_with_a_broken_rule() {
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    pair.host_receives(&raw(FromGuest::Started.to_wire(), id.get(), &[0; 4]), 4);
    assert!(failed_with_protocol(&pair, id));
    assert_eq!(pair.host.next_deadline(), None);
    let id = running(&mut pair, LIMIT);
    pair.host.handle_closed("gone");
    assert_eq!(pair.host.next_deadline(), None);
    pair.pass(LIMIT * 2);
    assert_eq!(pair.host.unconfirmed(id), None);
    assert_eq!(pair.host.terminal(id), Some(&Terminal::Lost("gone".into())));
}

#[test]
fn a_timeout_of_nothing_or_beyond_every_clock_is_refused_before_anything_is_sent() {
    let mut pair = timed();
    let start = || Start::new(argv(&["cmd"]), Stdin::Null).unwrap();
    let too_long = TIMEOUT_MAX + Duration::from_nanos(1);
    for limit in [Duration::ZERO, too_long, Duration::MAX] {
        let refused = start().with_timeout(limit).map(|_| ());
        assert_eq!(refused, Err(StartError::Timeout { limit }));
    }
    for limit in [Duration::from_nanos(1), TIMEOUT_MAX] {
        let started = pair.host.start(start().with_timeout(limit).unwrap());
        assert!(started.is_ok());
    }
    let used = pair.host.active();
    set_now(Duration::MAX - Duration::from_secs(1));
    let started = pair.host.start(start().with_timeout(LIMIT).unwrap());
    assert_eq!(started, Err(StartError::Timeout { limit: LIMIT }));
    assert_eq!(pair.host.active(), used);
}

#[test]
fn a_kill_by_its_deadline_needs_no_room_and_no_allowance() {
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    let other = running(&mut pair, TIMEOUT_MAX);
    for _ in 0..CONTROL_QUEUE {
        pair.host.signal(other, 10).unwrap();
    }
    pair.produce(id, Stream::Stdout, &[7; 1 << 20]);
    while pair.guest_sends() {}
    assert!(pair.view(id).output_window < HEADER_LEN as u64 * 100);
    pair.pass(LIMIT);
    let first = sent(&mut pair)[0];
    assert_eq!(first, ToGuest::Kill.to_wire());
}
