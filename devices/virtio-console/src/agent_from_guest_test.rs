use forebay_virtio::mock::Piece;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::test_bench::{
    Bench, CONSOLE, Event, FROM_GUEST, POISON, TO_GUEST, delivered, frame, header,
};

fn framing(event: &Event) -> bool {
    matches!(event, Event::Closed(Closed::Framing(_)))
}

mod the_gate {
    use super::*;

    #[test]
    fn passes_frames_in_the_order_they_were_sent() {
        let mut bench = Bench::opened();
        bench.send(&frame(1, b"one"));
        bench.send(&frame(2, b"two"));
        bench.send(&frame(1, b""));
        assert_eq!(
            bench.gate.take(),
            [
                delivered(1, b"one"),
                delivered(2, b"two"),
                delivered(1, b"")
            ]
        );
        assert_eq!(bench.driver.take_all_used(FROM_GUEST).len(), 3);
    }

    #[test]
    fn one_byte_over_the_allowance_is_never_copied_and_costs_only_its_execution() {
        let mut bench = Bench::opened();
        bench.gate.diary().allowance.insert(1, 100);
        bench.gate.diary().allowance.insert(2, 100);
        bench.send(&frame(1, &[7; 60]));
        bench.send(&frame(1, &[7; 41]));
        bench.send(&frame(2, &[8; 100]));
        bench.send(&frame(1, &[7; 1]));
        assert_eq!(
            bench.gate.take(),
            [
                delivered(1, &[7; 60]),
                Event::Discarded(1, 41),
                delivered(2, &[8; 100]),
                Event::Discarded(1, 1),
            ]
        );
        assert!(bench.gate.diary().failed.contains(&1));
        let agent = bench.console.inspect().agent;
        assert_eq!(agent.bytes_from_guest, 160);
        assert_eq!((agent.discarded_frames, agent.discarded_bytes), (2, 42));
        assert_eq!(bench.driver.take_all_used(FROM_GUEST).len(), 4);
        assert_eq!(bench.channel(), "open");
    }

    #[test]
    fn exactly_the_allowance_passes() {
        let mut bench = Bench::opened();
        bench.gate.diary().allowance.insert(1, 100);
        bench.send(&frame(1, &[7; 100]));
        assert_eq!(bench.gate.take(), [delivered(1, &[7; 100])]);
    }

    #[test]
    fn sees_several_frames_of_one_chain_one_by_one() {
        let mut bench = Bench::opened();
        bench.gate.diary().allowance.insert(2, 3);
        let mut chain = frame(1, b"first");
        chain.extend(frame(2, b"too much"));
        chain.extend(frame(3, b""));
        chain.extend(frame(1, b"last"));
        bench.send(&chain);
        assert_eq!(
            bench.gate.take(),
            [
                delivered(1, b"first"),
                Event::Discarded(2, 8),
                delivered(3, b""),
                delivered(1, b"last"),
            ]
        );
        // What the chain holds behind each header.
        assert_eq!(bench.gate.diary().rests, [65, 44, 20, 4]);
        assert_eq!(bench.driver.take_all_used(FROM_GUEST).len(), 1);
    }

    #[test]
    fn does_not_care_how_a_chain_is_cut_into_buffers() {
        let mut bench = Bench::opened();
        let mut bytes = frame(1, b"abcdefghij");
        bytes.extend(frame(2, b"klm"));
        for cut in 1..bytes.len() {
            let pieces: Vec<_> = bytes.chunks(cut).take(64).map(Piece::Read).collect();
            bench.driver.add(FROM_GUEST, &pieces);
            bench.settle();
            assert_eq!(
                bench.gate.take(),
                [delivered(1, b"abcdefghij"), delivered(2, b"klm")],
                "cut every {cut} bytes"
            );
            bench.driver.take_all_used(FROM_GUEST);
        }
    }

    #[test]
    fn a_header_changed_after_it_was_judged_gains_nothing() {
        let mut bench = Bench::opened();
        bench.gate.diary().allowance.insert(1, 4);
        let mut bytes = frame(1, b"good");
        bytes.extend(frame(2, b"next"));
        let head = bench.driver.add(FROM_GUEST, &[Piece::Read(&bytes)]);
        let slot = bench.driver.slot(FROM_GUEST, head);
        let mem = bench.driver.mem().clone();
        let descriptors = bench.driver.descriptors(FROM_GUEST).0;
        // As the gate looks at its copy, the guest makes the frame longer and its buffer too.
        *bench.gate.at_judge.lock().unwrap() = Some(Box::new(move || {
            mem.write_slice(&header(1, 20_000), slot).unwrap();
            let len = GuestAddress(descriptors + 16 * u64::from(head) + 8);
            mem.write_obj(40_000_u32, len).unwrap();
        }));
        bench.settle();
        assert_eq!(
            bench.gate.take(),
            [delivered(1, b"good"), delivered(2, b"next")]
        );
    }

