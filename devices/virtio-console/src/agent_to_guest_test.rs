use vm_memory::{Bytes, GuestAddress};

use crate::HEADER_LEN;
use crate::agent_port::TRANSMIT_ROUNDS;
use crate::device::FRAME_COST;
use crate::queues::SPECS;
use crate::test_bench::{Bench, Event, FROM_GUEST, TO_GUEST, frame, header};
use crate::{Budget, Closed, Outgoing};

#[test]
fn a_frame_lies_over_as_many_buffers_as_it_needs() {
    let mut bench = Bench::opened();
    let body: Vec<u8> = (0..20_000_u32).map(|n| n as u8).collect();
    bench.driver.post(TO_GUEST, 2, 4096);
    bench.queue_frame(3, &body);
    bench.console.transmit();
    let mut got = bench.received();
    assert_eq!(got.len(), 8192);
    // The refill is kicked for, buffer by buffer if the guest is that slow.
    while got.len() < body.len() + HEADER_LEN {
        assert!(bench.driver.post(TO_GUEST, 1, 4096), "no kick was asked");
        let more = bench.received();
        assert!(!more.is_empty());
        got.extend(more);
    }
    assert_eq!(got, frame(3, &body));
    assert!(!bench.console.inspect().agent.placing);
}

#[test]
fn a_header_may_be_torn_between_buffers() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 40, 3);
    bench.queue_frame(3, b"torn to pieces");
    bench.console.transmit();
    assert_eq!(bench.received(), frame(3, b"torn to pieces"));
}

#[test]
fn small_frames_share_a_buffer() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 8, 4096);
    let mut expected = Vec::new();
    for exec in 0..10 {
        bench.queue_frame(exec, b"small");
        expected.extend(frame(exec, b"small"));
    }
    bench.console.transmit();
    assert_eq!(bench.received(), expected);
    let agent = bench.console.inspect().agent;
    assert_eq!((agent.buffers_to_guest, agent.frames_to_guest), (1, 10));
}

#[test]
fn frames_are_asked_for_only_when_there_is_room() {
    let mut bench = Bench::opened();
    bench.queue_frame(1, b"waits");
    bench.console.transmit();
    assert_eq!(bench.gate.diary().to_guest.len(), 1);
    assert!(bench.driver.post(TO_GUEST, 1, 4096));
    assert_eq!(bench.received(), frame(1, b"waits"));
}

#[test]
fn the_refill_kick_is_not_asked_for_while_buffers_last() {
    let mut bench = Bench::opened();
    assert!(bench.driver.post(TO_GUEST, 4, 4096), "the ring was dry");
    bench.queue_frame(1, b"one buffer of four");
    bench.console.transmit();
    assert_eq!(bench.received(), frame(1, b"one buffer of four"));
    assert!(!bench.driver.post(TO_GUEST, 1, 4096));
}

#[test]
fn the_guest_is_woken_only_if_it_asked() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 16, 4096);
    bench.driver.want_interrupt(TO_GUEST);
    for _ in 0..3 {
        bench.queue_frame(1, b"wake up");
        bench.console.transmit();
    }
    assert_eq!(bench.interrupt.take(), 1);
    bench.received();
    bench.driver.want_interrupt(TO_GUEST);
    bench.queue_frame(1, b"again");
    bench.console.transmit();
    assert_eq!(bench.interrupt.take(), 1);
    bench.console.transmit();
    assert_eq!(bench.interrupt.take(), 0, "nothing was placed");
}

