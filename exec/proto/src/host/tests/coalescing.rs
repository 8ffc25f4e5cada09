//! When a reader is told of output: at once, or together with what follows.

use alloc::vec;
use core::time::Duration;

use super::*;
use crate::host::coalesce::WITHIN;
use crate::pair::{bytes, exit_code, now, raw, set_now};

/// Output that fills a write of the guest: two frames, with their headers.
const CHAIN: usize = FRAME_MAX - 2 * HEADER_LEN;
/// What such a chain is charged.
const CHARGE: u64 = CHAIN as u64 + 2 * crate::CHUNK_CHARGE as u64;

/// What was told of an execution since the last call.
fn told(pair: &mut Pair, id: ExecId) -> u16 {
    pair.drain_notices();
    let notices = core::mem::take(&mut pair.notices);
    notices.iter().fold(0, |told, notice| match notice {
        Notice::Exec { id: of, what } if *of == id => told | what,
        _ => told,
    })
}

fn streaming() -> (Pair, ExecId) {
    set_now(Duration::from_secs(1));
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    told(&mut pair, id);
    (pair, id)
}

/// One write of the guest, with what it had of this output.
fn sends(pair: &mut Pair, id: ExecId, stream: Stream, len: usize) {
    pair.produce(id, stream, &bytes(len));
    assert!(pair.guest_sends());
}

#[test]
fn bulk_is_told_when_a_quarter_of_the_window_is_under_way() {
    let (mut pair, id) = streaming();
    for chains in 1..=8 {
        assert_eq!(told(&mut pair, id), 0, "before chain {chains}");
        sends(&mut pair, id, Stream::Stdout, CHAIN);
    }
    let quarter = u64::from(pair.host.limits().output_limit) / 4;
    assert_eq!(quarter.div_ceil(CHARGE), 8);
    assert_eq!(told(&mut pair, id), what::STDOUT);
    // A reader that does not come is told of each: it may be about to.
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    assert_eq!(told(&mut pair, id), what::STDOUT);
    // One that has come is told as before.
    assert_eq!(pair.read_all(id, Stream::Stdout).len(), 9 * CHAIN);
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    assert_eq!(told(&mut pair, id), 0);
}

#[test]
fn the_end_of_a_burst_is_told_at_once_with_all_before_it() {
    let (mut pair, id) = streaming();
    sends(&mut pair, id, Stream::Stderr, CHAIN);
    assert_eq!(told(&mut pair, id), 0);
    sends(&mut pair, id, Stream::Stdout, 1);
    assert_eq!(told(&mut pair, id), what::STDOUT | what::STDERR);
    // It comes once.
    pair.pass(2 * WITHIN);
    assert_eq!(told(&mut pair, id), 0);
}

#[test]
fn a_burst_that_fills_its_last_chain_is_told_in_time() {
    let (mut pair, id) = streaming();
    assert_eq!(pair.host.next_deadline(), None);
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    assert_eq!(pair.host.next_deadline(), Some(now() + WITHIN));
    pair.pass(WITHIN - Duration::from_nanos(1));
    assert_eq!(told(&mut pair, id), 0);
    pair.pass(Duration::from_nanos(1));
    assert_eq!(told(&mut pair, id), what::STDOUT);
    assert_eq!(pair.host.next_deadline(), None);
    // And so is the next one.
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    assert_eq!(pair.host.next_deadline(), Some(now() + WITHIN));
}

#[test]
fn a_reader_that_looks_finds_what_it_was_not_told_of() {
    let (mut pair, id) = streaming();
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    assert_eq!(pair.read_all(id, Stream::Stdout).len(), CHAIN);
}

#[test]
fn an_end_is_told_with_the_output_before_it() {
    let (mut pair, id) = streaming();
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    pair.exit(id, exit_code(0));
    pair.settle();
    let told = told(&mut pair, id);
    assert_eq!(told & what::STDOUT, what::STDOUT);
    assert_eq!(told & what::TERMINAL, what::TERMINAL);
}

/// What was told of both executions when frames of these lengths filled one chain.
fn told_of_both(pair: &mut Pair, both: [ExecId; 2], frames: [(ExecId, usize); 3]) -> [u16; 2] {
    let mut behind = FRAME_MAX;
    for (id, len) in frames {
        let frame = raw(FromGuest::Stdout.to_wire(), id.get(), &vec![b'x'; len]);
        pair.host_receives(&frame, behind - HEADER_LEN);
        behind -= frame.len();
    }
    assert_eq!(behind, 0);
    let notices = pair.notices.clone();
    both.map(|id| {
        pair.notices.clone_from(&notices);
        told(pair, id)
    })
}

