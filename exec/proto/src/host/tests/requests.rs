//! Requests on their way to the guest.

use alloc::vec::Vec;

use super::*;
use crate::TerminalSize;
use crate::pair::{argv, bytes};

#[test]
fn a_large_request_goes_in_parts_one_at_a_time() {
    let mut pair = pair();
    let word = "w".repeat(100_000);
    let big: Vec<ExecId> = (0..3)
        .map(|_| pair.try_start(&["cmd", &word], Stdin::Null).unwrap())
        .collect();
    let little = pair.start(Stdin::Null);
    pair.settle();
    for id in big {
        assert_eq!(pair.requests[&id].argv[1][..], *word.as_bytes());
    }
    assert_eq!(pair.requests[&little].argv.len(), 1);
}

#[test]
fn a_request_over_the_ceiling_is_refused_before_anything_is_sent() {
    let mut pair = pair();
    let word = "w".repeat(REQUEST_MAX);
    let error = pair.try_start(&["cmd", &word], Stdin::Null).unwrap_err();
    assert!(
        matches!(
            error,
            StartError::TooLarge {
                limit: REQUEST_MAX,
                ..
            }
        ),
        "{error}"
    );
    assert!(!pair.host_sends());
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn a_kill_during_a_request_in_parts_is_not_lost() {
    let mut pair = pair();
    let word = "w".repeat(50_000);
    let id = pair.try_start(&["cmd", &word], Stdin::Null).unwrap();
    pair.host_sends();
    pair.host.kill(id).unwrap();
    pair.settle();
    assert_eq!(pair.commands[&id].kills, 1);
    assert!(matches!(pair.host.terminal(id), Some(Terminal::Exited(s)) if s.signal == Some(9)));
}

#[test]
fn a_kill_before_the_request_left_ends_it_on_the_host_and_lets_others_start() {
    let mut pair = pair();
    let word = "w".repeat(50_000);
    let first = pair.try_start(&["cmd", &word], Stdin::Null).unwrap();
    pair.host_sends();
    let waiting = pair.start(Stdin::Null);
    let next = pair.start(Stdin::Null);
    pair.host.kill(waiting).unwrap();
    pair.settle();
    assert!(!pair.commands.contains_key(&waiting));
    assert!(pair.commands.contains_key(&first) && pair.commands.contains_key(&next));
}

#[test]
fn a_killed_waiter_does_not_hold_up_the_requests_behind_it() {
    let mut pair = pair();
    let word = "w".repeat(40_000);
    let big = pair.try_start(&["cmd", &word], Stdin::Null).unwrap();
    pair.host_sends();
    let killed = pair.start(Stdin::Null);
    let last = pair.start(Stdin::Null);
    while pair.host.inspect().executions[0].phase == "requesting" {
        assert!(pair.host_sends());
    }
    pair.host.kill(killed).unwrap();
    pair.host.forget(killed);
    pair.settle();
    for id in [big, last] {
        assert!(
            pair.commands.contains_key(&id),
            "{id} never reached the guest"
        );
    }
}

#[test]
fn starts_that_are_killed_while_the_guest_does_not_read_leave_nothing_in_line() {
    let mut pair = pair();
    let word = "w".repeat(40_000);
    pair.try_start(&["cmd", &word], Stdin::Null).unwrap();
    for round in 0..1000 {
        if round == 500 {
            pair.host_sends();
        }
        let id = pair.start(Stdin::Null);
        pair.host.kill(id).unwrap();
        pair.host.forget(id);
    }
    assert_eq!(pair.host.active(), 1);
    assert_eq!(pair.host.requests.len(), 1, "the one that is half sent");
    let mut turns = 0;
    while pair.host.schedule.next_turn().is_some() {
        turns += 1;
    }
    assert!(turns <= 1, "{turns} turns wait for one execution");
}

#[test]
fn requests_reach_the_guest_in_the_order_of_their_ids() {
    let mut pair = pair();
    let word = "w".repeat(40_000);
    let mut ids = Vec::new();
    for round in 0..20 {
        let words: &[&str] = if round % 3 == 0 {
            &["cmd", &word]
        } else {
            &["cmd"]
        };
        ids.push(pair.try_start(words, Stdin::Bytes(bytes(40_000))).unwrap());
        for _ in 0..round % 4 {
            pair.host_sends();
        }
        if round % 5 == 0 {
            pair.guest_receives(usize::MAX);
            pair.guest_sends();
        }
    }
    pair.settle();
    assert!(ids.iter().all(|id| pair.commands.contains_key(id)));
}

#[test]
fn many_small_words_count_with_what_encodes_them() {
    let mut pair = pair();
    let words = alloc::vec!["w"; REQUEST_MAX / 2 + 1];
    let error = pair.try_start(&words, Stdin::Null).unwrap_err();
    let StartError::TooLarge { size, limit } = error else {
        panic!("{error}")
    };
    assert_eq!(limit, REQUEST_MAX);
    assert!(size > REQUEST_MAX, "{size}");
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn every_word_costs_what_the_receiver_keeps_of_it() {
    let mut pair = pair();
    for (words, fits) in [(50_000, true), (60_000, false)] {
        let words = alloc::vec!["w"; words];
        let started = pair.try_start(&words, Stdin::Null);
        assert_eq!(started.is_ok(), fits, "{started:?}");
    }
    pair.settle();
    assert_eq!(pair.host.active(), 1);
}

#[test]
fn a_terminal_without_rows_or_columns_is_refused_by_the_guests_end() {
    for (rows, cols) in [(0, 80), (24, 0), (0, 0)] {
        let mut pair = pair();
        let mut request = argv(&["vi"]);
        request.terminal = Some(TerminalSize { rows, cols });
        let start = Start::new(request, Stdin::Null).unwrap();
        let id = pair.host.start(start).unwrap();
        pair.settle();
        assert!(pair.commands.is_empty(), "no command is started");
        assert!(
            matches!(pair.host.terminal(id), Some(Terminal::Failed(f))
                if f.kind == FailureKind::PtySetup && f.stage == "terminal"),
            "{:?}",
            pair.host.terminal(id)
        );
        assert_eq!(pair.guest.executions(), 0);
    }
}
