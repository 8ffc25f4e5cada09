//! Whom each direction of an execution has waited for, by a clock that the test moves.

extern crate std;

use core::cell::Cell;
use core::time::Duration;

use super::*;
use crate::pair::{Pair, bytes, exit_code, raw};

std::thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

fn clock() -> Duration {
    LOOKS.set(LOOKS.get() + 1);
    Duration::from_secs(NOW.get())
}

fn pass(seconds: u64) {
    NOW.set(NOW.get() + seconds);
}

/// Both ends after Ready, with the host on the test's clock.
fn timed(limits: Limits) -> Pair {
    let mut pair = Pair::closed(limits);
    pair.host = Conn::new(Config {
        limits,
        clock,
        ..Config::default()
    });
    pair.host.handle_opened();
    pair.settle();
    pair
}

/// Seconds waited for the application, the link and the command.
fn seconds(stalls: &Stalls) -> (u64, u64, u64) {
    let Stalls {
        application,
        link,
        command,
    } = stalls;
    (application.as_secs(), link.as_secs(), command.as_secs())
}

fn output(pair: &Pair, id: ExecId) -> (&'static str, (u64, u64, u64)) {
    let view = pair.view(id);
    (view.output_waits_for, seconds(&view.output_stalls))
}

fn stdin(pair: &Pair, id: ExecId) -> (&'static str, (u64, u64, u64)) {
    let view = pair.view(id);
    (view.stdin_waits_for, seconds(&view.stdin_stalls))
}

#[test]
fn output_waits_for_its_reader_then_for_the_link_then_for_the_command() {
    let mut pair = timed(small());
    let id = pair.running(Stdin::Null);
    pass(3);
    assert_eq!(output(&pair, id), ("command", (0, 0, 3)));
    pair.produce(id, Stream::Stdout, &[b'x'; 4000]);
    pair.settle();
    pass(5);
    assert_eq!(output(&pair, id), ("application", (5, 0, 3)));
    assert!(pair.view(id).output_window <= u64::from(crate::CHUNK_CHARGE));
    // It was read, and the guest does not know.
    assert!(!pair.read_all(id, Stream::Stdout).is_empty());
    pass(2);
    assert_eq!(output(&pair, id), ("link", (5, 2, 3)));
    let view = pair.view(id);
    assert_eq!((view.output_acked, view.output_window), (0, 1024));
    assert!(pair.host_sends());
    pass(7);
    assert_eq!(output(&pair, id), ("command", (5, 2, 10)));
    assert_eq!(pair.view(id).output_acked, view.output_released);
    // The guest hears of it and fills the window anew.
    pair.settle();
    pass(1);
    assert_eq!(output(&pair, id), ("application", (6, 2, 10)));
}

#[test]
fn stdin_waits_for_its_writer_then_for_the_link_then_for_the_command() {
    let mut pair = timed(small());
    let id = pair.running(Stdin::Pipe);
    pass(1);
    assert_eq!(stdin(&pair, id), ("application", (1, 0, 0)));
    pair.host.write_stdin(id, bytes(100)).unwrap();
    pass(2);
    assert_eq!(stdin(&pair, id), ("link", (1, 2, 0)));
    pair.settle();
    assert_eq!(pair.view(id).stdin_window, 0);
    pass(4);
    assert_eq!(stdin(&pair, id), ("command", (1, 2, 4)));
    pair.eat(id, usize::MAX);
    pair.settle();
    assert_eq!(pair.view(id).stdin_pending, 0);
    pass(8);
    assert_eq!(stdin(&pair, id), ("application", (9, 2, 4)));
    pair.host.close_stdin(id).unwrap();
    pass(16);
    assert_eq!(stdin(&pair, id), ("link", (9, 18, 4)));
    pair.settle();
    pass(32);
    assert_eq!(stdin(&pair, id), ("nobody", (9, 18, 4)), "its life is over");
}

#[test]
fn stdin_that_fills_its_allowance_waits_for_the_command_though_no_more_is_handed_in() {
    let mut pair = timed(small());
    let id = pair.running(Stdin::Pipe);
    pair.host.write_stdin(id, bytes(64)).unwrap();
    pair.settle();
    assert_eq!(pair.view(id).stdin_pending, 0);
    pass(3);
    assert_eq!(stdin(&pair, id), ("command", (0, 0, 3)));
    pair.eat(id, usize::MAX);
    pair.settle();
    pass(2);
    assert_eq!(stdin(&pair, id), ("application", (2, 0, 3)));
}

