//! What comes back, and that it goes on as before. Every step of random operations is in
//! `agent_port_model_test`; rules and damage are in `saved_rules_test`.

use forebay_virtio::mock::Piece;
use forebay_virtio::spec::F_EVENT_IDX;

use crate::spec::event;
use crate::test_bench::{
    Bench, CONSOLE, CONTROL, CONTROL_TO_GUEST, Event, FEATURES, FROM_GUEST, TO_GUEST, delivered,
    frame,
};
use crate::{Closed, HEADER_LEN, Inspection};

/// What does not survive on purpose.
fn without_owner(mut inspection: Inspection) -> Inspection {
    inspection.agent.owner = "vcpu";
    inspection
}

#[test]
fn cursors_counters_and_flags_come_back_and_the_gate_is_told_nothing() {
    let mut bench = Bench::opened();
    bench.gate.diary().allowance.insert(3, 0);
    bench.driver.post(TO_GUEST, 3, 64);
    bench.driver.send(CONSOLE, b"a line");
    bench.say(7, 99, 1);
    for _ in 0..5 {
        bench.send(&[frame(1, b"one"), frame(3, b"too much")].concat());
    }
    bench.queue_frame(1, &[7; 1000]);
    bench.console.transmit();
    bench.gate.take();
    let before = bench.console.inspect();
    assert!(before.agent.placing && before.agent.handovers > 0);
    bench.restore();
    assert_eq!(
        without_owner(bench.console.inspect()),
        without_owner(before)
    );
    assert_eq!(bench.gate.take(), []);
    // The connection goes on, and ends as one.
    bench.send(&frame(1, b"two"));
    bench.close();
    let closed = Event::Closed(Closed::ByGuest);
    assert_eq!(bench.gate.take(), [delivered(1, b"two"), closed]);
}

#[test]
fn a_partly_placed_frame_goes_on_at_its_next_byte_wherever_it_stood() {
    let body: Vec<u8> = (0..200).collect();
    let whole = frame(1, &body);
    for cut in 1..whole.len() {
        let mut bench = Bench::opened();
        bench.driver.post(TO_GUEST, 1, cut as u32);
        bench.queue_frame(1, &body);
        bench.queue_frame(2, b"next");
        bench.console.transmit();
        let mut received = bench.received();
        assert_eq!(received, &whole[..cut]);
        bench.restore();
        assert_eq!(bench.console.inspect().agent.placing, cut < whole.len());
        bench.driver.post(TO_GUEST, 1, 4096);
        received.extend(bench.received());
        assert_eq!(received, [whole.clone(), frame(2, b"next")].concat());
    }
    // Of a buffer without room comes a frame of which nothing is placed.
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 1, 0);
    bench.queue_frame(1, &body);
    bench.console.transmit();
    bench.restore();
    assert!(bench.console.inspect().agent.placing);
    bench.driver.post(TO_GUEST, 1, 4096);
    assert_eq!(bench.received(), whole);
}

#[test]
fn a_driver_that_waits_for_an_interrupt_gets_it() {
    for features in [FEATURES, FEATURES & !F_EVENT_IDX] {
        let mut bench = Bench::opened_with(features);
        bench.driver.post(TO_GUEST, 1, 4096);
        bench.driver.want_interrupt(TO_GUEST);
        bench.queue_frame(1, b"sleep well");
        bench.console.transmit();
        // That one got lost.
        assert_eq!(bench.interrupt.take(), 1);
        bench.restore();
        assert_eq!(bench.interrupt.take(), 1);
        assert_eq!(bench.received(), frame(1, b"sleep well"));
        // The next is due when it is asked for, as ever.
        bench.driver.post(TO_GUEST, 1, 4096);
        bench.driver.want_interrupt(TO_GUEST);
        bench.queue_frame(1, b"again");
        bench.console.transmit();
        assert_eq!(bench.interrupt.take(), 1);
    }
}

#[test]
fn a_kick_that_was_lost_with_the_old_machine_is_made_up_for_on_every_queue() {
    for features in [FEATURES, FEATURES & !F_EVENT_IDX] {
        let mut bench = Bench::opened_with(features);
        bench.queue_frame(1, b"waits for buffers");
        bench.console.transmit();
        for (queue, bytes) in [
            (FROM_GUEST, frame(1, b"unseen")),
            (CONSOLE, b"a line".to_vec()),
            (CONTROL, vec![1, 0, 0, 0, 6, 0, 0, 0]),
        ] {
            bench.driver.add(queue, &[Piece::Read(&bytes)]);
            bench.driver.lose_kick(queue);
        }
        bench.driver.add(TO_GUEST, &[Piece::Write(4096)]);
        bench.driver.lose_kick(TO_GUEST);
        bench.restore();
        assert_eq!(bench.doorbell.take(), 1);
        bench.run_loop();
        let closed = Event::Closed(Closed::ByGuest);
        assert_eq!(bench.gate.take(), [delivered(1, b"unseen"), closed]);
        assert_eq!(bench.received(), frame(1, b"waits for buffers"));
        assert_eq!(bench.sink.text(), "a line");
        // And each of them is asked to kick again.
        for (queue, bytes) in [
            (CONTROL, vec![1, 0, 0, 0, 6, 0, 1, 0]),
            (CONSOLE, b"another".to_vec()),
            (FROM_GUEST, frame(1, b"seen")),
        ] {
            assert!(bench.driver.send(queue, &bytes), "queue {queue}");
        }
        assert_eq!(bench.gate.take(), [Event::Opened, delivered(1, b"seen")]);
    }
}

