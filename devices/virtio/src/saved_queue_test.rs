use super::*;
use crate::device::Activation;
use crate::mock::Piece;
use crate::queue::ChainVerdict;
use crate::spec::{F_INDIRECT_DESC, F_VERSION_1};
use crate::test_device::{ALL_FEATURES, Bench, FROM_GUEST, TestDevice};
use crate::transport::MmioTransport;
use std::sync::Arc;

/// The queue from the guest as a restored device gets it, standing at the beginning.
fn rebuilt(bench: &Bench) -> Virtqueue {
    let (_, activation) = MmioTransport::restore(
        &bench.transport.save(),
        bench.mem.clone(),
        Arc::new(TestDevice::default()),
        bench.interrupt.clone(),
    )
    .unwrap();
    let Activation { mut queues, .. } = activation.expect("the driver is ready");
    queues[usize::from(FROM_GUEST)].take().expect("enabled")
}

fn restored(bench: &Bench, queue: &Virtqueue) -> Virtqueue {
    let mut next = rebuilt(bench);
    next.restore(queue.save()).unwrap();
    next
}

fn serve(queue: &mut Virtqueue) -> u32 {
    let mut chains = 0;
    while let Some(chain) = queue.peek().unwrap() {
        chain.consume(ChainVerdict::Use).complete();
        chains += 1;
    }
    chains
}

#[test]
fn a_queue_restored_after_every_step_loses_no_chain_and_no_kick() {
    for features in [ALL_FEATURES, F_VERSION_1, F_VERSION_1 | F_INDIRECT_DESC] {
        let (mut bench, _, mut queue) = Bench::started_with(features);
        // Far enough for the index to wrap around the ring several times.
        for round in 0..100_u32 {
            for _ in 0..round % 5 {
                bench.driver.add(FROM_GUEST, &[Piece::Read(b"chain")]);
            }
            // The kick is lost, as one may be in a snapshot.
            queue = restored(&bench, &queue);
            assert_eq!(serve(&mut queue), round % 5, "of {features:#x}");
            queue = restored(&bench, &queue);
            assert!(!queue.rearm().unwrap());
            queue = restored(&bench, &queue);
            bench.driver.add(FROM_GUEST, &[Piece::Read(b"one more")]);
            assert!(bench.driver.kick(FROM_GUEST), "the next kick was asked for");
            assert_eq!(serve(&mut queue), 1);
            let used = bench.driver.take_all_used(FROM_GUEST);
            assert_eq!(used.len() as u32, round % 5 + 1);
        }
    }
}

#[test]
fn a_chain_that_was_only_peeked_is_still_there() {
    let (mut bench, _, mut queue) = Bench::started();
    bench.driver.add(FROM_GUEST, &[Piece::Read(b"chain")]);
    assert!(queue.peek().unwrap().is_some());
    let mut queue = restored(&bench, &queue);
    assert_eq!(serve(&mut queue), 1);
}

#[test]
fn a_dead_queue_stays_dead_with_its_fault() {
    let (bench, _, mut jumped) = Bench::started();
    bench.driver.put_available_index(FROM_GUEST, 17);
    assert!(jumped.peek().is_err());
    let (mut bench, _, mut astray) = Bench::started();
    bench.driver.add_head(FROM_GUEST, 99);
    assert!(astray.peek().is_err());
    for queue in [jumped, astray] {
        let mut again = restored(&bench, &queue);
        assert_eq!(again.fault(), queue.fault());
        assert_eq!(again.view(), queue.view());
        // Though the ring is in order by now.
        bench.driver.put_available_index(FROM_GUEST, 0);
        assert_eq!(again.peek().map(|_| ()), Err(queue.fault().unwrap()));
    }
}

#[test]
fn a_fault_that_is_none_is_refused() {
    let (bench, _, _) = Bench::started();
    for (fault, word) in [
        (FaultV1::AvailableIndex(7 + 16), "an index"),
        (FaultV1::AvailableIndex(7), "an index"),
        (FaultV1::Head(15), "a head"),
    ] {
        let mut queue = rebuilt(&bench);
        let fault = Some(fault);
        let rule = queue.restore(SavedQueueV1 { next: 7, fault }).unwrap_err();
        assert!(rule.contains(word), "{rule}");
    }
    let fault = Some(FaultV1::AvailableIndex(7 + 17));
    assert_eq!(
        rebuilt(&bench).restore(SavedQueueV1 { next: 7, fault }),
        Ok(())
    );
}

#[test]
fn a_driver_that_is_not_where_the_queue_says_kills_the_queue_alone() {
    let (bench, _, _) = Bench::started();
    let mut queue = rebuilt(&bench);
    let next = 1000;
    queue.restore(SavedQueueV1 { next, fault: None }).unwrap();
    let jumped = RingFault::AvailableIndex {
        from: 1000,
        to: 0,
        size: 16,
    };
    assert_eq!(queue.peek().map(|_| ()), Err(jumped));
}
