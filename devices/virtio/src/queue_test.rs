use std::sync::atomic::Ordering;

use virtio_queue::desc::split::Descriptor;

use super::*;
use crate::mock::{NEXT, Piece, WRITE};
use crate::spec::{F_INDIRECT_DESC, F_VERSION_1};
use crate::test_device::{Bench, FROM_GUEST, TO_GUEST};

#[test]
fn a_peeked_chain_that_is_dropped_leaves_the_ring_unchanged() {
    let (mut bench, _, mut queue) = Bench::started();
    let head = bench.driver.add(FROM_GUEST, &[Piece::Read(b"payload")]);
    for _ in 0..3 {
        let mut chain = queue.peek().unwrap().expect("a chain");
        let mut bytes = [0; 3];
        assert!(chain.read(&mut bytes));
        assert_eq!(&bytes, b"pay");
    }
    assert_eq!(bench.driver.take_used(FROM_GUEST), None);
    assert_eq!(queue.view().next_available, 0);
    queue
        .peek()
        .unwrap()
        .expect("still there")
        .consume(ChainVerdict::Use)
        .complete();
    assert_eq!(bench.driver.take_used(FROM_GUEST).unwrap().head, head);
    assert!(queue.peek().unwrap().is_none());
}

#[test]
fn consuming_goes_on_where_peeking_stopped() {
    let (mut bench, _, mut queue) = Bench::started();
    let pieces = [Piece::Read(b"ab"), Piece::Read(b"cdef"), Piece::Read(b"g")];
    bench.driver.add(FROM_GUEST, &pieces);
    let mut chain = queue.peek().unwrap().unwrap();
    assert_eq!(chain.remaining(), 7);
    let mut head = [0; 3];
    assert!(chain.read(&mut head));
    let mut taken = chain.consume(ChainVerdict::Use);
    assert_eq!(taken.remaining(), 4);
    let mut body = Vec::with_capacity(3);
    assert!(taken.read_onto(&mut body, 3));
    assert_eq!((&head, body.as_slice()), (b"abc", b"def".as_slice()));
    assert_eq!(body.capacity(), 3);
    assert!(taken.skip(1));
    assert_eq!(taken.remaining(), 0);
}

#[test]
fn more_than_the_chain_holds_moves_nothing() {
    let (mut bench, _, mut queue) = Bench::started();
    bench.driver.add(FROM_GUEST, &[Piece::Read(b"abc")]);
    let mut chain = queue.peek().unwrap().unwrap();
    assert!(!chain.read(&mut [0; 4]));
    let mut taken = chain.consume(ChainVerdict::Use);
    assert!(!taken.read(&mut [0; 4]));
    assert!(!taken.skip(4));
    let mut body = Vec::new();
    assert!(!taken.read_onto(&mut body, usize::MAX));
    assert!(body.is_empty());
    assert!(taken.read_onto(&mut body, 3));
    assert_eq!(body, b"abc");
}

#[test]
fn a_dropped_chain_has_no_bytes_left() {
    let (mut bench, _, mut queue) = Bench::started();
    bench.driver.add(FROM_GUEST, &[Piece::Read(b"abc")]);
    let chain = queue.peek().unwrap().unwrap();
    let mut taken = chain.consume(ChainVerdict::Drop);
    assert_eq!(taken.remaining(), 0);
    assert!(!taken.read(&mut [0; 1]));
    drop(taken);
    assert_eq!(bench.driver.take_used(FROM_GUEST).unwrap().len, 0);
}

#[test]
fn a_taken_chain_that_is_forgotten_comes_back_once_all_the_same() {
    let (mut bench, _, mut queue) = Bench::started();
    let head = bench.driver.add(FROM_GUEST, &[Piece::Read(b"abc")]);
    {
        let _taken = queue.peek().unwrap().unwrap().consume(ChainVerdict::Use);
    }
    let used = bench.driver.take_all_used(FROM_GUEST);
    assert_eq!(used.len(), 1);
    assert_eq!(used[0].head, head);
}

#[test]
fn writing_fills_buffers_in_order_and_reports_what_was_written() {
    let (mut bench, mut queue, _) = Bench::started();
    bench
        .driver
        .add(TO_GUEST, &[Piece::Write(2), Piece::Write(4)]);
    let mut taken = queue.peek().unwrap().unwrap().consume(ChainVerdict::Use);
    assert_eq!(taken.write(b"abc"), 3);
    assert_eq!(taken.write(b"defgh"), 3);
    assert_eq!(taken.write(b"i"), 0);
    taken.complete();
    let used = bench.driver.take_used(TO_GUEST).unwrap();
    assert_eq!((used.len, used.bytes.as_slice()), (6, b"abcdef".as_slice()));
}

