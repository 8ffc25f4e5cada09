//! How the event loop looks for the next chain before it gives the ring back.

use std::sync::{Arc, mpsc};
use std::thread;

use forebay_virtio::mock::Piece;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::*;
use crate::test_bench::{Bench, FROM_GUEST, TO_GUEST, delivered, frame};

const SHORT: Duration = Duration::from_micros(1);
const FOR_EVER: Duration = Duration::from_secs(3600);

/// A guest that, in the middle of the device's work, writes its ring by itself.
struct Ring {
    mem: GuestMemoryMmap,
    /// Of the descriptor table and the available ring.
    table: u64,
    available: u64,
    size: u16,
}

impl Ring {
    fn of(bench: &Bench, queue: u16) -> Self {
        Self {
            mem: bench.driver.mem().clone(),
            table: bench.driver.descriptors(queue).0,
            available: bench.driver.available(queue).0,
            size: bench.driver.room(queue) as u16,
        }
    }

    fn describe(&self, entry: u16, address: u64, len: usize, flags: u16) {
        let at = self.table + 16 * u64::from(entry);
        self.mem.write_obj(address, GuestAddress(at)).unwrap();
        self.mem
            .write_obj(len as u32, GuestAddress(at + 8))
            .unwrap();
        self.mem.write_obj(flags, GuestAddress(at + 12)).unwrap();
    }

    /// Adds the chain that begins with this entry.
    fn add(&self, entry: u16) {
        let index = GuestAddress(self.available + 2);
        let next: u16 = self.mem.read_obj(index).unwrap();
        let place = self.available + 4 + 2 * u64::from(next % self.size);
        self.mem.write_obj(entry, GuestAddress(place)).unwrap();
        self.mem.write_obj(next.wrapping_add(1), index).unwrap();
    }
}

/// A chain of this frame, ready to be added.
fn prepare(bench: &Bench, bytes: &[u8]) -> (Ring, u16) {
    const ENTRY: u16 = 40;
    let ring = Ring::of(bench, FROM_GUEST);
    let slot = bench.driver.slot(FROM_GUEST, ENTRY);
    ring.mem.write_slice(bytes, slot).unwrap();
    ring.describe(ENTRY, slot.0, bytes.len(), 0);
    (ring, ENTRY)
}

fn send_quietly(bench: &mut Bench) {
    let chain = frame(1, b"x");
    bench.driver.add(FROM_GUEST, &[Piece::Read(&chain)]);
}

#[test]
fn whoever_waits_is_woken_before_the_loop_looks_longer() {
    let mut bench = Bench::opened();
    // What is woken makes the guest send again: seen only if the look comes afterwards.
    let (ring, entry) = prepare(&bench, &frame(2, b"y"));
    send_quietly(&mut bench);
    let mut once = Some(entry);
    *bench.gate.at_settle.lock().unwrap() = Some(Box::new(move || {
        if let Some(entry) = once.take() {
            ring.add(entry);
        }
    }));
    let _ = bench.console.drain_from_guest(Budget::TURN, SHORT);
    assert_eq!(bench.gate.take(), [delivered(1, b"x"), delivered(2, b"y")]);
}

#[test]
fn a_ring_that_was_handed_over_is_looked_at_although_it_is_empty_yet() {
    let mut bench = Bench::opened();
    let (ring, entry) = prepare(&bench, &frame(2, b"late"));
    for _ in 0..3 {
        bench.driver.send(FROM_GUEST, &frame(1, b"stream"));
    }
    assert_eq!(bench.console.inspect().agent.owner, "event_loop");
    bench.gate.take();
    // The guest sends once the loop has found nothing, and is not asked for a kick.
    let mut once = Some(entry);
    *bench.gate.at_settle.lock().unwrap() = Some(Box::new(move || {
        if let Some(entry) = once.take() {
            ring.add(entry);
        }
    }));
    let _ = bench.console.drain_from_guest(Budget::TURN, SHORT);
    assert_eq!(bench.gate.take(), [delivered(2, b"late")]);
}

