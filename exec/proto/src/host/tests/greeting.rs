//! Beginning and end of a connection.

use super::*;
use crate::pair::{Pair, bytes, raw};

#[test]
fn bootstrap_is_the_first_frame_and_ready_opens_the_connection() {
    let mut pair = Pair::closed(Limits::default());
    assert!(
        pair.host.poll_transmit().is_none(),
        "nothing before the guest opened its port"
    );
    assert_eq!(
        pair.try_start(&["x"], Stdin::Null),
        Err(StartError::NotReady)
    );
    pair.host.handle_opened();
    pair.settle();
    assert!(pair.notices.iter().any(|n| matches!(n, Notice::Ready(_))));
}

#[test]
fn a_ready_with_other_limits_or_none_is_refused() {
    for limits in [
        None,
        Some(Limits {
            input_limit: 99_999,
            ..Limits::default()
        }),
    ] {
        let mut pair = Pair::closed(Limits::default());
        pair.host.handle_opened();
        pair.host.poll_transmit().unwrap();
        let ready = Ready {
            generation: crate::GENERATION,
            connection: 1,
            exec_limits: limits,
            ..Ready::default()
        };
        let frame = raw(FromGuest::Ready.to_wire(), 0, &encode(&ready));
        let head = frame.first_chunk().unwrap();
        let n = frame.len() - HEADER_LEN;
        assert_eq!(pair.host.judge(head, n), Verdict::Accept(n));
        let why = pair.host.deliver(frame[HEADER_LEN..].to_vec()).unwrap_err();
        assert!(why.contains("exec_limits"), "{why}");
    }
}

#[test]
fn a_lost_connection_ends_everything_and_the_next_one_starts_clean() {
    let mut pair = pair();
    let id = pair.running(Stdin::Pipe);
    pair.produce(id, Stream::Stdout, b"kept");
    pair.settle();
    pair.host.handle_closed("the guest closed its agent port");
    assert_eq!(
        pair.try_start(&["x"], Stdin::Null),
        Err(StartError::Closed("the guest closed its agent port".into()))
    );
    let mut buf = [0; 16];
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::Data(4));
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::End);
    assert!(matches!(pair.host.terminal(id), Some(Terminal::Lost(_))));
    assert_eq!(pair.host.write_stdin(id, bytes(1)), Err(WriteError::Ended));
    pair.guest = crate::guest::Conn::new();
    pair.to_guest.clear();
    pair.host.handle_opened();
    pair.settle();
    let next = pair.running(Stdin::Null);
    assert!(next > id, "ids are never used twice");
}

#[test]
fn an_environment_that_fits_no_frame_is_refused_by_size() {
    let mut config = Config::default();
    config.validate().unwrap();
    config.env.push(crate::EnvVar {
        key: b"BIG".to_vec().into(),
        value: alloc::vec![b'x'; 40_000].into(),
    });
    let error = config.validate().unwrap_err();
    assert!(matches!(error, ConfigError::TooLarge { size, limit: 32_752 } if size > 40_000));
}

#[test]
fn a_ready_of_another_generation_or_connection_is_refused() {
    let good = Ready {
        generation: crate::GENERATION,
        connection: 1,
        exec_limits: Some(Limits::default()),
        ..Ready::default()
    };
    let newer = Ready {
        generation: crate::GENERATION + 1,
        ..good.clone()
    };
    let stale = Ready {
        connection: 2,
        ..good
    };
    for (ready, rule) in [(newer, "generation"), (stale, "another connection")] {
        let why = greet(&encode(&ready)).unwrap_err();
        assert!(why.contains(rule), "{why}");
    }
}

#[test]
fn a_ready_with_a_field_that_only_a_newer_agent_knows_is_taken() {
    let ready = Ready {
        generation: crate::GENERATION,
        connection: 1,
        exec_limits: Some(Limits::default()),
        ..Ready::default()
    };
    let mut body = encode(&ready);
    // A short map of CBOR has its number of entries in its first byte.
    assert_eq!(body[0] & 0xe0, 0xa0);
    body[0] += 1;
    body.extend([0x18, 99, 0x01]);
    greet(&body).unwrap();
}

/// A fresh host takes this body of a Ready.
fn greet(body: &[u8]) -> Result<(), &'static str> {
    let mut pair = Pair::closed(Limits::default());
    pair.host.handle_opened();
    pair.host.poll_transmit().unwrap();
    let frame = raw(FromGuest::Ready.to_wire(), 0, body);
    let head = frame.first_chunk().unwrap();
    assert_eq!(
        pair.host.judge(head, body.len()),
        Verdict::Accept(body.len())
    );
    pair.host.deliver(body.to_vec())
}
