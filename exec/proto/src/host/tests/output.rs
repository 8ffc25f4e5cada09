//! Output and its window.

use alloc::vec::Vec;

use bytes::Bytes;

use super::*;
use crate::pair::{Pair, bytes, exit_code, raw};

#[test]
fn output_arrives_in_order_and_the_end_comes_last() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, b"one");
    pair.settle();
    pair.produce(id, Stream::Stderr, b"two");
    pair.settle();
    pair.produce(id, Stream::Stdout, b"three");
    pair.exit(id, exit_code(3));
    pair.settle();
    let mut events = Vec::new();
    while let Some(event) = pair.host.next_event(id) {
        events.push(event);
    }
    assert_eq!(
        events,
        [
            Event::Started { pid: 100 },
            Event::Stdout(Bytes::from_static(b"one")),
            Event::Stderr(Bytes::from_static(b"two")),
            Event::Stdout(Bytes::from_static(b"three")),
            Event::End(Terminal::Exited(exit_code(3))),
        ]
    );
}

#[test]
fn a_stalled_reader_stops_the_command_at_the_window_and_nothing_else() {
    let mut pair = Pair::new(small());
    let stalled = pair.running(Stdin::Null);
    let other = pair.running(Stdin::Null);
    pair.produce(stalled, Stream::Stdout, &[7; 5000]);
    pair.settle();
    let view = pair.view(stalled);
    assert!(view.output_received <= 1024, "{view:?}");
    assert!(
        view.output_received + 256 + 128 > 1024,
        "the window is used: {view:?}"
    );
    pair.produce(other, Stream::Stdout, b"hello");
    pair.exit(other, exit_code(0));
    pair.settle();
    assert_eq!(pair.read_all(other, Stream::Stdout), b"hello");
    assert!(pair.host.terminal(other).is_some());
    // Reading makes it go on, to the last byte.
    let mut total = 0;
    loop {
        let got = pair.read_all(stalled, Stream::Stdout).len();
        pair.settle();
        total += got;
        if got == 0 {
            break;
        }
    }
    assert_eq!(total, 5000);
}

#[test]
fn a_partial_read_releases_its_bytes_and_the_last_one_the_charge() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    pair.produce(id, Stream::Stdout, &[1; 100]);
    pair.settle();
    let mut buf = [0; 60];
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::Data(60));
    assert_eq!(pair.view(id).output_released, 60);
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::Data(40));
    assert_eq!(pair.view(id).output_released, 100 + 256);
    assert_eq!(pair.host.read(id, Stream::Stdout, &mut buf), Read::Empty);
}

#[test]
fn consumption_coalesces_into_one_ack_and_is_never_said_twice() {
    let limits = Limits {
        output_chunk_size: 1000,
        output_limit: 10 * 257,
        ..Limits::default()
    };
    let mut pair = Pair::new(limits);
    let id = pair.running(Stdin::Null);
    for _ in 0..10 {
        pair.produce(id, Stream::Stdout, b"x");
        pair.settle();
    }
    for _ in 0..10 {
        pair.host.take_chunk(id, Stream::Stdout).unwrap();
    }
    let frame = pair.host.poll_transmit().unwrap();
    assert_eq!(frame.head[4], crate::frame::ToGuest::OutputAck.to_wire());
    assert_eq!(frame.body[..], (10u64 * 257).to_le_bytes());
    assert!(pair.host.poll_transmit().is_none());
}

#[test]
fn a_reader_that_keeps_up_costs_the_guest_two_acks_a_window() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    let chunk = raw(0x91, id.get(), &[0; 16_384]);
    let mut acks = 0;
    for _ in 0..640 {
        assert_eq!(pair.host_receives(&chunk, 16_384), Verdict::Accept(16_384));
        pair.host.take_chunk(id, Stream::Stdout).unwrap();
        while let Some(ack) = pair.host.poll_transmit() {
            assert!(ack.can_wait, "half of the window is left");
            acks += 1;
        }
    }
    // 640 chunks are a little over ten windows.
    assert_eq!(acks, 22);
}

