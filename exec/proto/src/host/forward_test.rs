//! A relay's use of the host's end.

use super::*;
use crate::host::{Notice, Stdin, what};
use crate::limits::Limits;
use crate::pair::{Pair, exit_code};

const CHARGE: u64 = CHUNK_CHARGE as u64;

#[test]
fn output_that_was_passed_on_stays_charged_until_its_reader_consumed_it() {
    let mut pair = Pair::new(Limits::default());
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, b"hello");
    pair.settle();
    assert!(pair.host.has_output(id, Stream::Stdout));
    assert!(!pair.host.has_output(id, Stream::Stderr));
    let chunk = pair.host.take_forwarded(id, Stream::Stdout);
    assert_eq!(chunk.as_deref(), Some(&b"hello"[..]));
    pair.settle();
    let view = pair.view(id);
    assert_eq!(
        (view.output_released, view.output_forwarded),
        (0, 5 + CHARGE)
    );
    assert_eq!(pair.host.release_forwarded(id, [2, 0]), Ok(2));
    assert_eq!(pair.host.release_forwarded(id, [2, 0]), Ok(0));
    assert_eq!(pair.host.release_forwarded(id, [5, 0]), Ok(3 + CHARGE));
    assert_eq!(pair.view(id).output_released, 5 + CHARGE);
    for wrong in [[4, 0], [6, 0], [5, 1]] {
        assert_eq!(pair.host.release_forwarded(id, wrong), Err(CreditError));
    }
    assert_eq!(pair.view(id).output_released, 5 + CHARGE);
}

#[test]
fn an_acknowledgement_of_which_one_half_is_wrong_changes_nothing_of_the_other() {
    for wrong in [[2, 4], [5, 0], [1, 2], [4, 3]] {
        let mut pair = Pair::new(Limits::default());
        let id = pair.running(Stdin::Null);
        pair.produce(id, Stream::Stdout, b"out");
        pair.produce(id, Stream::Stderr, b"err");
        pair.settle();
        for stream in Stream::ALL {
            assert!(pair.host.take_forwarded(id, stream).is_some());
        }
        pair.host.release_forwarded(id, [1, 3]).unwrap();
        let before = pair.view(id);
        assert_eq!(pair.host.release_forwarded(id, wrong), Err(CreditError));
        assert_eq!(pair.view(id), before);
        // Whoever said so is let go of, and all of it goes.
        pair.host.forget(id);
        pair.exit(id, exit_code(0));
        pair.settle();
        assert_eq!(pair.host.active(), 0);
        assert!(pair.host.inspect().executions.is_empty());
        pair.restored();
    }
}

#[test]
fn an_ended_execution_keeps_its_slot_until_what_was_passed_on_is_consumed() {
    let mut pair = Pair::new(Limits::default());
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stderr, b"x");
    pair.exit(id, exit_code(0));
    pair.settle();
    assert!(pair.host.take_forwarded(id, Stream::Stderr).is_some());
    assert_eq!(pair.host.active(), 1);
    pair.host.release_forwarded(id, [0, 1]).unwrap();
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn forgetting_gives_back_what_was_passed_on() {
    let mut pair = Pair::new(Limits::default());
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, b"x");
    pair.settle();
    assert!(pair.host.take_forwarded(id, Stream::Stdout).is_some());
    pair.host.forget(id);
    assert_eq!(pair.view(id).output_released, 1 + CHARGE);
    pair.exit(id, exit_code(0));
    pair.settle();
    assert_eq!(pair.host.active(), 0);
}

#[test]
fn a_notice_tells_of_acknowledged_stdin() {
    let mut pair = Pair::new(Limits::default());
    let id = pair.running(Stdin::Pipe);
    pair.host
        .write_stdin(id, Bytes::from(alloc::vec![7; 60_000]))
        .unwrap();
    pair.settle();
    pair.notices.clear();
    assert_eq!(pair.host.stdin_acked(id), 0);
    pair.eat(id, 2);
    pair.settle();
    assert_eq!(pair.host.stdin_acked(id), 2);
    let told = pair.notices.iter().any(|notice| {
        matches!(notice, Notice::Exec { id: of, what } if *of == id && what & what::STDIN_ACKED != 0)
    });
    assert!(told, "{:?}", pair.notices);
}
