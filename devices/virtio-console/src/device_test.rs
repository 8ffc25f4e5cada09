use std::sync::atomic::AtomicU16;

use forebay_virtio::mock::Piece;
use forebay_virtio::spec::QUEUE_NOTIFY;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::AGENT_PORT_NAME;
use crate::spec::{ControlMessage, event};
use crate::test_bench::{
    Bench, CONSOLE, CONTROL, CONTROL_TO_GUEST, Event, FEATURES, FROM_GUEST, TO_GUEST, frame,
};

fn message(port: u32, event: u16) -> (ControlMessage, String) {
    let value = 1;
    (ControlMessage { port, event, value }, String::new())
}

#[test]
fn queue_indexes_are_the_specifications() {
    for (position, queue) in QueueIndex::ALL.into_iter().enumerate() {
        assert_eq!(QueueIndex::from_index(position as u16), Some(queue));
        assert_eq!(usize::from(queue.index()), position);
    }
    assert_eq!(QueueIndex::from_index(6), None);
    assert_eq!(QueueIndex::from_index(u16::MAX), None);
}

#[test]
fn the_configuration_space_names_two_ports() {
    let bench = Bench::new();
    let mut ports = [0; 4];
    bench.transport.read(0x104, &mut ports);
    assert_eq!(u32::from_le_bytes(ports), 2);
    let mut byte = [0xff];
    bench.transport.read(0x104, &mut byte);
    assert_eq!(byte, [2]);
    for offset in [0x10c, 0x10b, 0xfff, u64::MAX] {
        let mut beyond = [0xff; 8];
        bench.transport.read(offset, &mut beyond);
        assert_eq!(beyond, [0; 8]);
    }
}

#[test]
fn the_handshake_introduces_both_ports_in_the_drivers_order() {
    let mut bench = Bench::new();
    bench.driver.post(CONTROL_TO_GUEST, 16, 64);
    assert_eq!(bench.heard(), []);
    bench.say(0, event::DEVICE_READY, 1);
    assert_eq!(
        bench.heard(),
        [message(0, event::PORT_ADD), message(1, event::PORT_ADD)]
    );
    bench.say(0, event::PORT_READY, 1);
    assert_eq!(
        bench.heard(),
        [
            message(0, event::CONSOLE_PORT),
            message(0, event::PORT_OPEN)
        ]
    );
    bench.say(1, event::PORT_READY, 1);
    let (name, _) = message(1, event::PORT_NAME);
    assert_eq!(
        bench.heard(),
        [
            (name, AGENT_PORT_NAME.to_owned()),
            message(1, event::PORT_OPEN)
        ]
    );
    // The console's opening is no business of the agent's.
    bench.say(0, event::PORT_OPEN, 1);
    assert_eq!(bench.gate.take(), []);
    bench.say(1, event::PORT_OPEN, 1);
    assert_eq!(bench.gate.take(), [Event::Opened]);
    assert_eq!(bench.heard(), []);
}

#[test]
fn messages_wait_for_buffers_and_the_refill_is_kicked() {
    let mut bench = Bench::new();
    bench.say(0, event::DEVICE_READY, 1);
    bench.say(1, event::PORT_READY, 1);
    assert!(bench.console.inspect().control.due);
    assert!(bench.driver.post(CONTROL_TO_GUEST, 1, 64), "no kick asked");
    assert_eq!(bench.heard(), [message(0, event::PORT_ADD)]);
    assert!(bench.driver.post(CONTROL_TO_GUEST, 3, 64), "no kick asked");
    assert_eq!(bench.heard().len(), 3);
    assert!(!bench.console.inspect().control.due);
}

#[test]
fn a_buffer_too_small_for_a_message_is_passed_over() {
    let mut bench = Bench::new();
    bench.driver.post(CONTROL_TO_GUEST, 3, 8);
    bench.driver.post(CONTROL_TO_GUEST, 2, 32);
    bench.say(1, event::PORT_READY, 1);
    let used = bench.driver.take_all_used(CONTROL_TO_GUEST);
    let lens: Vec<_> = used.iter().map(|used| used.len).collect();
    assert_eq!(lens, [0, 0, 0, 8 + AGENT_PORT_NAME.len() as u32, 8]);
}