    #[test]
    fn can_close_the_channel_and_hears_of_it_once() {
        let mut bench = Bench::opened();
        bench.send(&frame(POISON, b"whatever"));
        assert_eq!(
            bench.gate.take(),
            [Event::Closed(Closed::Framing("poison"))]
        );
        bench.send(&frame(1, b"ignored"));
        bench.close();
        assert_eq!(bench.gate.take(), []);
        assert_eq!(bench.driver.take_all_used(FROM_GUEST).len(), 2);
    }

    #[test]
    fn that_refuses_a_payload_closes_the_channel() {
        let mut bench = Bench::opened();
        bench.gate.diary().refuse = Some("no");
        let mut bytes = frame(1, b"first");
        bytes.extend(frame(1, b"never judged"));
        bench.send(&bytes);
        assert_eq!(bench.gate.take(), [Event::Closed(Closed::Framing("no"))]);
    }
}

mod framing_that_is_broken {
    use super::*;

    fn assert_breaks(pieces: &[Piece<'_>]) {
        let mut bench = Bench::opened();
        bench.driver.add(FROM_GUEST, pieces);
        bench.settle();
        let events = bench.gate.take();
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(
            framing(&events[0]) || matches!(events[0], Event::Closed(Closed::Chain(_))),
            "{events:?}"
        );
        assert_eq!(bench.channel(), "broken");

        // Dropped, but used, or the guest would hang.
        assert_eq!(bench.driver.take_all_used(FROM_GUEST).len(), 1);
        for _ in 0..200 {
            bench.send(&frame(1, b"into the void"));
            assert_eq!(bench.driver.take_all_used(FROM_GUEST).len(), 1);
        }
        assert_eq!(bench.gate.take(), []);
        // Nothing goes out either.
        bench.queue_frame(1, b"unheard");
        bench.driver.post(TO_GUEST, 2, 4096);
        bench.console.transmit();
        assert!(bench.received().is_empty());
        // The console is another matter.
        bench.driver.send(CONSOLE, b"console");
        assert_eq!(bench.sink.text(), "console");
        // And a re-opened port starts afresh.
        bench.gate.diary().to_guest.clear();
        bench.open();
        bench.send(&frame(1, b"again"));
        assert_eq!(bench.gate.take(), [Event::Opened, delivered(1, b"again")]);
    }

    #[test]
    fn by_a_chain_shorter_than_a_header() {
        assert_breaks(&[Piece::Read(&frame(1, b"")[..15])]);
    }

    #[test]
    fn by_an_empty_chain() {
        assert_breaks(&[Piece::Read(b"")]);
    }

    #[test]
    fn by_a_frame_that_runs_over_its_chains_end() {
        let bytes = frame(1, b"twelve bytes");
        assert_breaks(&[Piece::Read(&bytes[..bytes.len() - 1])]);
    }

    #[test]
    fn by_a_frame_that_claims_four_gigabytes() {
        assert_breaks(&[Piece::Read(&header(1, u32::MAX as usize))]);
    }

    #[test]
    fn by_a_buffer_the_device_may_not_read() {
        assert_breaks(&[Piece::Write(100)]);
        assert_breaks(&[Piece::Read(&frame(1, b"x")), Piece::Write(100)]);
    }

    #[test]
    fn by_a_second_frame_without_a_whole_header_after_the_first_was_delivered() {
        let mut bench = Bench::opened();
        let mut bytes = frame(1, b"whole");
        bytes.extend(&frame(1, b"cut")[..10]);
        bench.send(&bytes);
        let events = bench.gate.take();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0], delivered(1, b"whole"));
        assert!(framing(&events[1]));
    }

    #[test]
    fn by_a_discard_over_more_than_the_chain() {
        let mut bench = Bench::opened();
        bench.gate.diary().allowance.insert(1, 0);
        bench.send(&header(1, 10));
        assert!(framing(&bench.gate.take()[0]));
    }

    // B44: half a microsecond of work for each 16 bytes would add up to seconds.
    #[test]
    fn by_a_chain_of_more_frames_than_the_agent_makes() {
        let mut bench = Bench::opened();
        let frames = bench.empty_frames();
        let len = (MAX_CHAIN_FRAMES * HEADER_LEN) as u32;
        bench.driver.add_indirect(FROM_GUEST, &[(frames, len)]);
        bench.settle();
        assert_eq!(bench.gate.take().len(), MAX_CHAIN_FRAMES);
        assert_eq!(bench.channel(), "open");
        bench
            .driver
            .add_indirect(FROM_GUEST, &[(frames, len), (frames, HEADER_LEN as u32)]);
        bench.settle();
        let events = bench.gate.take();
        assert_eq!(events.len(), MAX_CHAIN_FRAMES + 1);
        assert!(events.last().is_some_and(framing));
    }

    #[test]
    fn by_a_chain_that_names_the_same_memory_over_and_over() {
        let mut bench = Bench::opened();
        let slot = bench.driver.slot(FROM_GUEST, 1);
        bench
            .driver
            .mem()
            .write_slice(&frame(1, &[0; 1000]), slot)
            .unwrap();
        bench
            .driver
            .add_indirect(FROM_GUEST, &[(slot, 64 << 10); 1000]);
        bench.settle();
        assert!(framing(&bench.gate.take()[0]));
        assert_eq!(bench.console.inspect().agent.frames_from_guest, 0);
    }
}