#[test]
fn a_ring_that_the_old_loop_had_is_served_at_the_kick_again() {
    for features in [FEATURES, FEATURES & !F_EVENT_IDX] {
        let mut bench = Bench::opened_with(features);
        for _ in 0..3 {
            bench.driver.send(FROM_GUEST, &frame(1, b"stream"));
        }
        assert_eq!(bench.console.inspect().agent.owner, "event_loop");
        bench.gate.take();
        bench
            .driver
            .add(FROM_GUEST, &[Piece::Read(&frame(1, b"unseen"))]);
        // Not asked for by whoever polls.
        bench.driver.lose_kick(FROM_GUEST);
        bench.restore();
        bench.run_loop();
        assert_eq!(bench.gate.take(), [delivered(1, b"unseen")]);
        assert!(bench.driver.send(FROM_GUEST, &frame(1, b"asked for")));
        assert_eq!(bench.gate.take(), [delivered(1, b"asked for")]);
    }
}

#[test]
fn control_messages_are_said_once_however_often_the_device_is_restored() {
    let mut bench = Bench::new();
    bench.say(0, event::DEVICE_READY, 1);
    bench.say(0, event::PORT_READY, 1);
    bench.say(1, event::PORT_READY, 1);
    let mut heard = 0;
    for said in 0..8 {
        bench.restore();
        bench.driver.post(CONTROL_TO_GUEST, 1, 64);
        bench.run_loop();
        heard += bench.heard().len();
        assert_eq!(heard, (said + 1).min(6));
        bench.say(0, event::DEVICE_READY, 1);
    }
}

#[test]
fn what_was_broken_stays_broken_until_it_is_cured() {
    let mut bench = Bench::opened();
    bench.send(&[0; HEADER_LEN - 1]);
    bench.gate.take();
    bench.restore();
    assert_eq!(bench.channel(), "broken");
    bench.send(&frame(1, b"dropped"));
    bench.open();
    bench.send(&frame(1, b"heard"));
    assert_eq!(bench.gate.take(), [Event::Opened, delivered(1, b"heard")]);

    bench.driver.add_head(FROM_GUEST, 999);
    bench.driver.force_kick(FROM_GUEST);
    bench.gate.take();
    bench.restore();
    let fault = bench.console.inspect().agent.from_guest.unwrap().fault;
    assert!(fault.unwrap().contains("head 999"));
    bench.open();
    assert_eq!(bench.gate.take(), [], "a dead ring takes no connection");
    bench.driver.start(FEATURES);
    bench.open();
    assert_eq!(bench.gate.take(), [Event::Opened]);
}

#[test]
fn a_device_that_no_driver_has_taken_can_be_saved_as_well() {
    let mut bench = Bench::unstarted();
    bench.restore();
    assert_eq!(bench.interrupt.take(), 0);
    assert!(bench.driver.negotiate(FEATURES));
    bench.restore();
    bench.driver.start(FEATURES);
    bench.open();
    bench.send(&frame(1, b"alive"));
    let events = bench.gate.take();
    assert_eq!(events, [Event::Opened, delivered(1, b"alive")]);
    // And one that its driver has left.
    bench.driver.negotiate(FEATURES);
    bench.restore();
    bench.driver.start(FEATURES);
    bench.open();
    let events = bench.gate.take();
    assert_eq!(events, [Event::Closed(Closed::Reset), Event::Opened]);
}

#[test]
fn a_guest_without_all_queues_is_restored_without_them() {
    let mut bench = Bench::unstarted();
    assert!(bench.driver.negotiate(FEATURES));
    bench.driver.enable(CONTROL);
    bench.driver.enable(CONSOLE);
    bench.driver.driver_ok();
    bench.open();
    assert_eq!(bench.channel(), "broken");
    bench.restore();
    assert_eq!(bench.channel(), "broken");
    bench.driver.send(CONSOLE, b"a line");
    assert_eq!(bench.sink.text(), "a line");
}
