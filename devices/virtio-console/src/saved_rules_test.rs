//! A saved device is input: every rule that it must keep, each broken once, and damage anywhere.

use std::sync::Arc;

use forebay_virtio::mock::Piece;
use forebay_virtio::{Activation, MmioTransport, RestoreError, SavedTransport};
use proptest::prelude::*;

use super::*;
use crate::spec::event;
use crate::test_bench::{
    Bench, CONSOLE, CONTROL, CONTROL_TO_GUEST, FEATURES, FROM_GUEST, TO_GUEST, delivered, frame,
};

/// In the middle of everything: a frame partly placed, messages due, chains unseen.
fn busy() -> Bench {
    let mut bench = Bench::new();
    bench.driver.post(CONTROL_TO_GUEST, 3, 64);
    bench.say(0, event::DEVICE_READY, 1);
    bench.say(0, event::PORT_READY, 1);
    bench.say(1, event::PORT_READY, 1);
    bench.say(1, event::PORT_OPEN, 1);
    bench.driver.send(CONSOLE, b"a line");
    bench.send(&frame(1, b"a frame"));
    bench.driver.post(TO_GUEST, 1, 64);
    bench.queue_frame(2, &[2; 100]);
    bench.console.transmit();
    bench
        .driver
        .add(FROM_GUEST, &[Piece::Read(&frame(3, b"unseen"))]);
    bench.gate.take();
    bench
}

fn save(bench: &Bench) -> SavedConsole {
    let saved = bench.console.hold().save();
    bench.doorbell.take();
    bench.interrupt.take();
    saved
}

/// A new device in the place of the old one.
fn restore(
    bench: &mut Bench,
    transport: &SavedTransport,
    console: &SavedConsole,
) -> Result<Held, RestoreError> {
    let next = bench.next_console();
    let (transport, activation) = MmioTransport::restore(
        transport,
        bench.driver.mem().clone(),
        next.clone(),
        bench.interrupt.clone(),
    )?;
    let held = next.restore(console, activation)?;
    bench.replace(next, Arc::new(transport));
    Ok(held)
}

fn refused(bench: &mut Bench, word: &str, spoil: impl FnOnce(&mut ConsoleV1)) {
    let transport = bench.transport.save();
    let mut saved = save(bench);
    spoil(&mut saved.0);
    let error = restore(bench, &transport, &saved).map(drop).unwrap_err();
    assert!(error.to_string().contains(word), "{error} is not: {word}");
}

#[test]
fn each_rule_of_a_saved_device_is_checked() {
    let bench = &mut busy();
    let before = save(bench);
    assert_eq!(before.0.control.due, 0b11_1000, "three were sent");

    refused(bench, "different queues", |saved| {
        saved.console.from_guest = None;
    });
    refused(bench, "no order that there is", |saved| {
        saved.control.due |= 1;
    });
    refused(bench, "no order that there is", |saved| {
        saved.control.due &= !(1 << 5);
    });
    refused(bench, "no order that there is", |saved| {
        saved.control.sent ^= 0b1100;
        saved.control.due ^= 0b1100;
    });
    refused(bench, "no order that there is", |saved| {
        saved.control.sent |= 1 << 6;
    });
    refused(bench, "not open", |saved| {
        saved.channel = ChannelV1::Broken;
    });
    refused(bench, "not open", |saved| {
        saved.channel = ChannelV1::Closed;
    });
    refused(bench, "longer than any frame", |saved| {
        let placing = saved.to_guest.placing.as_mut().unwrap();
        placing.body = vec![0; FRAME_MAX - HEADER_LEN + 1];
    });
    for done in [116, 117, u32::MAX] {
        refused(bench, "has arrived", |saved| {
            saved.to_guest.placing.as_mut().unwrap().done = done;
        });
    }
    refused(bench, "nobody can have counted", |saved| {
        saved.to_guest.bytes = COUNTER_MAX + 1;
    });
    refused(bench, "nobody can have counted", |saved| {
        saved.from_guest.chains = u64::MAX;
    });
    refused(bench, "dropped than came", |saved| {
        saved.console.dropped_chains = saved.console.chains + 1;
    });
    refused(bench, "dropped than came", |saved| {
        saved.control.ignored = saved.control.received + 1;
    });
    refused(bench, "dropped than came", |saved| {
        saved.from_guest.dropped_chains = saved.from_guest.chains + 1;
    });
    refused(bench, "dropped than came", |saved| {
        saved.from_guest.discarded_frames = saved.from_guest.frames + 1;
    });

    // A fault of one queue where another is alive.
    let mut dead = Bench::opened();
    dead.driver.add_head(FROM_GUEST, 999);
    dead.driver.force_kick(FROM_GUEST);
    let fault = save(&dead).0.from_guest.queue;
    refused(bench, "missing or dead", |saved| {
        saved.from_guest.queue = fault;
    });
    refused(bench, "missing or dead", |saved| {
        saved.to_guest.queue = fault;
        saved.to_guest.queue = saved.from_guest.queue.take();
        saved.from_guest.queue = fault;
    });
    refused(&mut dead, "missing or dead", |saved| {
        saved.channel = ChannelV1::Open;
    });

    // Nothing of it touched the device.
    assert_eq!(save(bench), before);
}

