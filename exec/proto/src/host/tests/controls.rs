//! Signals, kills and pings.

use super::*;
use crate::frame::ToGuest;
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

#[test]
fn between_a_signal_and_its_departure_at_most_one_data_frame_leaves() {
    // At each moment of a channel that is busy with stdin of three executions.
    for warm_up in 0..10 {
        let mut pair = pair();
        let ids = [(); 3].map(|()| pair.running(Stdin::Pipe));
        for id in ids {
            pair.host.write_stdin(id, bytes(65_536)).unwrap();
        }
        for _ in 0..warm_up {
            assert!(pair.host_sends());
        }
        pair.host.signal(ids[0], 15).unwrap();
        let mut data = 0;
        loop {
            let frame = pair.host.poll_transmit().unwrap();
            match ToGuest::from_wire(frame.head[4]) {
                Some(ToGuest::Signal) => break,
                Some(ToGuest::Stdin) => data += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(data <= 1, "{data} data frames went first");
    }
}

/// The kinds of the frames that leave now.
fn departing(pair: &mut Pair) -> Vec<Option<ToGuest>> {
    let frames = core::iter::from_fn(|| pair.host.poll_transmit());
    frames
        .map(|frame| ToGuest::from_wire(frame.head[4]))
        .collect()
}

#[test]
fn a_power_off_asked_for_without_a_connection_follows_the_bootstrap_of_the_next() {
    let mut pair = Pair::closed(Limits::default());
    pair.host.power_off(false, 1000);
    assert!(!pair.host.wants_transmit());
    pair.host.handle_opened();
    let whole = [Some(ToGuest::Bootstrap), Some(ToGuest::PowerOff)];
    assert_eq!(departing(&mut pair), whole);
    // Whether the guest has read it is not known.
    pair.host.handle_closed("the guest closed its agent port");
    pair.host.handle_opened();
    assert_eq!(departing(&mut pair), whole);
    assert!(!pair.host.wants_transmit(), "once per connection");
}

#[test]
fn a_signal_does_not_overtake_the_request() {
    let mut pair = pair();
    let id = pair.start(Stdin::Null);
    assert_eq!(pair.host.signal(id, 15), Err(ControlError::NotStarted));
    pair.host_sends();
    pair.host.signal(id, 15).unwrap();
    pair.settle();
    assert_eq!(pair.commands[&id].signals, [15]);
}

#[test]
fn a_ping_leaves_however_many_controls_wait() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    for _ in 0..CONTROL_QUEUE {
        pair.host.signal(id, 1).unwrap();
    }
    pair.host.ping(5).unwrap();
    assert_eq!(pair.host.ping(6), Err(ControlError::Full), "one is unsent");
    let frame = pair.host.poll_transmit().unwrap();
    assert_eq!(frame.head[4], crate::frame::ToGuest::Ping.to_wire());
    assert_eq!(frame.body[..], 5u64.to_le_bytes());
}