#[test]
fn looking_longer_serves_the_same_and_comes_to_rest() {
    let mut bench = Bench::opened();
    send_quietly(&mut bench);
    let look = Duration::from_micros(50);
    let drained = bench.console.drain_from_guest(Budget::TURN, look);
    assert_eq!(drained, Drained::Everything);
    assert_eq!(bench.gate.take(), [delivered(1, b"x")]);
    assert!(bench.driver.send(FROM_GUEST, &frame(1, b"armed")));
}

#[test]
fn a_turn_full_of_looks_ends_for_the_loops_other_sources() {
    let mut bench = Bench::opened();
    let (ring, entry) = prepare(&bench, &frame(1, b"x"));
    send_quietly(&mut bench);
    // One more before each look, a millisecond later.
    *bench.gate.at_settle.lock().unwrap() = Some(Box::new(move || {
        thread::sleep(Duration::from_millis(1));
        ring.add(entry);
    }));
    let drained = bench.console.drain_from_guest(Budget::TURN, FOR_EVER);
    assert_eq!(drained, Drained::More);
    let chains = bench.gate.take().len();
    assert!((1..=3).contains(&chains), "{chains}");
    assert_eq!(bench.console.inspect().agent.owner, "event_loop");
}

#[test]
fn a_refill_during_a_look_is_served_by_it() {
    const WRITABLE: u16 = 2;
    let mut bench = Bench::opened();
    let ring = Ring::of(&bench, TO_GUEST);
    let slot = bench.driver.slot(TO_GUEST, 0).0;
    bench.queue_frame(1, b"waits for a buffer");
    bench.console.transmit();
    assert_eq!(bench.console.inspect().agent.frames_to_guest, 0);
    send_quietly(&mut bench);
    // Once the chain is done with, before the look.
    let (gate, mut once) = (Arc::downgrade(&bench.gate), Some(0));
    *bench.gate.at_settle.lock().unwrap() = Some(Box::new(move || {
        let served = gate
            .upgrade()
            .is_some_and(|gate| !gate.diary().events.is_empty());
        if let Some(entry) = once.take_if(|_| served) {
            ring.describe(entry, slot, 64, WRITABLE);
            ring.add(entry);
        }
    }));
    let look = Duration::from_millis(50);
    let _ = bench.console.drain_from_guest(Budget::TURN, look);
    assert_eq!(bench.console.inspect().agent.frames_to_guest, 1);
}

#[test]
fn a_buffer_for_a_connection_that_is_over_is_no_refill() {
    let mut bench = Bench::opened();
    bench.console.transmit();
    bench.driver.post(TO_GUEST, 1, 64);
    let is_refilled = |bench: &Bench| bench.console.to_guest.lock().unwrap().is_refilled();
    assert!(!is_refilled(&bench), "it was seen as it came");
    bench.queue_frame(1, &[7; 100]);
    bench.console.transmit();
    bench.driver.add(TO_GUEST, &[Piece::Write(64)]);
    assert!(is_refilled(&bench));
    bench.close();
    assert!(!is_refilled(&bench));
}

#[test]
fn a_look_ends_as_the_device_is_held_whose_locks_it_leaves_alone() {
    let mut bench = Bench::opened();
    bench.gate.spare_the_locks();
    send_quietly(&mut bench);
    let (began, looking) = mpsc::channel();
    *bench.gate.at_settle.lock().unwrap() = Some(Box::new(move || {
        let _ = began.send(());
    }));
    let console = bench.console.clone();
    let look = thread::spawn(move || console.drain_from_guest(Budget::TURN, FOR_EVER));
    looking.recv().unwrap();
    let held = bench.console.hold();
    assert_eq!(look.join().unwrap(), Drained::Everything);
    drop(held);
    assert_eq!(bench.gate.take(), [delivered(1, b"x")]);
}