#[test]
fn indexes_wrap_around() {
    let (mut bench, _, mut queue) = Bench::started();
    for round in 0..70_000_u32 {
        let bytes = round.to_le_bytes();
        bench.driver.add(FROM_GUEST, &[Piece::Read(&bytes)]);
        let mut read = [0; 4];
        let mut chain = queue.peek().unwrap().expect("a chain");
        assert!(chain.read(&mut read));
        assert_eq!(read, bytes);
        chain.consume(ChainVerdict::Use).complete();
        assert!(bench.driver.take_used(FROM_GUEST).is_some());
    }
    assert_eq!(queue.view().next_available, (70_000 % 65_536) as u16);
}

// B44: the available index jumps by more than the ring has entries.
#[test]
fn an_index_that_jumps_kills_the_queue_and_only_it() {
    let (mut bench, mut other, mut queue) = Bench::started();
    bench.driver.put_available_index(FROM_GUEST, 17);
    let expected = RingFault::AvailableIndex {
        from: 0,
        to: 17,
        size: 16,
    };
    assert_eq!(queue.peek().unwrap_err(), expected);
    // Taking it back does not revive the queue.
    bench.driver.put_available_index(FROM_GUEST, 1);
    assert_eq!(queue.peek().unwrap_err(), expected);
    assert_eq!(queue.rearm().unwrap_err(), expected);
    assert!(!queue.take_interrupt());
    assert_eq!(queue.fault(), Some(expected));

    bench.driver.add(TO_GUEST, &[Piece::Write(4)]);
    assert!(other.peek().unwrap().is_some());
}

#[test]
fn an_index_that_runs_backwards_is_a_jump_too() {
    let (mut bench, _, mut queue) = Bench::started();
    bench.driver.add(FROM_GUEST, &[Piece::Read(b"a")]);
    queue
        .peek()
        .unwrap()
        .unwrap()
        .consume(ChainVerdict::Use)
        .complete();
    bench.driver.put_available_index(FROM_GUEST, 0);
    assert!(matches!(
        queue.peek(),
        Err(RingFault::AvailableIndex { from: 1, to: 0, .. })
    ));
}

#[test]
fn a_full_ring_is_not_a_jump() {
    let (mut bench, _, mut queue) = Bench::started();
    for _ in 0..16 {
        bench.driver.add(FROM_GUEST, &[Piece::Read(b"a")]);
    }
    let mut count = 0;
    while let Some(chain) = queue.peek().unwrap() {
        chain.consume(ChainVerdict::Use).complete();
        count += 1;
    }
    assert_eq!(count, 16);
}

// B44: a head outside the descriptor table.
#[test]
fn a_head_outside_the_table_kills_the_queue() {
    for head in [16, 17, u16::MAX] {
        let (mut bench, _, mut queue) = Bench::started();
        bench.driver.add_head(FROM_GUEST, head);
        let expected = RingFault::Head { head, size: 16 };
        assert_eq!(queue.peek().unwrap_err(), expected);
        assert_eq!(bench.driver.take_used(FROM_GUEST), None);
    }
}

#[test]
fn a_malformed_chain_comes_back_empty_and_the_next_one_passes() {
    let (mut bench, _, mut queue) = Bench::started();
    let slot = bench.driver.slot(FROM_GUEST, 15).0;
    bench
        .driver
        .put_descriptor(FROM_GUEST, 15, Descriptor::new(slot, 8, NEXT, 15));
    bench.driver.add_head(FROM_GUEST, 15);
    bench.driver.add(FROM_GUEST, &[Piece::Read(b"good")]);

    let chain = queue.peek().unwrap().expect("the bad chain");
    assert_eq!(chain.fault(), Some(ChainFault::Cycle));
    assert_eq!(chain.remaining(), 0);
    chain.consume(ChainVerdict::Use).complete();
    {
        let chain = queue.peek().unwrap().expect("the good chain");
        assert_eq!(chain.fault(), None);
        assert_eq!(chain.remaining(), 4);
    }
    let used = bench.driver.take_used(FROM_GUEST).unwrap();
    assert_eq!((used.head, used.len), (15, 0));
    assert_eq!(queue.fault(), None);
}

