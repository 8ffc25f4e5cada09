use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::guest::decode::tests::running;
use crate::pair::raw;

#[test]
fn reading_on_takes_what_the_next_frame_of_the_same_stream_would() {
    let id = ExecId::new(1).unwrap();
    let charge = |bytes: usize| bytes as u64 + u64::from(crate::CHUNK_CHARGE);
    // Up to a window that ends inside the second frame, inside its charge, and behind it.
    for taken in (0..1_048_576 - 16_640)
        .step_by(999)
        .chain(1_010_000..1_031_936)
    {
        let mut conn = running();
        conn.stream_ready(id, Stream::Stdout, true);
        let mut buf = vec![0; crate::FRAME_MAX];
        let window = &mut conn.execs.get_mut(&id).unwrap().window;
        window.charge(taken).unwrap();
        let left = window.available();
        let Transmit::Read { max, .. } = conn.poll_transmit(&mut buf) else {
            panic!("there is room for a frame");
        };
        let further = conn.further_read(
            id,
            Stream::Stdout,
            &[max],
            buf.len() - crate::HEADER_LEN - max,
        );
        let used = conn.output_read(id, Stream::Stdout, max, &mut buf);
        match conn.poll_transmit(&mut buf[used..]) {
            Transmit::Read { max, .. } => assert_eq!(further, max, "{left} units left"),
            _ => assert_eq!(further, 0, "{left} units left"),
        }
        if further > 0 {
            assert!(charge(max) + charge(further) <= left);
            let len = conn.output_read(id, Stream::Stdout, further, &mut buf[used..]);
            assert_eq!(len, crate::HEADER_LEN + further);
        }
    }
}

#[test]
fn credit_is_sought_once_more_than_half_of_an_allowance_is_used() {
    let id = ExecId::new(1).unwrap();
    let mut conn = running();
    let mut buf = vec![0; crate::FRAME_MAX];
    let chunk = 16_384 - crate::CHUNK_CHARGE as usize;
    for number in 1..=64 {
        conn.output_read(id, Stream::Stdout, chunk, &mut buf);
        assert_eq!(conn.take_credit_sought(), number > 32, "{number} of 64");
        assert!(!conn.take_credit_sought(), "said once");
    }
    conn.handle_bytes(&raw(0x15, 1, &(40 * 16_384_u64).to_le_bytes()))
        .unwrap();
    conn.output_read(id, Stream::Stdout, chunk, &mut buf);
    assert!(!conn.take_credit_sought());
}

#[test]
fn one_read_may_fill_two_writes_as_far_as_the_allowance_goes() {
    let id = ExecId::new(1).unwrap();
    let (ceiling, header) = (crate::FRAME_MAX, crate::HEADER_LEN);
    let charge = crate::CHUNK_CHARGE as usize;
    for left in [1 << 20, 60_000, 33_400, 33_200] {
        let mut conn = running();
        conn.stream_ready(id, Stream::Stdout, true);
        let mut buf = vec![0; ceiling];
        let window = &mut conn.execs.get_mut(&id).unwrap().window;
        window.charge((1 << 20) - left).unwrap();
        let Transmit::Read { max, .. } = conn.poll_transmit(&mut buf) else {
            panic!("there is room for a frame");
        };
        let further =
            |planned: &[usize], room| conn.further_read(id, Stream::Stdout, planned, room);
        let second = further(&[max], ceiling - header - max);
        assert_eq!(further(&[max, second], 0), 0, "the first write is full");
        let third = further(&[max, second], ceiling);
        let fourth = further(&[max, second, third], ceiling - header - third);
        let all: Vec<_> = [max, second, third, fourth]
            .into_iter()
            .filter(|frame| *frame > 0)
            .collect();
        let units: usize = all.iter().map(|frame| frame + charge).sum();
        let whole = [16_384, 16_352, 16_384, 16_352];
        let due = (left as usize).min(whole.iter().map(|frame| frame + charge).sum());
        assert!(units <= due && due - units <= charge, "{all:?} of {left}");
        assert!(all.iter().zip(whole).all(|(frame, most)| *frame <= most));
    }
}

#[test]
fn nothing_is_read_on_when_another_frame_comes_next() {
    let id = ExecId::new(1).unwrap();
    let further = |prepare: fn(&mut Conn), room: usize| {
        let mut conn = running();
        conn.stream_ready(id, Stream::Stdout, true);
        prepare(&mut conn);
        let mut buf = vec![0; room];
        loop {
            match conn.poll_transmit(&mut buf) {
                Transmit::Read { stream, max, .. } => {
                    let rest = room - crate::HEADER_LEN - max;
                    return conn.further_read(id, stream, &[max], rest);
                }
                Transmit::Frame(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(further(|_| (), crate::FRAME_MAX), 16_352);
    // The other stream's turn.
    let both = |conn: &mut Conn| conn.stream_ready(ExecId::new(1).unwrap(), Stream::Stderr, true);
    assert_eq!(further(both, crate::FRAME_MAX), 0);
    // A reply's turn.
    let ping = |conn: &mut Conn| {
        conn.stream_ready(ExecId::new(1).unwrap(), Stream::Stdout, true);
        conn.handle_bytes(&raw(0x02, 0, &7u64.to_le_bytes()))
            .unwrap();
    };
    assert_eq!(further(ping, crate::FRAME_MAX), 0);
    // No room that the next frame could be sure to fit in.
    assert_eq!(further(|_| (), 20_000), 0);
    assert_eq!(further(|_| (), crate::HEADER_LEN + 16_384), 0);
}
