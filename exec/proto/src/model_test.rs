//! Random operation lists for the model, and random bytes for each end alone.
//!
//! A failing list is shrunk and printed by proptest; to replay a seed, set `PROPTEST_RNG_SEED`.

use alloc::vec;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::{Op, World};
use crate::host::Stdin;
use crate::pair::Pair;
use crate::{FRAME_MAX, HEADER_LEN, Limits};

fn op() -> impl Strategy<Value = Op> {
    let exec = 0..6usize;
    let size = prop_oneof![1..40usize, 1..2000usize];
    prop_oneof![
        2 => (any::<bool>(), prop_oneof![4 => Just(0usize), 1 => 0..60_000usize])
            .prop_map(|(piped, size)| Op::Start { piped, size }),
        1 => size.clone().prop_map(|n| Op::StartWithBytes { n }),
        1 => (0..30_000usize).prop_map(|ms| Op::StartWithin { ms }),
        1 => (0..10_000usize).prop_map(|ms| Op::Pass { ms }),
        1 => Just(Op::FailNextStart),
        3 => (exec.clone(), size.clone()).prop_map(|(exec, n)| Op::Write { exec, n }),
        1 => exec.clone().prop_map(|exec| Op::CancelWrite { exec }),
        1 => exec.clone().prop_map(|exec| Op::Close { exec }),
        1 => exec.clone().prop_map(|exec| Op::Signal { exec }),
        1 => exec.clone().prop_map(|exec| Op::Kill { exec }),
        2 => (exec.clone(), any::<bool>()).prop_map(|(exec, stream)| Op::Take { exec, stream }),
        3 => (exec.clone(), any::<bool>(), size.clone())
            .prop_map(|(exec, stream, n)| Op::Read { exec, stream, n }),
        2 => (exec.clone(), any::<bool>()).prop_map(|(exec, stream)| Op::PassOn { exec, stream }),
        2 => (exec.clone(), any::<bool>(), size.clone())
            .prop_map(|(exec, stream, n)| Op::Consume { exec, stream, n }),
        1 => (exec.clone(), any::<bool>(), size.clone())
            .prop_map(|(exec, stream, n)| Op::ConsumeTooMuch { exec, stream, n }),
        1 => exec.clone().prop_map(|exec| Op::Leave { exec }),
        2 => exec.clone().prop_map(|exec| Op::TakeUp { exec }),
        1 => (exec.clone(), any::<bool>()).prop_map(|(exec, stream)| Op::Discard { exec, stream }),
        1 => exec.clone().prop_map(|exec| Op::Forget { exec }),
        5 => (exec.clone(), any::<bool>(), size.clone())
            .prop_map(|(exec, stream, n)| Op::Produce { exec, stream, n }),
        3 => (exec.clone(), size.clone()).prop_map(|(exec, n)| Op::Eat { exec, n }),
        1 => exec.clone().prop_map(|exec| Op::BreakStdin { exec }),
        1 => exec.prop_map(|exec| Op::Exit { exec }),
        1 => Just(Op::Ping),
        1 => Just(Op::Quiesce),
        2 => any::<bool>().prop_map(|done| Op::Freeze { done }),
        1 => any::<bool>().prop_map(|dull| Op::Renew { dull }),
        1 => Just(Op::Thaw),
        6 => (1..5usize).prop_map(|frames| Op::HostSends { frames }),
        6 => prop_oneof![1..20usize, 1..3000usize].prop_map(|n| Op::GuestReceives { n }),
        5 => (FRAME_MAX / 3..FRAME_MAX).prop_map(|size| Op::GuestWrites { size }),
        5 => (1..5usize).prop_map(|frames| Op::HostReceives { frames }),
        3 => Just(Op::Restore),
    ]
}

/// Chunk sizes, often tiny: that is where an off-by-one stalls a stream.
fn chunk(max: u32) -> impl Strategy<Value = u32> {
    prop_oneof![1..4u32, 1..max]
}

fn limits() -> impl Strategy<Value = Limits> {
    (1..5u32, chunk(100), chunk(300), 0..300u32, 0..3000u32).prop_map(
        |(max, stdin_chunk, output_chunk, more_in, more_out)| Limits {
            max_executions: max,
            stdin_chunk_size: stdin_chunk,
            output_chunk_size: output_chunk,
            input_limit: stdin_chunk + more_in,
            output_limit: output_chunk + 256 + more_out,
        },
    )
}