#[test]
fn buffers_that_come_back_empty_are_signalled_as_well() {
    let mut bench = Bench::new();
    bench.driver.post(CONTROL_TO_GUEST, 3, 8);
    bench.driver.want_interrupt(CONTROL_TO_GUEST);
    bench.say(1, event::PORT_READY, 1);
    assert_eq!(bench.driver.take_all_used(CONTROL_TO_GUEST).len(), 3);
    assert_eq!(bench.interrupt.take(), 1, "the guest would not post others");
}

#[test]
fn a_guest_that_repeats_itself_gets_each_message_once() {
    let mut bench = Bench::new();
    bench.driver.post(CONTROL_TO_GUEST, 16, 64);
    for _ in 0..500 {
        bench.say(0, event::DEVICE_READY, 1);
        bench.say(0, event::PORT_READY, 1);
        bench.say(1, event::PORT_READY, 1);
    }
    assert_eq!(bench.heard().len(), 6);
    assert_eq!(bench.console.inspect().control.received, 1500);
}

#[test]
fn a_reset_forgets_what_was_said() {
    let mut bench = Bench::opened();
    bench.driver.start(FEATURES);
    assert_eq!(bench.gate.take(), [Event::Closed(crate::Closed::Reset)]);
    bench.driver.post(CONTROL_TO_GUEST, 16, 64);
    bench.say(0, event::DEVICE_READY, 1);
    assert_eq!(bench.heard().len(), 2);
    bench.say(1, event::PORT_OPEN, 1);
    assert_eq!(bench.gate.take(), [Event::Opened]);
}

#[test]
fn control_messages_that_mean_nothing_are_used_and_ignored() {
    let mut bench = Bench::new();
    bench.driver.post(CONTROL_TO_GUEST, 16, 64);
    for (port, event, value) in [
        (0, event::DEVICE_READY, 0),
        (1, event::PORT_READY, 0),
        (2, event::PORT_READY, 1),
        (u32::MAX, event::PORT_OPEN, 1),
        (1, event::PORT_ADD, 1),
        (1, 2, 1),
        (1, u16::MAX, u16::MAX),
    ] {
        bench.say(port, event, value);
    }
    // Short, empty, and for the other direction.
    bench.driver.send(CONTROL, &[0; 7]);
    bench.driver.send(CONTROL, &[]);
    bench.driver.add(CONTROL, &[Piece::Write(8)]);
    bench.driver.kick(CONTROL);
    assert_eq!(bench.driver.take_all_used(CONTROL).len(), 3);
    assert_eq!(bench.heard(), []);
    assert_eq!(bench.gate.take(), []);
    assert_eq!(bench.console.inspect().control.ignored, 8);
}

#[test]
fn console_output_reaches_the_sink_in_order_and_is_used_at_the_kick() {
    let mut bench = Bench::new();
    let long = "x".repeat(10_000);
    for text in ["hello ", long.as_str(), "\n"] {
        assert!(bench.driver.send(CONSOLE, text.as_bytes()));
        assert!(bench.driver.take_used(CONSOLE).is_some());
    }
    assert_eq!(bench.sink.text(), format!("hello {long}\n"));
    assert_eq!(bench.console.inspect().console.bytes, 10_007);
}

#[test]
fn a_lone_chain_used_inside_its_kick_raises_no_interrupt() {
    let mut bench = Bench::new();
    bench.driver.want_interrupt(CONSOLE);
    bench.driver.send(CONSOLE, b"a");
    assert_eq!(bench.interrupt.take(), 0);
    // Of two, only one can have been added by the kick that serves them.
    bench.driver.take_all_used(CONSOLE);
    bench.driver.want_interrupt(CONSOLE);
    bench.driver.add(CONSOLE, &[Piece::Read(b"b")]);
    bench.driver.send(CONSOLE, b"c");
    assert_eq!(bench.interrupt.take(), 1);
}

