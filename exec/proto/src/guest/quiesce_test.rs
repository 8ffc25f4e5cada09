//! What a host may ask of the guest as a whole, and when.

use alloc::vec;
use alloc::vec::Vec;

use crate::guest::decode::tests::{greet, greeted, request};
use crate::guest::{Conn, Event, Transmit};
use crate::message::encode;
use crate::pair::raw;

fn questions(renewal: Option<crate::Renewal>) -> (Vec<u8>, Vec<u8>) {
    let limit_ms = 100;
    let renew = crate::Renew {
        seq: 2,
        wall_ns: 3,
        renewal,
    };
    (
        raw(0x05, 0, &encode(&crate::Quiesce { seq: 1, limit_ms })),
        raw(0x06, 0, &encode(&renew)),
    )
}

#[test]
fn a_host_that_asks_for_rest_out_of_turn_ends_the_connection() {
    let (quiesce, renew) = questions(None);
    let cases = [
        [&quiesce[..], &quiesce].concat(),
        [&renew[..], &renew].concat(),
        [&renew[..], &quiesce].concat(),
        [&quiesce[..], &request(1)].concat(),
        raw(0x05, 0, b"no CBOR"),
        raw(0x06, 0, b"no CBOR"),
    ];
    for bytes in cases {
        assert!(greeted().handle_bytes(&bytes).is_err(), "{bytes:?}");
    }
    let mut before_ready = Conn::new();
    assert!(before_ready.handle_bytes(&quiesce).is_err());
    // A client must not make its neighbours stand still.
    let mut relay = greet(Conn::for_relay());
    let fault = relay.handle_bytes(&quiesce).unwrap_err();
    assert!(fault.0.contains("not known"), "{fault}");
}

#[test]
fn answers_that_the_host_does_not_take_do_not_pile_up() {
    let mut conn = greeted();
    let (quiesce, renew) = questions(None);
    conn.handle_bytes(&quiesce).unwrap();
    conn.quiesced(Ok(()));
    conn.handle_bytes(&renew).unwrap();
    conn.renewed(Ok(()));
    assert!(conn.clone().handle_bytes(&quiesce).is_err());
    assert!(conn.clone().handle_bytes(&renew).is_err());
    let mut buf = vec![0; crate::FRAME_MAX];
    while conn.poll_transmit(&mut buf) != Transmit::Idle {}
    conn.handle_bytes(&quiesce).unwrap();
}

#[test]
fn answers_that_nobody_asked_for_are_not_sent() {
    let mut conn = greeted();
    let mut buf = vec![0; crate::FRAME_MAX];
    while conn.poll_transmit(&mut buf) != Transmit::Idle {}
    conn.quiesced(Ok(()));
    conn.renewed(Err("no".into()));
    assert!(!conn.wants_transmit());
}

#[test]
fn secrets_are_not_shown() {
    let renewal = crate::Renewal {
        entropy: crate::Secret([77; 32]),
        generation: [1; 16],
        hostname: None,
    };
    let (_, renew) = questions(Some(renewal));
    let mut conn = greeted();
    conn.handle_bytes(&renew).unwrap();
    let event = conn.poll_event().unwrap();
    assert!(matches!(&event, Event::Renew(renew) if renew.renewal.is_some()));
    assert!(!alloc::format!("{event:?}").contains("77"));
}
