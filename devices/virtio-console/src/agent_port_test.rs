use forebay_virtio::mock::{Piece, Used};
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::test_bench::{Bench, CONTROL, Event, FROM_GUEST, TO_GUEST, delivered, frame};

mod the_ports_life {
    use super::*;

    #[test]
    fn nothing_goes_to_a_port_the_guest_has_not_opened() {
        let mut bench = Bench::new();
        bench.driver.post(TO_GUEST, 8, 4096);
        bench.queue_frame(1, b"early");
        bench.console.transmit();
        assert!(bench.received().is_empty());
        // Opening sends what waits, without a further call.
        bench.open();
        assert_eq!(bench.received(), frame(1, b"early"));
    }

    #[test]
    fn what_the_guest_sends_to_a_closed_port_is_used_and_dropped() {
        let mut bench = Bench::new();
        bench.send(&frame(1, b"early"));
        assert_eq!(bench.driver.take_all_used(FROM_GUEST).len(), 1);
        bench.open();
        bench.send(&frame(1, b"in time"));
        assert_eq!(bench.gate.take(), [Event::Opened, delivered(1, b"in time")]);
    }

    #[test]
    fn closing_first_judges_what_lies_in_the_ring() {
        let mut bench = Bench::opened();
        for text in [b"one", b"two"] {
            bench
                .driver
                .add(FROM_GUEST, &[Piece::Read(&frame(1, text))]);
        }
        bench.close();
        assert_eq!(
            bench.gate.take(),
            [
                delivered(1, b"one"),
                delivered(1, b"two"),
                Event::Closed(Closed::ByGuest)
            ]
        );
        assert_eq!(bench.driver.take_all_used(FROM_GUEST).len(), 2);
        // The kick that comes late finds nothing, and the next one is asked for.
        bench.driver.kick(FROM_GUEST);
        bench.open();
        assert!(bench.driver.send(FROM_GUEST, &frame(1, b"three")));
    }

    #[test]
    fn re_opening_ends_the_old_connection_before_the_new_one_begins() {
        let mut bench = Bench::opened();
        bench
            .driver
            .add(FROM_GUEST, &[Piece::Read(&frame(1, b"old"))]);
        bench.open();
        bench.send(&frame(1, b"new"));
        assert_eq!(
            bench.gate.take(),
            [
                delivered(1, b"old"),
                Event::Closed(Closed::Reopened),
                Event::Opened,
                delivered(1, b"new"),
            ]
        );
    }

    #[test]
    fn a_partly_placed_frame_does_not_reach_the_next_connection() {
        let mut bench = Bench::opened();
        bench.driver.post(TO_GUEST, 1, 4096);
        bench.queue_frame(1, &[0xaa; 10_000]);
        bench.console.transmit();
        assert_eq!(bench.received().len(), 4096);
        assert!(bench.console.inspect().agent.placing);
        bench.close();
        bench.driver.post(TO_GUEST, 8, 4096);
        bench.console.transmit();
        assert!(bench.received().is_empty());
        bench.open();
        bench.queue_frame(2, b"fresh");
        bench.console.transmit();
        assert_eq!(bench.received(), frame(2, b"fresh"));
    }

    // B45: open and close the agent port 200 times.
    #[test]
    fn opening_and_closing_alternate_however_often() {
        let mut bench = Bench::opened();
        bench.driver.post(TO_GUEST, 100, 4096);
        for round in 0..200_u8 {
            bench.close();
            bench.close();
            bench.open();
            bench.gate.diary().echo = true;
            bench.send(&frame(round, &[round; 100]));
            assert_eq!(bench.received(), frame(round, &[round; 100]));
            bench.driver.post(TO_GUEST, 1, 4096);
            bench.driver.take_all_used(FROM_GUEST);
            assert_eq!(
                bench.gate.take(),
                [
                    Event::Closed(Closed::ByGuest),
                    Event::Opened,
                    delivered(round, &[round; 100]),
                ]
            );
        }
    }

    #[test]
    fn a_flood_of_opens_and_closes_in_one_kick_is_one_open_or_close_a_turn() {
        let mut bench = Bench::opened();
        for value in 0..16_u8 {
            let message = [1, 0, 0, 0, 6, 0, value % 2, 0];
            bench.driver.add(CONTROL, &[Piece::Read(&message)]);
        }
        bench.driver.kick(CONTROL);
        assert_eq!(bench.gate.take().len(), 1);
        assert_eq!(bench.doorbell.take(), 1, "the loop goes on");
        let drained = bench.console.drain_from_guest(Budget::TURN, Duration::ZERO);
        assert_eq!(drained, Drained::More);
        assert_eq!(bench.gate.take().len(), 1);
        bench.run_loop();
        assert_eq!(bench.gate.take().len(), 14);
        assert_eq!(bench.driver.take_all_used(CONTROL).len(), 16);
        // A lone one is done with at once.
        bench.close();
        assert_eq!(bench.doorbell.take(), 0);
    }