#[test]
fn a_guest_that_drains_as_fast_as_we_fill_does_not_keep_the_caller() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 128, 4096);
    // Whenever a frame is asked for, the guest has long posted all its buffers again.
    let mem = bench.driver.mem().clone();
    let index = GuestAddress(bench.driver.available(TO_GUEST).0 + 2);
    let used = GuestAddress(bench.driver.used(TO_GUEST).0 + 2);
    *bench.gate.at_next.lock().unwrap() = Some(Box::new(move || {
        let used: u16 = mem.read_obj(used).unwrap();
        mem.write_obj(used.wrapping_add(128), index).unwrap();
    }));
    let budget = Budget::TRANSMIT.bytes.div_ceil(4096 + FRAME_COST);
    for _ in 0..budget + 10 {
        bench.queue_frame(1, &[0; 4096 - HEADER_LEN]);
    }
    bench.console.transmit();
    assert_eq!(
        bench.console.inspect().agent.buffers_to_guest,
        budget as u64
    );
    assert_eq!(bench.doorbell.take(), 1, "the loop goes on");
    bench.run_loop();
    assert_eq!(bench.gate.diary().to_guest.len(), 0);
}

#[test]
fn a_call_that_comes_while_another_is_ending_is_covered_by_it() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 8, 4096);
    bench.driver.want_interrupt(TO_GUEST);
    // The signal comes after the gate was found empty: a frame that turns up now would wait
    // for ever if the call that brings it were taken for covered.
    let (gate, console) = (bench.gate.clone(), bench.console.clone());
    let mut late = Some(b"late");
    *bench.interrupt.at_signal.lock().unwrap() = Some(Box::new(move || {
        if let Some(late) = late.take() {
            gate.diary().to_guest.push_back(crate::Outgoing {
                head: header(2, late.len()),
                body: bytes::Bytes::from_static(late),
                can_wait: false,
            });
            console.transmit();
        }
    }));
    bench.queue_frame(1, b"first");
    bench.console.transmit();
    let mut expected = frame(1, b"first");
    expected.extend(frame(2, b"late"));
    assert_eq!(bench.received(), expected);
}

#[test]
fn answers_are_placed_before_the_kick_returns() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 4, 4096);
    bench.gate.diary().echo = true;
    bench.driver.send(FROM_GUEST, &frame(1, b"ping"));
    assert_eq!(bench.received(), frame(1, b"ping"));
}

#[test]
fn callers_that_keep_coming_do_not_keep_the_one_at_work() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 8, 4096);
    let console = bench.console.clone();
    // Another caller each time it looks whether there is more; a thousand, so that a test that
    // fails comes to an end.
    let mut callers = 0;
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let seen = asked.clone();
    *bench.gate.at_next.lock().unwrap() = Some(Box::new(move || {
        seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        callers += 1;
        if callers < 1000 {
            console.transmit();
        }
    }));
    bench.console.transmit();
    let asked = asked.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(asked, TRANSMIT_ROUNDS);
    assert_eq!(bench.doorbell.take(), 1, "the loop goes on");
    // Nothing is lost: the loop serves whoever called last.
    *bench.gate.at_next.lock().unwrap() = None;
    bench.queue_frame(1, b"last");
    bench.run_loop();
    assert_eq!(bench.received(), frame(1, b"last"));
}

#[test]
fn a_panic_of_the_gate_leaves_the_rest_to_the_loop() {
    let mut bench = Bench::opened();
    bench.driver.post(TO_GUEST, 8, 4096);
    bench.queue_frame(1, b"survives");
    *bench.gate.at_next.lock().unwrap() = Some(Box::new(|| panic!("on purpose")));
    let console = bench.console.clone();
    let call = std::panic::AssertUnwindSafe(|| console.transmit());
    assert!(std::panic::catch_unwind(call).is_err());
    assert_eq!(bench.doorbell.take(), 1);
    bench.run_loop();
    let received = bench.received();
    assert_eq!(received, frame(1, b"survives"));
    bench.queue_frame(1, b"and on");
    bench.console.transmit();
    assert_eq!(bench.received(), frame(1, b"and on"));
}

#[test]
fn a_call_places_megabytes_at_most_however_large_the_buffers() {
    const MIB: usize = 1 << 20;
    let mut bench = Bench::opened();
    let slot = bench.driver.slot(TO_GUEST, 127);
    for _ in 0..100 {
        bench
            .driver
            .post_indirect(TO_GUEST, &[(slot, 64 << 10); 16]);
    }
    for _ in 0..10 {
        bench.queue_frame(1, &vec![7; MIB]);
    }
    bench.console.transmit();
    let placed = bench.console.inspect().agent.bytes_to_guest as usize;
    assert!(
        (MIB..=Budget::TRANSMIT.bytes + MIB).contains(&placed),
        "{placed}"
    );
    let mut turns = 0;
    while bench.doorbell.take() > 0 {
        bench.run_loop();
        turns += 1;
    }
    assert!(turns > 2, "{turns}");
    assert_eq!(bench.console.inspect().agent.frames_to_guest, 10);
}