#[test]
fn malformed_console_chains_come_back_and_output_goes_on() {
    let mut bench = Bench::new();
    bench.driver.add(CONSOLE, &[Piece::Write(16)]);
    bench.driver.add(CONSOLE, &[Piece::Read(b"")]);
    let slot = bench.driver.slot(CONSOLE, 0);
    // One chain that names 3 MiB, forty-eight times the same memory.
    bench.driver.add_indirect(CONSOLE, &[(slot, 64 << 10); 48]);
    let beyond = GuestAddress(1 << 40);
    bench.driver.add_indirect(CONSOLE, &[(beyond, 1)]);
    bench.driver.add(CONSOLE, &[Piece::Read(b"alive")]);
    bench.driver.force_kick(CONSOLE);
    let used = bench.driver.take_all_used(CONSOLE);
    assert_eq!(used.len(), 5);
    assert!(used.iter().all(|used| used.len == 0));
    assert_eq!(bench.sink.text(), "alive");
    assert_eq!(bench.console.inspect().console.dropped_chains, 3);
}

// B44: the other port goes on where the rings are separate.
#[test]
fn a_dead_console_ring_leaves_the_agent_port_alone() {
    let mut bench = Bench::opened();
    bench.driver.put_available_index(CONSOLE, 1000);
    bench.driver.force_kick(CONSOLE);
    bench.driver.force_kick(CONSOLE);
    assert!(fault_of(&bench.console.inspect().console.from_guest));
    bench.send(&frame(1, b"still here"));
    assert_eq!(
        bench.gate.take(),
        [Event::Delivered(1, b"still here".to_vec())]
    );
    // A reset revives the console.
    bench.driver.start(FEATURES);
    bench.driver.send(CONSOLE, b"again");
    assert_eq!(bench.sink.text(), "again");
}

#[test]
fn dead_control_rings_are_dead_alone() {
    let mut bench = Bench::opened();
    bench.driver.add_head(CONTROL, 99);
    bench.driver.force_kick(CONTROL);
    bench.driver.put_available_index(CONTROL_TO_GUEST, 999);
    bench.driver.force_kick(CONTROL_TO_GUEST);
    assert!(fault_of(&bench.console.inspect().control.from_guest));
    bench.driver.send(CONSOLE, b"out");
    assert_eq!(bench.sink.text(), "out");
    bench.send(&frame(1, b"agent"));
    assert_eq!(bench.gate.take(), [Event::Delivered(1, b"agent".to_vec())]);
}

fn fault_of(view: &Option<forebay_virtio::QueueView>) -> bool {
    view.as_ref().is_some_and(|view| view.fault.is_some())
}

// B44 and B45: a guest that feeds the console faster than it is read, from another processor.
#[test]
fn a_console_flood_neither_holds_the_vcpu_nor_starves_the_agent_port() {
    let mut bench = Bench::opened();
    // Each piece of output makes the guest add another chain: the ring is never empty.
    let mem = bench.driver.mem().clone();
    let available = bench.driver.available(CONSOLE).0;
    let index = Arc::new(AtomicU16::new(16));
    let flood = {
        let index = Arc::clone(&index);
        move || {
            let next = index.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            mem.write_obj(next, GuestAddress(available + 2)).unwrap();
        }
    };
    *bench.sink.at_write.lock().unwrap() = Some(Box::new(flood));
    for _ in 0..16 {
        bench.driver.add(CONSOLE, &[Piece::Read(b"flood\n")]);
    }
    bench.driver.force_kick(CONSOLE);
    let after_kick = bench.console.inspect().console.chains;
    assert_eq!(after_kick, u64::from(Budget::INLINE.chains));
    assert_eq!(bench.doorbell.take(), 1, "somebody must go on");

    // The agent's chain is served in the very next turn of the loop, the console by its share.
    bench
        .driver
        .add(FROM_GUEST, &[Piece::Read(&frame(1, b"urgent"))]);
    let drained = bench.console.drain_from_guest(Budget::TURN, Duration::ZERO);
    assert_eq!(drained, Drained::More);
    assert_eq!(bench.gate.take(), [Event::Delivered(1, b"urgent".to_vec())]);
    let after_turn = bench.console.inspect().console.chains;
    assert_eq!(after_turn - after_kick, u64::from(Budget::TURN.chains));

    // The flood ends: the loop comes to rest, and the next line is kicked for again.
    *bench.sink.at_write.lock().unwrap() = None;
    bench.run_loop();
    let view = bench.console.inspect().console;
    assert_eq!(
        view.from_guest.unwrap().next_available,
        index.load(Ordering::Relaxed)
    );
}