    #[test]
    fn a_ring_full_of_the_smallest_frames_is_judged_to_the_last_as_the_port_closes() {
        let mut bench = Bench::opened();
        let frames = bench.empty_frames();
        for _ in 0..64 {
            bench.driver.add_indirect(FROM_GUEST, &[(frames, 32 << 10)]);
        }
        bench.close();
        let events = bench.gate.take();
        assert_eq!(events.len(), 64 * 2048 + 1);
        assert_eq!(events.last(), Some(&Event::Closed(Closed::ByGuest)));
    }

    // B44: sixteen opens of a full ring once held a vCPU for 21 seconds.
    #[test]
    fn more_than_the_agent_can_have_written_costs_the_connection_and_is_dropped() {
        let mut bench = Bench::opened();
        let frames = bench.empty_frames();
        for _ in 0..64 {
            bench.driver.add_indirect(FROM_GUEST, &[(frames, 64 << 10)]);
        }
        bench.open();
        let events = bench.gate.take();
        let frames = events.len() - 2;
        assert!(frames <= 64 * 2048, "{frames} frames");
        assert!(
            matches!(
                events[frames..],
                [Event::Closed(Closed::Framing(_)), Event::Opened]
            ),
            "{:?}",
            &events[frames..]
        );
        assert_eq!(bench.driver.take_all_used(FROM_GUEST).len(), 64);
        // Nothing of it reaches the new connection.
        bench.settle();
        bench.send(&frame(1, b"anew"));
        assert_eq!(bench.gate.take(), [delivered(1, b"anew")]);
    }
}

mod who_serves_the_ring {
    use super::*;

    #[test]
    fn requests_with_answers_stay_on_the_vcpu_thread() {
        let mut bench = Bench::opened();
        bench.driver.post(TO_GUEST, 64, 4096);
        for _ in 0..50 {
            assert!(bench.driver.send(FROM_GUEST, &frame(1, b"ping")));
            bench.queue_frame(1, b"pong");
            bench.console.transmit();
        }
        assert_eq!(bench.doorbell.take(), 0);
        assert_eq!(bench.console.inspect().agent.handovers, 0);
        assert_eq!(bench.gate.take().len(), 50);
    }

    #[test]
    fn the_third_kick_in_a_row_hands_the_ring_to_the_loop() {
        let mut bench = Bench::opened();
        for round in 0..3 {
            assert_eq!(bench.doorbell.take(), 0, "round {round}");
            assert!(bench.driver.send(FROM_GUEST, &frame(1, b"stream")));
        }
        assert_eq!(bench.doorbell.take(), 1);
        assert_eq!(
            bench.gate.take().len(),
            3,
            "served before it is handed over"
        );
        // While the loop owns it, no kick is asked for, and a stray one serves nothing.
        assert!(!bench.driver.send(FROM_GUEST, &frame(1, b"quiet")));
        bench.driver.force_kick(FROM_GUEST);
        assert_eq!(bench.gate.take(), []);
        bench.run_loop();
        assert_eq!(bench.gate.take(), [delivered(1, b"quiet")]);
        assert_eq!(bench.console.inspect().agent.owner, "vcpu");
        assert!(bench.driver.send(FROM_GUEST, &frame(1, b"kicked again")));
    }

    #[test]
    fn a_stream_is_handed_over_though_it_is_acknowledged_between_its_kicks() {
        let mut bench = Bench::opened();
        bench.driver.post(TO_GUEST, 8, 4096);
        for _ in 0..3 {
            assert!(bench.driver.send(FROM_GUEST, &frame(1, &[3; 4096])));
            bench.queue_frame(1, b"acknowledged");
            bench.console.transmit();
        }
        assert_eq!(bench.doorbell.take(), 1);
        assert_eq!(bench.console.inspect().agent.owner, "event_loop");
    }