// B44: descriptors may all name the same memory, up to 4 GiB of it.
#[test]
fn a_posted_buffer_longer_than_any_the_driver_posts_closes_the_channel() {
    let mut bench = Bench::opened();
    let slot = bench.driver.slot(TO_GUEST, 127);
    bench
        .driver
        .post_indirect(TO_GUEST, &[(slot, 64 << 10); 33]);
    bench.queue_frame(1, b"never");
    bench.console.transmit();
    assert!(matches!(
        bench.gate.take()[..],
        [Event::Closed(Closed::Framing(_))]
    ));
    assert_eq!(bench.driver.take_all_used(TO_GUEST).len(), 1);
    assert_eq!(bench.channel(), "broken");
}

#[test]
fn what_lies_ahead_of_a_frame_is_what_the_ring_holds_and_the_rest_of_one_frame() {
    // What the contract states: 128 buffers of the driver's size.
    const RING: usize = 512 << 10;
    const BUFFER: u32 = 4096;
    let entries = usize::from(SPECS[usize::from(TO_GUEST)].max_size);
    assert_eq!(entries * BUFFER as usize, RING);
    let data = [7; 16 << 10];
    let mut bench = Bench::opened();
    for _ in 0..2 * RING / data.len() {
        bench.queue_frame(1, &data);
    }
    // A guest that does not read: the device fills all it posted, and the frame that did not fit
    // whole has begun.
    bench.driver.post(TO_GUEST, entries, BUFFER);
    // The gate's scheduler lets it go next.
    let control = Outgoing {
        head: header(2, 0),
        body: bytes::Bytes::new(),
        can_wait: false,
    };
    bench.gate.diary().to_guest.push_front(control);
    let mut got = bench.received();
    assert_eq!(got.len(), RING);
    bench.driver.post(TO_GUEST, entries / 2, BUFFER);
    got.extend(bench.received());

    let whole = HEADER_LEN + data.len();
    let mut ahead = 0;
    while got[ahead..ahead + HEADER_LEN] == header(1, data.len()) {
        ahead += whole;
    }
    assert_eq!(got[ahead..ahead + HEADER_LEN], header(2, 0));
    assert!(ahead < RING + whole, "{ahead}");
}

mod what_can_wait {
    use std::time::{Duration, Instant};

    use forebay_virtio::mock::Piece;

    use super::*;
    use crate::agent_to_guest::{TOLD_WITHIN, Telling};
    use crate::{Drained, Gate as _};

    const LOOK: Duration = Duration::from_micros(1);
    const ONE_CHAIN: Budget = Budget {
        chains: 1,
        bytes: usize::MAX,
    };

    /// A guest that wants to hear of everything.
    fn bench() -> Bench {
        let mut bench = Bench::opened();
        bench.driver.post(TO_GUEST, 64, 4096);
        bench.driver.want_interrupt(TO_GUEST);
        bench
    }

    /// A guest whose stream the loop serves, and whose next chain is there already.
    fn streaming() -> Bench {
        let mut bench = bench();
        for _ in 0..2 {
            let chain = frame(1, b"x");
            bench.driver.add(FROM_GUEST, &[Piece::Read(&chain)]);
        }
        let drained = bench.console.drain_from_guest(ONE_CHAIN, LOOK);
        assert_eq!(drained, Drained::More);
        bench
    }

    /// Interrupts for one frame, of a guest that asks for them.
    fn interrupts(bench: &mut Bench, can_wait: bool) -> usize {
        if can_wait {
            bench.queue_unhurried(1, b"acknowledged");
        } else {
            bench.queue_frame(1, b"at once");
        }
        bench.console.transmit();
        bench.interrupt.take()
    }