#[test]
fn what_a_sender_may_soon_need_cannot_wait() {
    let chunk_of = |id: ExecId| raw(0x91, id.get(), &[0; 16_384]);
    // The reader comes when eight writes of 32 KiB are left, or one chunk less.
    for (under_way, can_wait) in [(47, true), (48, false)] {
        let mut pair = pair();
        let id = pair.running(Stdin::Null);
        for _ in 0..under_way {
            pair.host_receives(&chunk_of(id), 16_384);
        }
        while pair.host.take_chunk(id, Stream::Stdout).is_some() {}
        let ack = pair.host.poll_transmit().unwrap();
        assert_eq!(ack.head[4], crate::frame::ToGuest::OutputAck.to_wire());
        assert_eq!(ack.can_wait, can_wait, "{under_way} chunks under way");
    }
    // A window that has no more than that never has enough.
    let mut pair = Pair::new(Limits {
        output_limit: 256 << 10,
        ..Limits::default()
    });
    let id = pair.running(Stdin::Null);
    for _ in 0..64 {
        pair.host_receives(&chunk_of(id), 16_384);
        pair.host.take_chunk(id, Stream::Stdout).unwrap();
        assert!(pair.host.poll_transmit().is_none_or(|ack| !ack.can_wait));
    }
}

#[test]
fn nothing_but_acknowledgements_can_wait() {
    let mut pair = pair();
    let id = pair.running(Stdin::Pipe);
    pair.host
        .write_stdin(id, Bytes::from_static(b"stdin"))
        .unwrap();
    pair.host.signal(id, 15).unwrap();
    pair.host.ping(1).unwrap();
    pair.host.kill(id).unwrap();
    pair.start(Stdin::Null);
    let mut frames = 0;
    while let Some(frame) = pair.host.poll_transmit() {
        assert!(!frame.can_wait, "kind {:#x}", frame.head[4]);
        frames += 1;
    }
    assert!(frames >= 5, "{frames}");
}

#[test]
fn a_dropped_reader_lets_the_command_run_on_with_its_output_discarded() {
    let mut pair = Pair::new(small());
    let id = pair.running(Stdin::Null);
    pair.host.discard(id, Stream::Stdout);
    pair.host.discard(id, Stream::Stderr);
    for _ in 0..100 {
        pair.produce(id, Stream::Stdout, &[1; 500]);
        pair.produce(id, Stream::Stderr, &[2; 500]);
    }
    pair.exit(id, exit_code(0));
    pair.settle();
    assert_eq!(
        pair.host.terminal(id),
        Some(&Terminal::Exited(exit_code(0)))
    );
    assert_eq!(pair.host.active(), 0);
    assert_eq!(pair.view(id).output_held, 0);
}

#[test]
fn a_chunk_of_one_byte_holds_no_more_than_it_is_charged() {
    assert!(core::mem::size_of::<execution::Chunk>() + 64 <= crate::CHUNK_CHARGE as usize);
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    let payload = Bytes::from(alloc::vec![1]);
    let at = payload.as_ptr();
    let head = raw(0x91, id.get(), &payload);
    pair.host.judge(head.first_chunk().unwrap(), 1);
    pair.host.deliver(payload).unwrap();
    let chunk = pair.host.take_chunk(id, Stream::Stdout).unwrap();
    assert_eq!(chunk.as_ptr(), at, "it is kept as it was given");
}