#[test]
fn what_only_a_driver_can_have_brought_about_is_refused_without_one() {
    let bench = &mut Bench::unstarted();
    refused(bench, "nobody could have asked", |saved| {
        saved.control.due = 0b11;
    });
    refused(bench, "nobody could have opened", |saved| {
        saved.channel = ChannelV1::Broken;
    });
    refused(bench, "different queues", |saved| {
        saved.to_guest.queue = save(&busy()).0.to_guest.queue;
    });
    let bench = &mut Bench::unstarted();
    bench.driver.negotiate(FEATURES);
    bench.driver.enable(CONTROL);
    bench.driver.driver_ok();
    refused(bench, "there is no queue for them", |saved| {
        saved.control.sent = 0b11;
    });
    refused(bench, "missing or dead", |saved| {
        saved.channel = ChannelV1::Open;
    });
}

#[test]
fn an_activation_without_a_saved_device_is_refused() {
    let fresh = save(&Bench::unstarted());
    let bench = Bench::opened();
    let next = bench.next_console();
    let (_, activation): (_, Option<Activation>) = MmioTransport::restore(
        &bench.transport.save(),
        bench.driver.mem().clone(),
        next.clone(),
        bench.interrupt.clone(),
    )
    .unwrap();
    let error = next.restore(&fresh, activation).map(drop).unwrap_err();
    assert!(error.to_string().contains("different queues"), "{error}");
}

/// Whatever was taken for a device works as one, with any driver, and a reset cures it.
fn works(bench: &mut Bench, held: Held) {
    let saved = held.save();
    let again = SavedConsole::decode(&saved.encode());
    assert_eq!(again, Ok(saved.clone()));
    {
        let mut diary = bench.gate.diary();
        diary.resume(saved.is_connected());
    }
    drop(held);
    bench.run_loop();
    for queue in 0..7 {
        bench.driver.force_kick(queue);
        bench.run_loop();
    }
    bench.queue_frame(1, &[1; 5000]);
    bench.console.transmit();
    bench.run_loop();
    drop(bench.console.hold());
    bench.driver.start(FEATURES);
    bench.say(1, event::PORT_OPEN, 1);
    bench.gate.take();
    bench.send(&frame(1, b"alive"));
    assert_eq!(bench.gate.take(), [delivered(1, b"alive")]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_byte_is_refused_or_gives_a_device_that_works(
        of_transport in prop::bool::weighted(0.3),
        at in any::<prop::sample::Index>(),
        change in prop_oneof![any::<u8>(), 1_u8..3, 254_u8..=255],
    ) {
        let mut bench = busy();
        let mut bytes = [bench.transport.save().encode(), save(&bench).encode()];
        let changed = &mut bytes[usize::from(!of_transport)];
        let at = at.index(changed.len());
        changed[at] = changed[at].wrapping_add(change);
        let [transport, console] = &bytes;
        let Ok(transport) = SavedTransport::decode(transport) else {
            return Ok(());
        };
        let Ok(console) = SavedConsole::decode(console) else {
            return Ok(());
        };
        if let Ok(held) = restore(&mut bench, &transport, &console) {
            works(&mut bench, held);
        }
    }
}

/// A ring that stands at `next`, below 24.
fn queue(next: u8) -> Option<SavedQueueV1> {
    Some(minicbor::decode(&[0x81, next]).unwrap())
}

// The bytes of version 1. A later library reads them as what they were, or refuses them by name.
// Neighbours differ, so that no two can change places.
#[test]
fn the_bytes_of_version_1_are_what_they_were() {
    const BYTES: &str = "\
        820185848201820181186319012c190fa00287810381041820181f070605018881081409171a000111700a1901\
        f40b86810c83507369787465656e2062797465206864724c616e642069747320626f6479110d0e19ea600f";
    let saved = SavedConsole(ConsoleV1 {
        console: ConsolePortV1 {
            // Dead of head 99.
            from_guest: Some(minicbor::decode(&[0x82, 1, 0x82, 1, 0x81, 0x18, 99]).unwrap()),
            chains: 300,
            bytes: 4000,
            dropped_chains: 2,
        },
        control: ControlV1 {
            from_guest: queue(3),
            to_guest: queue(4),
            due: 0b10_0000,
            sent: 0b1_1111,
            received: 7,
            ignored: 6,
            placed: 5,
        },
        channel: ChannelV1::Open,
        from_guest: FromGuestV1 {
            queue: queue(8),
            chains: 20,
            dropped_chains: 9,
            frames: 23,
            payload_bytes: 70_000,
            discarded_frames: 10,
            discarded_bytes: 500,
            handovers: 11,
        },
        to_guest: ToGuestV1 {
            queue: queue(12),
            placing: Some(PlacingV1 {
                head: *b"sixteen byte hdr",
                body: b"and its body".to_vec(),
                done: 17,
            }),
            buffers: 13,
            frames: 14,
            bytes: 60_000,
            ran_dry: 15,
        },
    });
    let bytes = saved.encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, BYTES);
    assert_eq!(SavedConsole::decode(&bytes), Ok(saved.clone()));
    let mut bench = Bench::opened();
    let transport = bench.transport.save();
    drop(restore(&mut bench, &transport, &saved).unwrap());
}
