use forebay_virtio::VirtioDevice;
use forebay_virtio::mock::Piece;
use vm_memory::{Bytes, GuestAddress};

use crate::agent_to_guest::Link;
use crate::spec::event;
use crate::test_bench::{
    Bench, CONSOLE, CONTROL, CONTROL_TO_GUEST, Event, FROM_GUEST, TO_GUEST, delivered, frame,
};
use crate::{Budget, Closed, Console, Drained};
use std::time::Duration;

/// The rings, and the first buffers that the device may write.
fn memory(bench: &Bench) -> Vec<u8> {
    let driver = &bench.driver;
    let rings = (driver.descriptors(0), 6 * 0x4000);
    let slots = [0, 1].map(|slot| (driver.slot(TO_GUEST, slot), 4096));
    let mut bytes = Vec::new();
    for (GuestAddress(at), len) in [rings].into_iter().chain(slots) {
        let mut part = vec![0; len];
        let at = GuestAddress(at);
        driver.mem().read_slice(&mut part, at).unwrap();
        bytes.append(&mut part);
    }
    bytes
}

#[test]
fn nothing_moves_while_it_is_held_whoever_calls_and_all_of_it_afterwards() {
    let mut bench = Bench::new();
    let open = [1, 0, 0, 0, 6, 0, 1, 0];
    bench.driver.send(CONTROL, &open);
    bench.driver.take_all_used(CONTROL);
    bench.gate.take();
    let held = bench.console.hold();
    bench.driver.post(TO_GUEST, 2, 4096);
    bench.queue_frame(1, b"to the guest");
    bench.driver.post(CONTROL_TO_GUEST, 4, 64);
    let ready = [0, 0, 0, 0, 0, 0, 1, 0];
    bench.driver.add(CONTROL, &[Piece::Read(&ready)]);
    bench.driver.add(CONSOLE, &[Piece::Read(b"a line")]);
    bench
        .driver
        .add(FROM_GUEST, &[Piece::Read(&frame(2, b"from the guest"))]);
    bench.interrupt.take();

    let before = memory(&bench);
    for queue in 0..7 {
        bench.driver.force_kick(queue);
    }
    bench.console.transmit();
    bench.run_loop();
    assert!(memory(&bench) == before, "guest memory was written");
    assert_eq!(bench.gate.take(), []);
    assert_eq!(bench.gate.diary().to_guest.len(), 1);
    assert_eq!(bench.sink.text(), "");
    assert_eq!((bench.interrupt.take(), bench.doorbell.take()), (0, 0));

    drop(held);
    assert_eq!(bench.interrupt.take(), 1);
    assert_eq!(bench.doorbell.take(), 1);
    bench.run_loop();
    assert_eq!(bench.gate.take(), [delivered(2, b"from the guest")]);
    assert_eq!(bench.received(), frame(1, b"to the guest"));
    assert_eq!(bench.sink.text(), "a line");
    assert_eq!(bench.heard().len(), 2, "both ports are added");
    // And kicks are asked for again.
    assert!(bench.driver.send(FROM_GUEST, &frame(2, b"more")));
    assert_eq!(bench.gate.take(), [delivered(2, b"more")]);
}

#[test]
fn holds_add_up() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 1, 4096);
    let (first, second) = (bench.console.hold(), bench.console.hold());
    bench.queue_frame(1, b"later");
    drop(first);
    assert_eq!((bench.interrupt.take(), bench.doorbell.take()), (0, 0));
    bench.console.transmit();
    assert!(bench.received().is_empty());
    drop(second);
    bench.console.transmit();
    assert_eq!(bench.received(), frame(1, b"later"));
}

#[test]
fn a_turn_of_the_loop_that_was_looking_for_more_stops_there() {
    let mut bench = Bench::opened();
    let console = bench.console.clone();
    let held = std::sync::Arc::new(std::sync::Mutex::new(None));
    let slot = held.clone();
    // Held between the two looks of one turn, as another thread may.
    *bench.gate.at_settle.lock().unwrap() = Some(Box::new(move || {
        let mut slot = slot.lock().unwrap();
        if slot.is_none() {
            *slot = Some(console.hold());
        }
    }));
    bench
        .driver
        .add(FROM_GUEST, &[Piece::Read(&frame(1, b"seen"))]);
    let poll = Duration::from_millis(1);
    let drained = bench.console.drain_from_guest(Budget::TURN, poll);
    assert_eq!(drained, Drained::Everything);
    assert_eq!(bench.gate.take(), [delivered(1, b"seen")]);
    bench
        .driver
        .add(FROM_GUEST, &[Piece::Read(&frame(1, b"unseen"))]);
    bench.driver.force_kick(FROM_GUEST);
    assert_eq!(bench.gate.take(), []);
    let taken = held.lock().unwrap().take();
    *bench.gate.at_settle.lock().unwrap() = None;
    drop(taken);
    bench.run_loop();
    assert_eq!(bench.gate.take(), [delivered(1, b"unseen")]);
    assert_eq!(bench.driver.take_all_used(FROM_GUEST).len(), 2);
    assert!(bench.driver.send(FROM_GUEST, &frame(1, b"more")));
}

#[test]
fn a_connection_that_was_found_broken_has_ended_by_then() {
    let bench = Bench::opened();
    // As a thread leaves it that has not come to saying so.
    bench.console.to_guest.lock().unwrap().link = Link::Failed(Closed::Framing("a test"));
    let held = bench.console.hold();
    let closed = Event::Closed(Closed::Framing("a test"));
    assert_eq!(bench.gate.take(), [closed]);
    assert!(!bench.gate.is_unsettled());
    assert!(!held.save().is_connected());
    // That thread comes to it now.
    bench.console.transmit();
    assert_eq!(bench.gate.take(), []);
}

#[test]
fn a_device_without_a_driver_raises_no_interrupt_when_it_is_let_go() {
    let bench = Bench::opened();
    bench.console.reset();
    bench.interrupt.take();
    drop(bench.console.hold());
    assert_eq!(bench.interrupt.take(), 0);
    let console = Console::new(
        bench.gate.clone(),
        bench.sink.clone(),
        bench.interrupt.clone(),
        bench.doorbell.clone(),
    );
    drop(console.hold());
    assert_eq!(bench.interrupt.take(), 0);
}

#[test]
fn opening_the_port_waits_as_well() {
    let mut bench = Bench::new();
    let held = bench.console.hold();
    bench.driver.send(CONTROL, &[1, 0, 0, 0, 6, 0, 1, 0]);
    assert_eq!(bench.gate.take(), []);
    drop(held);
    bench.run_loop();
    assert_eq!(bench.gate.take(), [Event::Opened]);
    bench.say(1, event::PORT_OPEN, 0);
    assert_eq!(bench.gate.take(), [Event::Closed(Closed::ByGuest)]);
}