#[test]
fn a_chunk_that_is_read_in_part_keeps_at_most_twice_the_room_of_its_rest() {
    const SIZE: usize = 16_384;
    for (step, most) in [
        (1, 14),
        (3, 14),
        (5000, 2),
        (SIZE / 2, 0),
        (SIZE / 2 + 1, 1),
    ] {
        let mut pair = pair();
        let id = pair.running(Stdin::Null);
        let sent = bytes(SIZE);
        pair.host_receives(&raw(0x91, id.get(), &sent), SIZE);
        let end = |data: &Bytes| data.as_ptr() as usize + data.len();
        let front = |pair: &Pair| {
            pair.host.execs[&id]
                .stdout
                .chunks
                .front()
                .unwrap()
                .data
                .clone()
        };
        let (mut room, mut at) = (SIZE, end(&front(&pair)));
        let (mut moves, mut moved) = (0, 0);
        let mut read = Vec::new();
        loop {
            let mut buf = alloc::vec![0; step];
            let Read::Data(n) = pair.host.read(id, Stream::Stdout, &mut buf) else {
                break;
            };
            read.extend_from_slice(&buf[..n]);
            if read.len() == SIZE {
                break;
            }
            let rest = front(&pair);
            assert_eq!(rest.len(), SIZE - read.len());
            // A rest that was not moved still ends where its allocation does.
            if end(&rest) != at {
                (room, at) = (rest.len(), end(&rest));
                moves += 1;
                moved += rest.len();
            }
            assert!(room <= 2 * rest.len(), "{room} are kept for {}", rest.len());
        }
        assert_eq!(read, sent);
        assert_eq!(pair.host.read(id, Stream::Stdout, &mut [0]), Read::Empty);
        assert!(moves <= most, "{moves} moves by steps of {step}");
        assert!(moved < SIZE, "{moved} bytes were moved by steps of {step}");
    }
}

/// Looks are taken under the lock that guards the connection: none may take time in proportion to
/// the chunks that a guest has sent.
#[test]
fn a_look_takes_the_count_of_held_bytes_that_is_kept_and_it_is_right() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    let check = |pair: &Pair, step: &str| {
        let exec = &pair.host.execs[&id];
        let mut all = 0;
        for output in [&exec.stdout, &exec.stderr] {
            let walked: usize = output.chunks.iter().map(|chunk| chunk.data.len()).sum();
            assert_eq!(output.held, walked as u64, "{step}");
            all += walked;
        }
        let chunks = exec.stdout.chunks.len() + exec.stderr.chunks.len();
        let view = pair.view(id);
        assert_eq!(
            (view.output_held, view.chunks_held),
            (all, chunks),
            "{step}"
        );
        all
    };
    for size in [1, 40, 100, 7] {
        for kind in [0x91, 0x92] {
            pair.host_receives(&raw(kind, id.get(), &bytes(size)), size);
            check(&pair, "received");
        }
    }
    pair.host.read(id, Stream::Stdout, &mut [0; 20]);
    assert_eq!(check(&pair, "read over two chunks"), 2 * 148 - 20);
    pair.host.take_chunk(id, Stream::Stdout);
    assert_eq!(check(&pair, "took the rest of one"), 107 + 148);
    pair.host.take_forwarded(id, Stream::Stderr);
    assert_eq!(check(&pair, "passed one on"), 107 + 147);
    pair.host.read(id, Stream::Stderr, &mut [0; 3]);
    pair.host.discard(id, Stream::Stderr);
    assert_eq!(check(&pair, "discarded the other stream"), 107);
    pair.host_receives(&raw(0x92, id.get(), b"late"), 4);
    assert_eq!(check(&pair, "received what is discarded"), 107);
    // What a look says is the count, not a walk.
    pair.host.execs.get_mut(&id).unwrap().stdout.held += 1;
    assert_eq!(pair.view(id).output_held, 108);
}

#[test]
fn a_drained_stream_keeps_no_memory_of_the_many_chunks_it_held() {
    let mut pair = pair();
    let id = pair.running(Stdin::Null);
    for _ in 0..4000 {
        pair.host_receives(&raw(0x91, id.get(), b"x"), 1);
    }
    let held = pair.host.execs[&id].stdout.chunks.capacity();
    let room = held * core::mem::size_of::<execution::Chunk>();
    assert!(room / 4000 + 64 <= 256, "{room} bytes for 4000 chunks");
    while pair.host.take_chunk(id, Stream::Stdout).is_some() {}
    assert!(pair.host.execs[&id].stdout.chunks.capacity() <= 64);
}