#[test]
fn a_chain_changed_after_it_was_checked_gains_nothing() {
    let (mut bench, _, mut queue) = Bench::started();
    let head = bench.driver.add(FROM_GUEST, &[Piece::Read(b"good")]);
    let mut chain = queue.peek().unwrap().unwrap();
    // The descriptor now points out of memory and claims 4 GiB.
    bench.driver.put_descriptor(
        FROM_GUEST,
        head,
        Descriptor::new(u64::MAX - 1, u32::MAX, WRITE, 0),
    );
    let mut bytes = [0; 4];
    assert_eq!(chain.remaining(), 4);
    assert!(chain.read(&mut bytes));
    assert_eq!(&bytes, b"good");
}

#[test]
fn a_chain_added_between_drain_and_rearm_is_not_lost() {
    let (mut bench, _, mut queue) = Bench::started();
    assert!(!queue.rearm().unwrap());
    // The driver is told to kick, and does.
    assert!(bench.driver.send(FROM_GUEST, b"first"));
    let first = queue.peek().unwrap().unwrap();
    first.consume(ChainVerdict::Use).complete();
    assert!(queue.peek().unwrap().is_none());
    // Between the drain and the re-arm another comes, for which no kick was asked.
    assert!(!bench.driver.send(FROM_GUEST, b"second"));
    assert!(queue.rearm().unwrap(), "the chain must be seen");
    let second = queue.peek().unwrap().unwrap();
    second.consume(ChainVerdict::Use).complete();
    assert!(!queue.rearm().unwrap());
    assert!(bench.driver.send(FROM_GUEST, b"third"), "armed again");
}

#[test]
fn without_the_event_index_flags_say_whether_to_kick() {
    let (mut bench, _, mut queue) = Bench::started_with(F_VERSION_1);
    assert!(bench.driver.send(FROM_GUEST, b"a"));
    queue.disarm();
    assert!(!bench.driver.send(FROM_GUEST, b"b"));
    assert!(queue.rearm().unwrap(), "two chains are there");
    assert!(bench.driver.send(FROM_GUEST, b"c"));
}

#[test]
fn an_interrupt_is_due_when_the_driver_asked_for_the_chain_just_completed() {
    let (mut bench, _, mut queue) = Bench::started();
    let serve = |queue: &mut Virtqueue, bench: &mut Bench| {
        bench.driver.add(FROM_GUEST, &[Piece::Read(b"a")]);
        let chain = queue.peek().unwrap().unwrap();
        chain.consume(ChainVerdict::Use).complete();
    };
    bench.driver.want_interrupt(FROM_GUEST);
    serve(&mut queue, &mut bench);
    assert!(queue.take_interrupt());
    serve(&mut queue, &mut bench);
    assert!(!queue.take_interrupt(), "the driver asked for one only");
    bench.driver.take_all_used(FROM_GUEST);

    bench.driver.want_interrupt(FROM_GUEST);
    serve(&mut queue, &mut bench);
    queue.forget_interrupt();
    assert!(!queue.take_interrupt(), "forgotten is forgotten");
}

#[test]
fn interrupts_forgotten_by_the_thousand_do_not_hide_a_later_one() {
    let (mut bench, _, mut queue) = Bench::started();
    // With the eight below, a count that was not reset would wrap past the one that matters.
    for round in 0..65_534_u32 {
        bench.driver.add(FROM_GUEST, &[Piece::Read(b"a")]);
        let chain = queue.peek().unwrap().unwrap();
        chain.consume(ChainVerdict::Use).complete();
        queue.forget_interrupt();
        assert!(bench.driver.take_used(FROM_GUEST).is_some(), "{round}");
    }
    bench.driver.want_interrupt(FROM_GUEST);
    for _ in 0..8 {
        bench.driver.add(FROM_GUEST, &[Piece::Read(b"a")]);
        let chain = queue.peek().unwrap().unwrap();
        chain.consume(ChainVerdict::Use).complete();
    }
    assert!(queue.take_interrupt());
}