#[test]
fn a_control_flood_is_handed_on_as_well() {
    let mut bench = Bench::new();
    // A ring of 16 cannot hold more than a budget; the vCPU keeps kicking instead.
    let message = ControlMessage {
        port: 1,
        event: event::PORT_READY,
        value: 1,
    };
    for _ in 0..16 {
        bench
            .driver
            .add(CONTROL, &[Piece::Read(&message.to_bytes())]);
    }
    let console = &bench.console;
    assert_eq!(
        console.serve_control(
            Budget {
                chains: 5,
                bytes: usize::MAX
            },
            Turn::Inline
        ),
        Drained::More
    );
    assert_eq!(console.inspect().control.received, 5);
    bench.run_loop();
    assert_eq!(bench.console.inspect().control.received, 16);
    assert_eq!(bench.driver.take_all_used(CONTROL).len(), 16);
}

// B44: kicks of queues that are not enabled, do not exist, or of a device that is not up.
#[test]
fn kicks_of_queues_that_are_not_there_do_nothing() {
    let mut bench = Bench::new();
    assert!(bench.driver.negotiate(FEATURES));
    for queue in 0..8 {
        bench.driver.force_kick(queue);
    }
    bench.driver.enable(CONSOLE);
    bench.driver.driver_ok();
    for queue in (0..8).chain([u16::MAX]) {
        bench.driver.force_kick(queue);
        bench.transport.write(QUEUE_NOTIFY, &[queue as u8]);
    }
    bench.console.transmit();
    bench.run_loop();
    bench.driver.send(CONSOLE, b"only this");
    assert_eq!(bench.sink.text(), "only this");
    assert_eq!(bench.gate.take(), []);
}

#[test]
fn a_guest_without_the_agents_queues_cannot_open_its_port() {
    let mut bench = Bench::new();
    assert!(bench.driver.negotiate(FEATURES));
    for queue in [CONTROL_TO_GUEST, CONTROL, FROM_GUEST] {
        bench.driver.enable(queue);
    }
    bench.driver.driver_ok();
    bench.say(1, event::PORT_OPEN, 1);
    bench.console.transmit();
    assert_eq!(bench.gate.take(), []);
    assert_eq!(bench.console.inspect().agent.channel, "broken");
}

#[test]
fn a_driver_without_multiport_has_a_console() {
    let mut bench = Bench::new();
    assert!(bench.driver.negotiate(F_VERSION_1));
    bench.driver.enable(0);
    bench.driver.enable(CONSOLE);
    bench.driver.driver_ok();
    bench.driver.send(CONSOLE, b"plain");
    assert_eq!(bench.sink.text(), "plain");
}

#[test]
fn console_input_buffers_stay_posted() {
    let mut bench = Bench::new();
    bench.driver.post(0, 16, 4096);
    bench.driver.force_kick(0);
    assert_eq!(bench.driver.take_used(0), None);
}

#[test]
fn the_inspection_is_plain_data() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 4, 4096);
    bench.send(&frame(1, b"12345"));
    let value = serde_json::to_value(bench.console.inspect()).unwrap();
    assert_eq!(value["agent"]["channel"], "open");
    assert_eq!(value["agent"]["bytes_from_guest"], 5);
    assert_eq!(value["agent"]["from_guest"]["next_used"], 1);
    assert_eq!(value["agent"]["to_guest"]["size"], 128);
    assert_eq!(value["control"]["received"], 4);
    assert!(format!("{:?}", bench.console).contains("channel"));
}

#[test]
fn a_descriptor_for_both_directions_is_no_console_output() {
    let mut bench = Bench::new();
    bench
        .driver
        .add(CONSOLE, &[Piece::Read(b"out"), Piece::Write(8)]);
    bench.driver.kick(CONSOLE);
    assert_eq!(bench.sink.text(), "");
    assert_eq!(bench.driver.take_all_used(CONSOLE).len(), 1);
}