#[test]
fn a_short_read_in_anothers_full_chain_is_told_at_once() {
    // A line, and what is more than a quarter of a chunk.
    for len in [7, 8 << 10] {
        for first in [true, false] {
            let (mut pair, bulk) = streaming();
            let short = pair.running(Stdin::Null);
            told(&mut pair, short);
            let rest = FRAME_MAX - CHUNK - len - 3 * HEADER_LEN;
            let mut frames = [(bulk, CHUNK), (short, len), (bulk, rest)];
            if first {
                frames.swap(0, 1);
            }
            let told = told_of_both(&mut pair, [short, bulk], frames);
            assert_eq!(told, [what::STDOUT, 0], "{len} {first}");
        }
    }
}

#[test]
fn streams_with_a_reader_each_are_told_together() {
    let (mut pair, id) = streaming();
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    sends(&mut pair, id, Stream::Stderr, CHAIN);
    assert_eq!(told(&mut pair, id), 0);
    pair.pass(WITHIN);
    assert_eq!(told(&mut pair, id), what::STDOUT | what::STDERR);
}

#[test]
fn a_reader_that_looked_meanwhile_is_told_of_the_next_bulk_as_before() {
    let (mut pair, id) = streaming();
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    pair.pass(WITHIN / 2);
    assert_eq!(pair.read_all(id, Stream::Stdout).len(), CHAIN);
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    assert_eq!(told(&mut pair, id), 0);
    // No later than if it had not looked.
    pair.pass(WITHIN / 2);
    assert_eq!(told(&mut pair, id), what::STDOUT);
}

#[test]
fn a_rule_that_is_broken_is_told_with_what_was_held_back() {
    let (mut pair, id) = streaming();
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    pair.host_receives(&raw(FromGuest::Stdout.to_wire(), id.get(), b""), 0);
    assert!(failed_with_protocol(&pair, id));
    let told = told(&mut pair, id);
    assert_eq!(told & what::STDOUT, what::STDOUT);
    assert_eq!(told & what::TERMINAL, what::TERMINAL);
}

#[test]
fn a_connection_that_is_lost_is_told_with_what_was_held_back() {
    let (mut pair, id) = streaming();
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    pair.host.handle_closed("gone");
    let told = told(&mut pair, id);
    assert_eq!(told & what::STDOUT, what::STDOUT);
    assert_eq!(told & what::TERMINAL, what::TERMINAL);
}

/// The largest payload of a frame.
const CHUNK: usize = 16 << 10;

#[test]
fn a_frame_behind_a_full_chain_is_of_its_own_chain() {
    let (mut pair, id) = streaming();
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    let whole = raw(FromGuest::Stdout.to_wire(), id.get(), &bytes(CHUNK));
    pair.host_receives(&whole, CHUNK);
    assert_eq!(told(&mut pair, id), what::STDOUT);
}

#[test]
fn nothing_is_kept_back_while_the_guest_stands_still() {
    let (mut pair, id) = streaming();
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    assert_eq!(told(&mut pair, id), 0);
    pair.host.hold_time();
    assert_eq!(told(&mut pair, id), what::STDOUT);
    // What the device had of it when it stopped.
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    assert_eq!(told(&mut pair, id), what::STDOUT);
    pair.host.release_time();
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    assert_eq!(told(&mut pair, id), 0);
}

#[test]
fn all_that_stream_are_told_together() {
    let (mut pair, first) = streaming();
    sends(&mut pair, first, Stream::Stdout, CHAIN);
    pair.pass(WITHIN / 2);
    let second = pair.running(Stdin::Null);
    told(&mut pair, second);
    sends(&mut pair, second, Stream::Stdout, CHAIN);
    assert_eq!(told(&mut pair, second), 0);
    pair.pass(WITHIN / 2);
    let notices = pair.notices.clone();
    assert_eq!(told(&mut pair, first), what::STDOUT);
    pair.notices = notices;
    assert_eq!(told(&mut pair, second), what::STDOUT);
}

#[test]
fn one_that_is_forgotten_meanwhile_is_told_of_to_nobody() {
    let (mut pair, id) = streaming();
    sends(&mut pair, id, Stream::Stdout, CHAIN);
    pair.host.kill(id).unwrap();
    pair.host.forget(id);
    pair.exit(id, exit_code(0));
    pair.settle();
    told(&mut pair, id);
    pair.pass(WITHIN);
    assert_eq!(told(&mut pair, id), 0);
}
