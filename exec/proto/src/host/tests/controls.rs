//! Signals, kills and pings.

use super::*;
use crate::pair::{Pair, bytes, exit_code, raw};

#[test]
fn controls_pass_with_every_window_exhausted() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.produce(id, Stream::Stdout, &[0; 4000]);
    pair.host.write_stdin(id, bytes(500)).unwrap();
    pair.settle();
    assert_eq!(pair.view(id).stdin_window, 0);
    pair.host.signal(id, 15).unwrap();
    pair.host.ping(77).unwrap();
    pair.settle();
    assert_eq!(pair.commands[&id].signals, [15]);
    assert!(pair.notices.contains(&Notice::Pong(77)));
}

#[test]
fn a_full_control_queue_refuses_and_tells_when_there_is_room() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.notices.clear();
    for _ in 0..CONTROL_QUEUE {
        pair.host.signal(id, 1).unwrap();
    }
    assert_eq!(pair.host.signal(id, 1), Err(ControlError::Full));
    pair.host.kill(id).unwrap();
    pair.settle();
    assert!(pair.notices.contains(&Notice::ControlRoom));
    assert_eq!(
        pair.commands[&id].kills, 1,
        "a kill needs no room in the queue"
    );
}

#[test]
fn signals_for_an_ended_execution_are_refused() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.exit(id, exit_code(0));
    pair.settle();
    assert_eq!(pair.host.signal(id, 9), Err(ControlError::Ended));
    assert_eq!(pair.host.kill(id), Err(ControlError::Ended));
}

#[test]
fn unanswered_pings_are_bounded_and_an_unasked_pong_is_refused() {
    let mut pair = pair();
    for seq in 0..CONTROL_QUEUE as u64 {
        pair.host.ping(seq).unwrap();
        pair.host_sends();
    }
    assert_eq!(pair.host.ping(99), Err(ControlError::Full));
    pair.settle();
    assert!(
        pair.host.is_ready(),
        "an honest guest can answer all of them"
    );
    pair.host.ping(100).unwrap();
    pair.settle();
    let pong = raw(FromGuest::Pong.to_wire(), 0, &1u64.to_le_bytes());
    let head = pong.first_chunk().unwrap();
    assert_eq!(pair.host.judge(head, 8), Verdict::Accept(8));
    assert!(pair.host.deliver(pong[HEADER_LEN..].to_vec()).is_err());
}