#[test]
fn an_indirect_table_counts_only_if_it_was_negotiated() {
    for (features, expected) in [
        (F_VERSION_1 | F_INDIRECT_DESC, None),
        (F_VERSION_1, Some(ChainFault::IndirectNotAllowed)),
    ] {
        let (mut bench, _, mut queue) = Bench::started_with(features);
        let buffer = bench.driver.slot(FROM_GUEST, 1);
        bench.mem.write_slice(b"via", buffer).unwrap();
        bench.driver.add_indirect(FROM_GUEST, &[(buffer, 3)]);
        let chain = queue.peek().unwrap().unwrap();
        assert_eq!(chain.fault(), expected);
    }
}

#[test]
fn no_verdict_is_needed_to_see_that_chains_wait() {
    let (mut bench, _, mut queue) = Bench::started();
    assert!(!queue.available().unwrap());
    bench.driver.add(FROM_GUEST, &[Piece::Read(b"a")]);
    assert!(queue.available().unwrap());
    let index: u16 = bench
        .mem
        .load(
            GuestAddress(bench.driver.used(FROM_GUEST).0 + 2),
            Ordering::Acquire,
        )
        .unwrap();
    assert_eq!(index, 0);
}

mod room {
    use super::*;

    /// Consumes up to `most` chains.
    fn consume(queue: &mut Virtqueue, most: usize) {
        for _ in 0..most {
            let Some(chain) = queue.peek().unwrap() else {
                return;
            };
            chain.consume(ChainVerdict::Drop).complete();
        }
    }

    /// Adds so many chains of one entry.
    fn add(bench: &mut Bench, chains: usize) {
        for _ in 0..chains {
            bench.driver.add(FROM_GUEST, &[Piece::Read(b"x")]);
        }
    }

    #[test]
    fn is_told_of_to_a_driver_that_may_have_found_none_and_asked() {
        let (mut bench, _, mut queue) = Bench::started();
        // Often enough for the indexes to wrap.
        for round in 0..10_000 {
            let chains = 1 + round % 16;
            add(&mut bench, chains);
            bench.driver.want_interrupt(FROM_GUEST);
            consume(&mut queue, 16);
            assert_eq!(
                queue.take_interrupt_for_room(),
                chains >= 8,
                "round {round}"
            );
            bench.driver.take_all_used(FROM_GUEST);
        }
        add(&mut bench, 16);
        consume(&mut queue, 16);
        assert!(!queue.take_interrupt_for_room(), "it did not ask");
    }

    #[test]
    fn is_told_of_although_the_ring_was_emptied_in_steps() {
        let (mut bench, _, mut queue) = Bench::started();
        for step in 1..=16 {
            add(&mut bench, 16);
            bench.driver.want_interrupt(FROM_GUEST);
            let mut told = 0;
            for _ in 0..16 {
                consume(&mut queue, step);
                told += usize::from(queue.take_interrupt_for_room());
            }
            assert_eq!(told, 1, "steps of {step}");
            bench.driver.take_all_used(FROM_GUEST);
        }
    }

    #[test]
    fn that_one_chain_took_up_is_told_of_however_short_the_last_look_was() {
        let (mut bench, _, mut queue) = Bench::started();
        bench.driver.want_interrupt(FROM_GUEST);
        add(&mut bench, 2);
        // The rest of the ring, in one chain, of whose entries all but one are empty.
        bench
            .driver
            .add(FROM_GUEST, &[const { Piece::Read(b"y") }; 14]);
        for index in 2..15 {
            let empty = Descriptor::new(0, 0, if index > 2 { NEXT } else { 0 }, index - 1);
            bench.driver.put_descriptor(FROM_GUEST, index, empty);
        }
        assert_eq!(bench.driver.room(FROM_GUEST), 0);
        consume(&mut queue, 1);
        assert!(!queue.take_interrupt_for_room());
        consume(&mut queue, 16);
        assert!(queue.take_interrupt_for_room());
        bench.driver.take_all_used(FROM_GUEST);
        add(&mut bench, 1);
        consume(&mut queue, 1);
        assert!(!queue.take_interrupt_for_room(), "it is over");
    }

    #[test]
    fn is_told_of_after_a_chain_of_which_nobody_knows_how_long_it_is() {
        let (mut bench, _, mut queue) = Bench::started();
        bench.driver.add(FROM_GUEST, &[Piece::Read(b"x")]);
        let broken = Descriptor::new(u64::MAX, 1, 0, 0);
        bench.driver.put_descriptor(FROM_GUEST, 0, broken);
        consume(&mut queue, 1);
        assert!(queue.take_interrupt_for_room());
    }
}