    #[test]
    fn chains_that_come_one_by_one_are_handed_over_ever_more_rarely() {
        let mut bench = Bench::opened();
        for _ in 0..1000 {
            assert!(bench.driver.send(FROM_GUEST, &frame(1, b"line")));
            bench.driver.take_all_used(FROM_GUEST);
            // By the time the loop looks there is nothing more.
            if bench.doorbell.take() > 0 {
                bench.run_loop();
            }
        }
        let handovers = bench.console.inspect().agent.handovers;
        assert!((1..20).contains(&handovers), "{handovers} in 1000 kicks");
        // Where the loop finds something it is given the next kick at once.
        while bench.console.inspect().agent.owner == "vcpu" {
            bench.driver.send(FROM_GUEST, &frame(1, b"stream"));
            bench.driver.take_all_used(FROM_GUEST);
        }
        bench.driver.send(FROM_GUEST, &frame(1, b"and on"));
        bench.run_loop();
        bench.driver.send(FROM_GUEST, &frame(1, b"and on"));
        assert_eq!(bench.console.inspect().agent.owner, "event_loop");
    }

    #[test]
    fn a_chain_full_of_empty_frames_is_a_whole_turn() {
        let mut bench = Bench::opened();
        let frames = bench.empty_frames();
        for _ in 0..3 {
            bench.driver.add_indirect(FROM_GUEST, &[(frames, 64 << 10)]);
        }
        bench.driver.kick(FROM_GUEST);
        assert_eq!(bench.gate.take().len(), 4096);
        assert_eq!(bench.doorbell.take(), 1);
        let drained = bench.console.drain_from_guest(Budget::TURN, Duration::ZERO);
        assert_eq!(drained, Drained::More);
        assert_eq!(bench.gate.take().len(), 4096);
        bench.run_loop();
        assert_eq!(bench.gate.take().len(), 4096);
    }

    #[test]
    fn a_kick_too_big_for_the_vcpu_thread_is_finished_by_the_loop() {
        let mut bench = Bench::opened();
        let big = frame(1, &[5; 32 << 10]);
        for _ in 0..32 {
            bench.driver.add(FROM_GUEST, &[Piece::Read(&big)]);
        }
        bench.driver.kick(FROM_GUEST);
        let inline = bench.gate.take().len();
        assert!((1..32).contains(&inline), "{inline} served inline");
        assert_eq!(bench.doorbell.take(), 1);
        bench.run_loop();
        assert_eq!(bench.gate.take().len(), 32 - inline);
    }

    #[test]
    fn a_turn_of_the_loop_ends_with_its_budget() {
        let mut bench = Bench::opened();
        for _ in 0..10 {
            bench
                .driver
                .add(FROM_GUEST, &[Piece::Read(&frame(1, b"x"))]);
        }
        let budget = Budget {
            chains: 4,
            bytes: usize::MAX,
        };
        for served in [4, 4, 2] {
            let drained = bench.console.drain_from_guest(budget, Duration::ZERO);
            assert_eq!(drained == Drained::More, served == 4);
            assert_eq!(bench.gate.take().len(), served);
        }
    }

    #[test]
    fn a_driver_that_may_wait_for_room_is_told_of_it_if_it_asks_and_no_other() {
        let mut bench = Bench::opened();
        let entries = bench.driver.room(FROM_GUEST);
        let interrupts = |bench: &mut Bench, chains: usize, asks: bool| {
            for _ in 0..chains {
                let chain = frame(1, b"x");
                bench.driver.add(FROM_GUEST, &[Piece::Read(&chain)]);
            }
            if asks {
                bench.driver.want_interrupt(FROM_GUEST);
            }
            bench.run_loop();
            bench.driver.take_all_used(FROM_GUEST);
            bench.interrupt.take()
        };
        // It looks at the used ring before it waits.
        assert_eq!(interrupts(&mut bench, 1, true), 0);
        assert_eq!(interrupts(&mut bench, entries / 2 - 1, true), 0);
        // It may have looked, and found no room.
        assert_eq!(interrupts(&mut bench, entries, true), 1);
        assert_eq!(interrupts(&mut bench, entries / 2, true), 1);
        assert_eq!(interrupts(&mut bench, entries, false), 0);
        // What was not told is not told with the next.
        assert_eq!(interrupts(&mut bench, 1, true), 0);
    }

    #[test]
    fn one_chain_may_fill_a_ring() {
        let mut bench = Bench::opened();
        let bytes = frame(1, &[7; 100]);
        let pieces: Vec<_> = bytes.chunks(10).map(Piece::Read).collect();
        bench.driver.add(FROM_GUEST, &pieces);
        bench.driver.want_interrupt(FROM_GUEST);
        bench.run_loop();
        assert_eq!(bench.interrupt.take(), 1);
    }

