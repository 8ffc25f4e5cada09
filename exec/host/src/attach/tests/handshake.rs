//! Clients that connect and say nothing, or not enough.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::by_hand::{Slow, Still};
use super::villain::said_last;
use super::{Attached, run, wait_until};
use crate::attach::clients::{CLIENTS_MAX, HANDSHAKE, HANDSHAKE_CROWDED};
use crate::attach::preamble;

const TICK: Duration = Duration::from_millis(1);

/// What the server sent, beyond the preamble.
fn heard(mut stream: &UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // It ends by the server's close, or has nothing more now.
    let _ = stream.read_to_end(&mut bytes);
    bytes.split_off(preamble::LEN)
}

#[test]
fn who_says_nothing_is_told_and_cut_off() {
    let mut still = Still::new();
    let before = Instant::now();
    let silent = still.server.attach().unwrap();
    let mut halting = still.server.attach().unwrap();
    halting.write_all(&[0; 10]).unwrap();
    still.settle();
    still.server.expire(before + HANDSHAKE - TICK);
    assert_eq!(still.server.attached(), 2);
    still.server.expire(Instant::now() + HANDSHAKE);
    assert_eq!(still.server.attached(), 0);
    for stream in [&silent, &halting] {
        let told = said_last(&heard(stream)).unwrap();
        assert_eq!(told, "this client has not greeted the server in time");
    }
}

#[test]
fn who_has_greeted_may_be_silent_for_ever() {
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    still.server.expire(Instant::now() + 1000 * HANDSHAKE);
    client.settle(&mut still);
    assert_eq!(still.server.attached(), 1);
}

#[test]
fn who_says_nothing_has_less_time_when_there_is_no_place() {
    let mut still = Still::new();
    let _greeted = Slow::attach(&mut still);
    let before = Instant::now();
    let mut silent: Vec<_> = (2..CLIENTS_MAX)
        .map(|_| still.server.attach().unwrap())
        .collect();
    still.settle();
    still.server.expire(Instant::now() + HANDSHAKE_CROWDED);
    assert_eq!(still.server.attached(), CLIENTS_MAX - 1, "there is a place");
    silent.push(still.server.attach().unwrap());
    still.server.expire(before + HANDSHAKE_CROWDED - TICK);
    assert_eq!(still.server.attached(), CLIENTS_MAX);
    still.server.expire(Instant::now() + HANDSHAKE_CROWDED);
    assert_eq!(still.server.attached(), 1);
}

#[test]
fn clients_that_say_nothing_keep_nobody_out() {
    run(async {
        let attached = Attached::new();
        let bystander = attached.client().await;
        // Every place, and some who wait for one.
        let silent: Vec<_> = (0..CLIENTS_MAX + 30)
            .map(|_| UnixStream::connect(&attached.path).unwrap())
            .collect();
        wait_until("the crowd", || attached.clients() == CLIENTS_MAX);
        attached.goes_on(&bystander).await;
        drop(silent);
    });
}
