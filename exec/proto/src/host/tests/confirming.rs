//! How long the guest has to confirm the end of what its deadline killed.

use alloc::vec;
use core::time::Duration;

use super::deadlines::{LIMIT, running, sent, timed, timed_out};
use super::*;
use crate::frame::{CHUNK_CHARGE, ToGuest};
use crate::host::deadline::PIPES_HOLD;
use crate::pair::{now, raw, set_now};

/// The same with an allowance of one chunk, which is a byte.
fn smallest() -> Pair {
    set_now(Duration::from_secs(1000));
    Pair::new(Limits {
        output_chunk_size: 1,
        output_limit: CHUNK_CHARGE + 1,
        ..Limits::default()
    })
}

fn overdue(pair: &mut Pair, id: ExecId) -> bool {
    let notices = core::mem::take(&mut pair.notices);
    notices.iter().any(|notice| {
        matches!(notice, Notice::Exec { id: of, what } if *of == id && what & what::UNCONFIRMED != 0)
    })
}

#[test]
fn an_end_that_is_not_confirmed_in_time_is_told_once_and_keeps_its_slot() {
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    pair.pass(LIMIT);
    assert_eq!(sent(&mut pair), [ToGuest::Kill.to_wire()]);
    pair.pass(CONFIRM_WITHIN - Duration::from_nanos(1));
    assert_eq!(pair.host.unconfirmed(id), None);
    assert!(!overdue(&mut pair, id));
    pair.pass(Duration::from_nanos(1));
    assert_eq!(pair.host.unconfirmed(id), Some(LIMIT));
    assert!(overdue(&mut pair, id));
    assert_eq!(pair.host.next_deadline(), None);
    pair.pass(LIMIT);
    assert!(!overdue(&mut pair, id));
    assert_eq!(sent(&mut pair), [], "it is killed once");
    assert_eq!((pair.host.active(), pair.host.terminal(id)), (1, None));
    // The guest confirms it after all.
    pair.guest_receives(usize::MAX);
    pair.guest_sends();
    assert_eq!(pair.host.terminal(id), Some(&timed_out(LIMIT)));
    assert_eq!(pair.host.unconfirmed(id), None);
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn the_time_to_confirm_does_not_run_while_output_waits_for_its_reader() {
    // Nobody polls the application: the command is dead, and what it left cannot come.
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    let limit = Limits::default().output_limit as usize;
    pair.produce(id, Stream::Stdout, &vec![7; limit + 1000]);
    pair.settle();
    for _ in 0..20 {
        pair.pass(LIMIT);
        pair.settle();
        assert_eq!(pair.host.unconfirmed(id), None);
        let next = pair.host.next_deadline().unwrap() - now();
        assert!(
            (Duration::from_secs(1)..=CONFIRM_WITHIN).contains(&next),
            "{next:?}"
        );
    }
    assert!(pair.commands[&id].exited);
    // As soon as there is room, the guest has its time.
    pair.read_all(id, Stream::Stdout);
    pair.pass(CONFIRM_WITHIN - Duration::from_nanos(1));
    assert_eq!(pair.host.unconfirmed(id), None);
    pair.settle();
    pair.read_all(id, Stream::Stdout);
    assert_eq!(pair.host.terminal(id), Some(&timed_out(LIMIT)));
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn a_guest_that_says_nothing_when_there_is_room_again_has_not_confirmed() {
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    pair.produce(id, Stream::Stdout, &[7; 2 << 20]);
    pair.settle();
    pair.pass(LIMIT);
    pair.pass(CONFIRM_WITHIN * 2);
    pair.read_all(id, Stream::Stdout);
    let mut looks = 0;
    while pair.host.unconfirmed(id).is_none() {
        let next = pair.host.next_deadline().unwrap() - now();
        pair.pass(next);
        looks += 1;
        assert!(looks < 10, "it is never given up");
    }
    assert!(looks > 0, "it had no time to answer");
}

#[test]
fn a_start_that_never_comes_is_unconfirmed_too() {
    let mut pair = timed();
    let id = pair.try_start_within(LIMIT).unwrap();
    pair.host_sends();
    pair.pass(LIMIT);
    pair.pass(CONFIRM_WITHIN);
    assert_eq!(pair.host.unconfirmed(id), Some(LIMIT));
    // And killed should it come.
    pair.settle();
    assert_eq!(pair.host.terminal(id), Some(&timed_out(LIMIT)));
}

#[test]
fn the_time_to_confirm_begins_when_it_is_killed() {
    // The host was suspended, or its loop held up, for longer than that.
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    pair.pass(LIMIT * 10);
    assert_eq!(pair.host.unconfirmed(id), None);
    assert_eq!(pair.host.next_deadline(), Some(now() + CONFIRM_WITHIN));
}

#[test]
fn a_start_that_comes_late_has_its_own_time_to_confirm_its_end() {
    let instant = Duration::from_nanos(1);
    let mut pair = timed();
    let id = pair.try_start_within(LIMIT).unwrap();
    pair.host_sends();
    pair.pass(LIMIT);
    pair.pass(CONFIRM_WITHIN - instant);
    pair.guest_receives(usize::MAX);
    pair.guest_sends();
    assert_eq!(pair.host.pid(id), Some(100));
    let until = now() + CONFIRM_WITHIN;
    assert_eq!(pair.host.next_deadline(), Some(until));
    assert_eq!(sent(&mut pair), [ToGuest::Kill.to_wire()]);
    pair.pass(CONFIRM_WITHIN - instant);
    assert_eq!(pair.host.unconfirmed(id), None);
    pair.pass(instant);
    assert_eq!(pair.host.unconfirmed(id), Some(LIMIT));
}

#[test]
fn a_guest_that_writes_on_after_the_kill_is_given_up() {
    // It fills the window again after every read; the reader rests half the time.
    let mut pair = timed();
    let id = running(&mut pair, LIMIT);
    let limit = u64::from(Limits::default().output_limit);
    let step = Duration::from_millis(200);
    pair.pass(LIMIT);
    assert_eq!(sent(&mut pair), [ToGuest::Kill.to_wire()]);
    // The guest ignores that.
    pair.to_guest.clear();
    let (mut read, mut waits) = (0, Duration::ZERO);
    while pair.host.unconfirmed(id).is_none() {
        pair.produce(id, Stream::Stdout, &vec![7; limit as usize]);
        pair.settle();
        pair.pass(step);
        read += pair.read_all(id, Stream::Stdout).len() as u64;
        waits += step;
        assert!(
            read <= 4 * limit + PIPES_HOLD + (CONFIRM_WITHIN.as_secs() * 6) * limit,
            "{read}"
        );
        assert!(waits < CONFIRM_WITHIN * 10, "it is never given up");
    }
    assert!(
        read > PIPES_HOLD,
        "a dead command may have left that: {read}"
    );
}

#[test]
fn output_that_waits_now_and_then_is_excused_for_that_time_alone() {
    // A byte comes when there is room for one, and waits for a millisecond in each second.
    let mut pair = smallest();
    let id = running(&mut pair, LIMIT);
    pair.pass(LIMIT);
    assert_eq!(sent(&mut pair), [ToGuest::Kill.to_wire()]);
    pair.to_guest.clear();
    let begun = now();
    while pair.host.unconfirmed(id).is_none() {
        pair.produce(id, Stream::Stdout, b"x");
        pair.settle();
        pair.pass(Duration::from_millis(1));
        pair.read_all(id, Stream::Stdout);
        pair.settle();
        pair.pass(Duration::from_millis(999));
        let second = Duration::from_secs(1);
        assert!(now() - begun <= CONFIRM_WITHIN + second, "it has no more");
    }
    assert!(now() - begun >= CONFIRM_WITHIN);
}

#[test]
fn a_wait_that_discards_output_excuses_nothing_however_small_the_allowance() {
    // Each frame uses up the allowance between its header and its payload.
    let mut pair = smallest();
    let id = running(&mut pair, LIMIT);
    pair.host.discard(id, Stream::Stdout);
    pair.pass(LIMIT);
    assert_eq!(sent(&mut pair), [ToGuest::Kill.to_wire()]);
    pair.to_guest.clear();
    let begun = now();
    while pair.host.unconfirmed(id).is_none() {
        let frame = raw(FromGuest::Stdout.to_wire(), id.get(), b"x");
        let head = frame.first_chunk().unwrap();
        assert_eq!(pair.host.judge(head, 1), Verdict::Accept(1));
        set_now(now() + Duration::from_micros(3));
        pair.host.deliver(&b"x"[..]).unwrap();
        pair.pass(Duration::from_millis(200));
        assert!(now() - begun < CONFIRM_WITHIN * 2, "it is never given up");
    }
    assert!(now() - begun >= CONFIRM_WITHIN);
}