    #[test]
    fn a_chain_that_comes_as_the_ring_is_drained_is_not_lost() {
        let mut bench = Bench::opened();
        let second = bench.driver.slot(FROM_GUEST, 40);
        let mem = bench.driver.mem().clone();
        mem.write_slice(&frame(2, b"late"), second).unwrap();
        let table = bench.driver.descriptors(FROM_GUEST).0;
        let available = bench.driver.available(FROM_GUEST).0;
        let mut done = false;
        // The second is added while the first is judged: its driver sees no wish for a kick.
        *bench.gate.at_judge.lock().unwrap() = Some(Box::new(move || {
            if std::mem::replace(&mut done, true) {
                return;
            }
            let at = table + 16 * 40;
            mem.write_obj(second.0, GuestAddress(at)).unwrap();
            mem.write_obj(20_u64, GuestAddress(at + 8)).unwrap();
            mem.write_obj(40_u16, GuestAddress(available + 6)).unwrap();
            mem.write_obj(2_u16, GuestAddress(available + 2)).unwrap();
        }));
        assert!(bench.driver.send(FROM_GUEST, &frame(1, b"first")));
        assert_eq!(
            bench.gate.take(),
            [delivered(1, b"first"), delivered(2, b"late")]
        );
        let used: Vec<Used> = bench.driver.take_all_used(FROM_GUEST);
        assert_eq!(used.len(), 2);
    }
}

mod settling {
    use super::*;

    /// The bench itself checks that no lock is held.
    fn assert_settled(bench: &Bench, what: &str) {
        assert!(!bench.gate.is_unsettled(), "not settled after {what}");
    }

    #[test]
    fn ends_every_entry_that_called_the_gate() {
        let mut bench = Bench::new();
        bench.open();
        assert_eq!(bench.gate.take(), [Event::Opened]);
        assert_settled(&bench, "the port's opening");
        bench.driver.send(FROM_GUEST, &frame(1, b"x"));
        assert_eq!(bench.gate.take().len(), 1);
        assert_settled(&bench, "a kick");
        bench
            .driver
            .add(FROM_GUEST, &[Piece::Read(&frame(1, b"x"))]);
        bench.run_loop();
        assert_eq!(bench.gate.take().len(), 1);
        assert_settled(&bench, "a turn of the loop");
        bench.queue_frame(1, b"y");
        bench.console.transmit();
        bench.driver.post(TO_GUEST, 8, 4096);
        assert_eq!(bench.received(), frame(1, b"y"));
        assert_settled(&bench, "a refill");
        bench.queue_frame(1, b"z");
        bench.console.transmit();
        assert_eq!(bench.received(), frame(1, b"z"));
        assert_settled(&bench, "a transmit");
        bench.close();
        assert_eq!(bench.gate.take().len(), 1);
        assert_settled(&bench, "the port's closing");
        for _ in 0..2 {
            let message = [1, 0, 0, 0, 6, 0, 1, 0];
            bench.driver.add(CONTROL, &[Piece::Read(&message)]);
        }
        bench.driver.kick(CONTROL);
        bench.run_loop();
        assert_eq!(bench.gate.take().len(), 3);
        assert_settled(&bench, "an opening left to the loop");
    }

    #[test]
    fn after_a_reset_is_left_to_the_loop_as_the_transport_is_locked() {
        let mut bench = Bench::opened();
        bench.doorbell.take();
        assert!(bench.driver.negotiate(crate::test_bench::FEATURES));
        assert_eq!(bench.gate.take(), [Event::Closed(Closed::Reset)]);
        assert!(bench.gate.is_unsettled());
        assert_eq!(bench.doorbell.take(), 1);
        bench.run_loop();
        assert_settled(&bench, "the loop's turn");
        assert!(bench.driver.negotiate(crate::test_bench::FEATURES));
        assert_eq!(bench.doorbell.take(), 0, "there was no connection");
    }

    #[test]
    fn may_bring_a_frame_and_transmit_it() {
        let mut bench = Bench::opened();
        bench.driver.post(TO_GUEST, 8, 4096);
        let (gate, console) = (bench.gate.clone(), bench.console.clone());
        let mut woken = Some(b"woken");
        *bench.gate.at_settle.lock().unwrap() = Some(Box::new(move || {
            if let Some(body) = woken.take() {
                gate.diary().to_guest.push_back(crate::Outgoing {
                    head: crate::test_bench::header(7, body.len()),
                    body: bytes::Bytes::from_static(body),
                    can_wait: false,
                });
                console.transmit();
            }
        }));
        bench.driver.send(FROM_GUEST, &frame(1, b"x"));
        assert_eq!(bench.received(), frame(7, b"woken"));
    }
}