    #[test]
    fn is_placed_in_a_stream_without_an_interrupt_and_told_as_the_stream_pauses() {
        let mut bench = streaming();
        assert_eq!(interrupts(&mut bench, true), 0);
        assert_eq!(interrupts(&mut bench, true), 0);
        let twice = frame(1, b"acknowledged").repeat(2);
        assert_eq!(
            bench.console.inspect().agent.bytes_to_guest,
            twice.len() as u64
        );
        let drained = bench.console.drain_from_guest(Budget::TURN, LOOK);
        assert_eq!(drained, Drained::Everything);
        assert_eq!(bench.interrupt.take(), 1);
        assert_eq!(bench.received(), twice);
        // The stream is over.
        bench.driver.want_interrupt(TO_GUEST);
        assert_eq!(interrupts(&mut bench, true), 1);
    }

    #[test]
    fn is_not_told_to_a_guest_that_has_seen_it() {
        let mut bench = streaming();
        assert_eq!(interrupts(&mut bench, true), 0);
        bench.received();
        bench.driver.want_interrupt(TO_GUEST);
        let _ = bench.console.drain_from_guest(Budget::TURN, LOOK);
        assert_eq!(bench.interrupt.take(), 0);
    }

    #[test]
    fn is_told_with_the_first_that_cannot() {
        let mut bench = streaming();
        assert_eq!(interrupts(&mut bench, true), 0);
        assert_eq!(interrupts(&mut bench, false), 1);
        // In one buffer with it, too, in either order.
        for unhurried_first in [true, false] {
            bench.received();
            bench.driver.want_interrupt(TO_GUEST);
            for unhurried in [unhurried_first, !unhurried_first] {
                if unhurried {
                    bench.queue_unhurried(1, b"acknowledged");
                } else {
                    bench.queue_frame(1, b"at once");
                }
            }
            bench.console.transmit();
            assert_eq!(bench.interrupt.take(), 1, "{unhurried_first}");
        }
        // Nothing is left to be told.
        let _ = bench.console.drain_from_guest(Budget::TURN, LOOK);
        assert_eq!(bench.interrupt.take(), 0);
    }

    #[test]
    fn is_told_at_once_to_a_guest_that_does_not_stream() {
        let mut bench = bench();
        assert_eq!(interrupts(&mut bench, true), 1);
        // Nor where the loop does not look for more, having no processor for it.
        bench.received();
        bench.driver.want_interrupt(TO_GUEST);
        for _ in 0..2 {
            let chain = frame(1, b"x");
            bench.driver.add(FROM_GUEST, &[Piece::Read(&chain)]);
        }
        let _ = bench.console.drain_from_guest(ONE_CHAIN, Duration::ZERO);
        assert_eq!(interrupts(&mut bench, true), 1);
    }

    #[test]
    fn is_told_after_a_while_to_a_guest_that_streams_on() {
        let mut bench = streaming();
        assert_eq!(interrupts(&mut bench, true), 0);
        let telling = || bench.console.to_guest.lock().unwrap();
        assert!(matches!(telling().telling, Telling::Streaming(Some(_))));
        telling().telling = Telling::Streaming(Instant::now().checked_sub(TOLD_WITHIN));
        let chain = frame(1, b"and on");
        bench.driver.add(FROM_GUEST, &[Piece::Read(&chain)]);
        let drained = bench.console.drain_from_guest(ONE_CHAIN, LOOK);
        assert_eq!(drained, Drained::More);
        assert_eq!(bench.interrupt.take(), 1);
    }

    #[test]
    fn is_told_by_a_device_that_was_held() {
        let mut bench = streaming();
        assert_eq!(interrupts(&mut bench, true), 0);
        let held = bench.console.hold();
        assert_eq!(
            bench.console.drain_from_guest(Budget::TURN, LOOK),
            Drained::Everything
        );
        assert_eq!(bench.interrupt.take(), 0);
        drop(held);
        assert_eq!(bench.interrupt.take(), 1);
        bench.gate.settle();
    }
}