#[test]
fn a_request_waits_for_the_link_and_its_start_for_the_guest() {
    let mut pair = timed(small());
    let id = pair.start(Stdin::Pipe);
    pass(1);
    assert_eq!(output(&pair, id), ("link", (0, 1, 0)));
    assert!(pair.host_sends());
    pass(2);
    assert_eq!(output(&pair, id), ("command", (0, 1, 2)));
    assert_eq!(stdin(&pair, id), ("command", (0, 1, 2)));
}

#[test]
fn what_is_unread_after_the_end_waits_for_the_application_until_it_was_read() {
    let mut pair = timed(small());
    let id = pair.running(Stdin::Pipe);
    pair.produce(id, Stream::Stderr, b"last words");
    pass(1);
    pair.exit(id, exit_code(0));
    pair.settle();
    pass(2);
    assert_eq!(output(&pair, id), ("application", (2, 0, 1)));
    assert_eq!(stdin(&pair, id), ("nobody", (1, 0, 0)));
    pair.read_all(id, Stream::Stderr);
    pass(4);
    assert_eq!(output(&pair, id), ("nobody", (2, 0, 1)));
}

#[test]
fn each_directions_three_times_add_up_to_its_life() {
    let mut pair = timed(small());
    let start = NOW.get();
    let id = pair.running(Stdin::Pipe);
    // Every kind of stall, in the order that these numbers come to.
    let mut random = 1_u64;
    for step in 0..500_u64 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        match (random >> 33) % 11 {
            0 | 5 => pair.produce(id, Stream::Stdout, &[b'x'; 300]),
            1 | 6 => drop(pair.read_all(id, Stream::Stdout)),
            2 => pair.eat(id, 30),
            3 if pair.host.pending_stdin(id) == 0 => {
                pair.host.write_stdin(id, bytes(90)).unwrap();
            }
            4 => pair.host.cancel_write(id),
            7 => pair.settle(),
            8 => drop(pair.host_sends()),
            9 => drop(pair.guest_receives(usize::MAX)),
            _ => drop(pair.guest_sends()),
        }
        pass(1 + step % 3);
        let view = pair.view(id);
        let life = Duration::from_secs(NOW.get() - start);
        assert_eq!(view.output_stalls.total(), life, "step {step}");
        assert_eq!(view.stdin_stalls.total(), life, "step {step}");
    }
    let view = pair.view(id);
    for (what, stalls) in [("output", view.output_stalls), ("stdin", view.stdin_stalls)] {
        let (application, link, command) = seconds(&stalls);
        assert!(
            application > 0 && link > 0 && command > 0,
            "{what}: {stalls:?}"
        );
    }
}

#[test]
fn a_stream_whose_reader_keeps_up_never_looks_at_the_clock() {
    let mut pair = timed(Limits::default());
    let id = pair.running(Stdin::Null);
    let before = LOOKS.get();
    for _ in 0..500 {
        pair.produce(id, Stream::Stdout, &[b'x'; 16 * 1024]);
        pair.settle();
        assert_eq!(pair.read_all(id, Stream::Stdout).len(), 16 * 1024);
    }
    assert_eq!(LOOKS.get(), before);
}

#[test]
fn a_command_without_stdin_has_no_account_of_it() {
    let mut pair = timed(small());
    let id = pair.running(Stdin::Null);
    pass(5);
    assert_eq!(stdin(&pair, id), ("nobody", (0, 0, 0)));
}

#[test]
fn a_command_that_closed_its_stdin_ends_the_account_of_it() {
    let mut pair = timed(small());
    let id = pair.running(Stdin::Pipe);
    pass(5);
    let error = crate::StdinError {
        errno: 32,
        name: "EPIPE".into(),
        message: "Broken pipe".into(),
    };
    pair.guest.stdin_error(id, error);
    pair.settle();
    pass(5);
    assert_eq!(stdin(&pair, id), ("nobody", (5, 0, 0)));
}

#[test]
fn of_a_rule_breaker_only_the_end_is_awaited() {
    let mut pair = timed(small());
    let id = pair.running(Stdin::Pipe);
    pair.host_receives(&raw(FromGuest::Stdout.to_wire(), id.get(), b""), 0);
    assert!(failed_with_protocol(&pair, id));
    pass(3);
    assert_eq!(output(&pair, id), ("command", (0, 0, 3)));
    assert_eq!(stdin(&pair, id), ("nobody", (0, 0, 0)));
    // The kill brings the end.
    pair.settle();
    pass(3);
    assert_eq!(output(&pair, id), ("nobody", (0, 0, 3)));
}

#[test]
fn a_lost_connection_ends_the_accounts() {
    let mut pair = timed(small());
    let id = pair.running(Stdin::Pipe);
    pass(3);
    pair.host.handle_closed("gone");
    pass(3);
    assert_eq!(output(&pair, id), ("nobody", (0, 0, 3)));
    assert_eq!(stdin(&pair, id), ("nobody", (3, 0, 0)));
}