/// Everything that either end sent, read or counted is the same in both.
fn assert_alike(a: &World, b: &World) {
    assert_eq!(a.pair.to_guest, b.pair.to_guest);
    assert_eq!(a.in_flight, b.in_flight);
    assert_eq!(a.pair.commands, b.pair.commands);
    assert_eq!(a.pair.host.active(), b.pair.host.active());
    for (id, model) in &a.models {
        assert_eq!(model.read, b.models[id].read);
        assert_eq!(a.pair.host.terminal(*id), b.pair.host.terminal(*id));
        assert_eq!(a.pair.host.progress(*id), b.pair.host.progress(*id));
    }
    assert_eq!(a.pair.host.save(), b.pair.host.save());
}

#[test]
fn saving_and_restoring_both_ends_after_every_step_changes_nothing() {
    // The same lists in each run: a failing one is shrunk and printed.
    let config = ProptestConfig {
        cases: 60,
        ..ProptestConfig::default()
    };
    let lists = (limits(), prop::collection::vec(op(), 1..250));
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, rng).run(&lists, |(limits, ops)| {
        let mut world = World::new(limits).restored();
        for op in &ops {
            world.apply(op);
            world.apply(&Op::Restore);
            world.check();
        }
        world.finish();
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_operations_keeps_every_byte_and_every_bound(
        limits in limits(),
        ops in prop::collection::vec(op(), 1..250),
    ) {
        let mut world = World::new(limits);
        for op in &ops {
            world.apply(op);
            world.check();
        }
        world.finish();
    }

    #[test]
    fn a_restored_connection_does_exactly_what_the_original_would(
        limits in limits(),
        ops in prop::collection::vec(op(), 1..200),
        cut in any::<prop::sample::Index>(),
    ) {
        let (before, after) = ops.split_at(cut.index(ops.len()));
        let mut original = World::new(limits);
        for op in before {
            original.apply(op);
        }
        prop_assume!(original.can_be_saved());
        // A relay's reader and what is left are the original's alone.
        original.take_all_up();
        let mut restored = original.restored();
        for op in after {
            original.apply(op);
            restored.apply(op);
            assert_alike(&original, &restored);
        }
        original.finish();
        restored.finish();
        assert_alike(&original, &restored);
    }

    #[test]
    fn no_bytes_from_a_guest_make_the_host_panic_or_hold_more_than_it_allows(
        frames in prop::collection::vec(
            (
                prop_oneof![0x80..0x9au8, any::<u8>()],
                0..4u64,
                prop::collection::vec(any::<u8>(), 0..200),
                0..3usize,
            ),
            1..200,
        ),
    ) {
        let limits = Limits { output_limit: 2000, output_chunk_size: 150, ..Limits::default() };
        let mut pair = Pair::new(limits);
        for _ in 0..3 {
            let _ = pair.running(Stdin::Pipe);
        }
        for (kind, exec, payload, lie) in frames {
            let mut frame = crate::pair::raw(kind, exec, &payload);
            frame[0] = frame[0].wrapping_add(u8::try_from(lie / 2).unwrap());
            let rest = frame.len() - HEADER_LEN;
            let head: [u8; HEADER_LEN] = *frame.first_chunk().unwrap();
            match pair.host.judge(&head, rest) {
                crate::host::Verdict::Accept(n) => {
                    prop_assert!(n <= rest);
                    if let Err(why) = pair.host.deliver(frame[HEADER_LEN..HEADER_LEN + n].to_vec()) {
                        pair.host.handle_closed(why);
                    }
                }
                crate::host::Verdict::Discard(n) => prop_assert!(n <= rest),
                crate::host::Verdict::Close(why) => pair.host.handle_closed(why),
            }
            for exec in pair.host.inspect().executions {
                prop_assert!(exec.output_received - exec.output_released <= 2000);
            }
            while pair.host.poll_transmit().is_some() {}
            while pair.host.poll_notice().is_some() {}
        }
    }

    #[test]
    fn no_bytes_from_a_host_make_the_guest_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        cut in 1..50usize,
    ) {
        let mut guest = crate::guest::Conn::new();
        for piece in bytes.chunks(cut) {
            if guest.handle_bytes(piece).is_err() {
                break;
            }
        }
    }
}
