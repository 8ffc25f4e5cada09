//! Stdin and its allowance.

use super::*;
use crate::pair::{Pair, bytes};

#[test]
fn no_stdin_leaves_before_started() {
    let mut pair = pair();
    let id = pair.start(Stdin::Bytes(bytes(10)));
    pair.host_sends();
    assert!(!pair.host_sends(), "only the request may leave");
    pair.settle();
    pair.eat(id, 100);
    assert_eq!(pair.commands[&id].eaten, bytes(10));
    assert!(pair.commands[&id].stdin_eof);
}

#[test]
fn stdin_stops_at_its_allowance_and_comes_back_with_what_the_command_takes() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(200)).unwrap();
    pair.settle();
    assert_eq!(pair.view(id).stdin_sent, 64);
    assert_eq!(pair.host.pending_stdin(id), 136);
    pair.eat(id, 10);
    pair.settle();
    assert_eq!(pair.view(id).stdin_sent, 74);
    while pair.host.pending_stdin(id) > 0 {
        pair.eat(id, 33);
        pair.settle();
    }
    pair.eat(id, 1000);
    assert_eq!(pair.commands[&id].eaten, bytes(200));
}

#[test]
fn a_cancelled_write_leaves_a_prefix_and_loses_no_credit() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(200)).unwrap();
    pair.settle();
    pair.host.cancel_write(id);
    assert_eq!(pair.host.pending_stdin(id), 0);
    pair.host.close_stdin(id).unwrap();
    for _ in 0..10 {
        pair.eat(id, 100);
        pair.settle();
    }
    assert_eq!(pair.commands[&id].eaten, bytes(200)[..64]);
    assert!(pair.commands[&id].stdin_eof);
    assert_eq!(pair.view(id).stdin_window, 64, "all credit came back");
}

#[test]
fn eof_follows_the_last_byte_and_later_writes_are_refused() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(100)).unwrap();
    pair.host.close_stdin(id).unwrap();
    pair.host.close_stdin(id).unwrap();
    assert_eq!(pair.host.write_stdin(id, bytes(1)), Err(WriteError::Closed));
    pair.settle();
    assert!(!pair.commands[&id].stdin_eof, "bytes are still under way");
    for _ in 0..5 {
        pair.eat(id, 64);
        pair.settle();
    }
    assert!(pair.commands[&id].stdin_eof);
    assert_eq!(pair.commands[&id].eaten.len(), 100);
}

#[test]
fn a_command_that_closes_its_stdin_wakes_the_writer_and_releases_its_credit() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(200)).unwrap();
    pair.settle();
    let error = StdinErrorSample::epipe();
    pair.guest.stdin_error(id, error.clone());
    pair.guest.stdin_error(id, error.clone());
    pair.settle();
    assert_eq!(
        pair.host.write_stdin(id, bytes(1)),
        Err(WriteError::Broken(error.clone()))
    );
    assert_eq!(pair.host.pending_stdin(id), 0);
    assert_eq!(pair.view(id).stdin_window, 64);
    assert!(pair.host.terminal(id).is_none(), "the execution goes on");
    pair.host.next_event(id);
    assert_eq!(pair.host.next_event(id), Some(Event::StdinError(error)));
    assert_eq!(pair.host.next_event(id), None);
}

struct StdinErrorSample;

impl StdinErrorSample {
    fn epipe() -> crate::StdinError {
        crate::StdinError {
            errno: 32,
            name: "EPIPE".into(),
            message: "broken pipe".into(),
        }
    }
}

#[test]
fn saturated_stdin_does_not_hold_back_output_acks() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(500)).unwrap();
    pair.settle();
    pair.produce(id, Stream::Stdout, &[0; 4000]);
    pair.settle();
    let before = pair.view(id).output_received;
    pair.read_all(id, Stream::Stdout);
    pair.settle();
    assert!(pair.view(id).output_received > before);
}

#[test]
fn the_applications_buffers_are_handed_back_instead_of_dropped() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(200)).unwrap();
    pair.settle();
    assert!(pair.host.take_dropped().is_empty());
    pair.host.cancel_write(id);
    assert_eq!(pair.host.take_dropped(), [bytes(200).slice(64..)]);
    pair.host.write_stdin(id, bytes(50)).unwrap();
    pair.host.handle_closed("test");
    assert_eq!(pair.host.take_dropped(), [bytes(50)]);
}

#[test]
fn what_is_appended_to_a_write_goes_behind_it_and_is_bounded() {
    let limits = Limits {
        input_limit: 100,
        stdin_chunk_size: 100,
        ..small()
    };
    let mut pair = Pair::new(limits);
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(150)).unwrap();
    pair.settle();
    assert_eq!(pair.host.pending_stdin(id), 50);
    let more = bytes(201);
    pair.host.append_stdin(id, &more[150..200]).unwrap();
    assert_eq!(pair.host.pending_stdin(id), 100);
    assert_eq!(pair.host.take_dropped().len(), 1, "the application's own");
    let refused = pair.host.append_stdin(id, &more[200..]);
    assert_eq!(refused, Err(WriteError::Busy));
    assert_eq!(pair.host.progress(id).unwrap().stdin_accepted, 200);
    pair.host.close_stdin(id).unwrap();
    let refused = pair.host.append_stdin(id, b"x");
    assert_eq!(refused, Err(WriteError::Closed));
    for _ in 0..3 {
        pair.eat(id, usize::MAX);
        pair.settle();
    }
    assert_eq!(pair.commands[&id].eaten, more[..200]);
    assert!(pair.commands[&id].stdin_eof);
}
