//! B44: malformed rings and chains on the agent's port.

use forebay_virtio::mock::Piece;
use forebay_virtio::{ChainFault, RingFault};
use vm_memory::{Bytes, GuestAddress};

use crate::Closed;
use crate::test_bench::{Bench, CONSOLE, Event, FEATURES, FROM_GUEST, TO_GUEST, delivered, frame};

use forebay_virtio::mock::NEXT;

/// A descriptor as the driver's memory has it.
fn put(bench: &Bench, queue: u16, index: u16, address: u64, len: u32, flags: u16, next: u16) {
    let at = bench.driver.descriptors(queue).0 + 16 * u64::from(index);
    let mem = bench.driver.mem();
    mem.write_obj(address, GuestAddress(at)).unwrap();
    mem.write_obj(len, GuestAddress(at + 8)).unwrap();
    mem.write_obj(flags, GuestAddress(at + 12)).unwrap();
    mem.write_obj(next, GuestAddress(at + 14)).unwrap();
}

#[test]
fn a_malformed_chain_closes_the_channel_and_re_opening_cures_it() {
    let slot = 0x100_0000;
    for (address, len, flags, next, fault) in [
        (slot, 8, NEXT, 63, ChainFault::Cycle),
        (
            slot,
            8,
            NEXT,
            64,
            ChainFault::NextOutOfRange { next: 64, size: 64 },
        ),
        (
            1 << 40,
            8,
            0,
            0,
            ChainFault::BufferOutsideMemory {
                address: 1 << 40,
                len: 8,
            },
        ),
    ] {
        let mut bench = Bench::opened();
        put(&bench, FROM_GUEST, 63, address, len, flags, next);
        bench.driver.add_head(FROM_GUEST, 63);
        bench.settle();
        assert_eq!(bench.gate.take(), [Event::Closed(Closed::Chain(fault))]);
        assert_eq!(
            bench.driver.take_used(FROM_GUEST).map(|used| used.len),
            Some(0)
        );
        bench.open();
        bench.send(&frame(1, b"cured"));
        assert_eq!(bench.gate.take(), [Event::Opened, delivered(1, b"cured")]);
    }
}

#[test]
fn a_dead_ring_from_the_guest_closes_the_channel_until_reset() {
    let kill: [fn(&mut Bench); 2] = [
        |bench| bench.driver.put_available_index(FROM_GUEST, 65),
        |bench| bench.driver.add_head(FROM_GUEST, 64),
    ];
    for kill in kill {
        let mut bench = Bench::opened();
        kill(&mut bench);
        bench.driver.force_kick(FROM_GUEST);
        let events = bench.gate.take();
        assert!(
            matches!(events[..], [Event::Closed(Closed::Ring(_))]),
            "{events:?}"
        );
        // Kicks, turns of the loop, closing and opening change nothing and come back.
        bench.driver.force_kick(FROM_GUEST);
        bench.run_loop();
        bench.close();
        bench.open();
        assert_eq!(bench.gate.take(), []);
        // The console lives, and a reset revives the port.
        bench.driver.send(CONSOLE, b"alive");
        assert_eq!(bench.sink.text(), "alive");
        bench.driver.start(FEATURES);
        bench.open();
        bench.send(&frame(1, b"revived"));
        assert_eq!(bench.gate.take(), [Event::Opened, delivered(1, b"revived")]);
    }
}

#[test]
fn a_dead_ring_found_by_the_loop_closes_the_channel_too() {
    let bench = Bench::opened();
    bench.driver.put_available_index(FROM_GUEST, 65);
    bench.run_loop();
    assert!(matches!(
        bench.gate.take()[..],
        [Event::Closed(Closed::Ring(
            RingFault::AvailableIndex { .. }
        ))]
    ));
}

#[test]
fn a_dead_ring_towards_the_guest_closes_the_channel_until_reset() {
    let mut bench = Bench::opened();
    bench.queue_frame(1, b"never");
    bench.driver.put_available_index(TO_GUEST, 129);
    bench.driver.force_kick(TO_GUEST);
    assert!(matches!(
        bench.gate.take()[..],
        [Event::Closed(Closed::Ring(_))]
    ));
    bench.close();
    bench.open();
    bench.console.transmit();
    assert_eq!(bench.gate.take(), []);
    bench.driver.start(FEATURES);
    bench.open();
    bench.queue_frame(1, b"back");
    bench.driver.post(TO_GUEST, 1, 4096);
    bench.console.transmit();
    assert_eq!(bench.received(), frame(1, b"back"));
}

#[test]
fn a_posted_buffer_the_device_may_not_write_closes_the_channel() {
    let mut bench = Bench::opened();
    bench.queue_frame(1, b"never");
    bench.driver.add(TO_GUEST, &[Piece::Read(b"read only")]);
    bench.console.transmit();
    assert_eq!(
        bench.gate.take(),
        [Event::Closed(Closed::Chain(ChainFault::WrongDirection))]
    );
    // It was handed back, and the next connection has the next buffer.
    assert_eq!(
        bench.driver.take_used(TO_GUEST).map(|used| used.len),
        Some(0)
    );
    bench.open();
    bench.queue_frame(1, b"fine");
    bench.driver.post(TO_GUEST, 1, 4096);
    bench.console.transmit();
    assert_eq!(bench.received(), frame(1, b"fine"));
}

#[test]
fn a_broken_answer_during_a_drain_closes_the_channel_without_a_deadlock() {
    let mut bench = Bench::opened();
    bench.gate.diary().echo = true;
    bench.driver.add_head(TO_GUEST, 500);
    bench.send(&frame(1, b"echo me"));
    let events = bench.gate.take();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(matches!(events[1], Event::Closed(Closed::Ring(_))));
}

#[test]
fn a_reset_in_the_middle_ends_the_connection_once() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 1, 32);
    bench.queue_frame(1, &[1; 100]);
    bench.console.transmit();
    bench
        .driver
        .add(FROM_GUEST, &[Piece::Read(&frame(1, b"x"))]);
    assert!(bench.driver.negotiate(FEATURES));
    assert_eq!(bench.gate.take(), [Event::Closed(Closed::Reset)]);
    // Whoever comes late finds nothing.
    bench.run_loop();
    bench.console.transmit();
    bench.driver.force_kick(FROM_GUEST);
    assert_eq!(bench.gate.take(), []);
    let agent = bench.console.inspect().agent;
    assert_eq!(agent.from_guest, None);
    assert!(!agent.placing);
}

#[test]
fn a_hand_over_does_not_survive_a_reset() {
    let mut bench = Bench::opened();
    for _ in 0..3 {
        bench.driver.send(FROM_GUEST, &frame(1, b"x"));
    }
    assert_eq!(bench.console.inspect().agent.owner, "event_loop");
    bench.driver.start(FEATURES);
    bench.open();
    bench.gate.take();
    assert!(bench.driver.send(FROM_GUEST, &frame(1, b"inline again")));
    assert_eq!(bench.gate.take(), [delivered(1, b"inline again")]);
}
