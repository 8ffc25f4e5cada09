//! Lists of operations over both ends, against the naive model of the core's property test.
#![no_main]

use arbitrary::{Result, Unstructured};
use forebay_exec_proto::FRAME_MAX;
use forebay_exec_proto::model::{Op, World};
use forebay_fuzz::limits;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // An input that ends within an operation is shorter by that one.
    let _ = run(&mut Unstructured::new(data));
});

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut world = World::new(limits(u)?);
    while !u.is_empty() {
        world.apply(&op(u)?);
        world.check();
    }
    world.finish();
    Ok(())
}

fn op(u: &mut Unstructured<'_>) -> Result<Op> {
    let op = u.int_in_range(0..=16u8)?;
    let exec = u.int_in_range(0..=5usize)?;
    let stream = u.arbitrary()?;
    let n = u.int_in_range(1..=2000usize)?;
    Ok(match op {
        0 => Op::Start {
            piped: stream,
            size: if exec == 0 { n * 30 } else { 0 },
        },
        1 => Op::Write { exec, n },
        2 => Op::CancelWrite { exec },
        3 => Op::Close { exec },
        4 => Op::Signal { exec },
        5 => Op::Kill { exec },
        6 => Op::Take { exec, stream },
        7 => Op::Read { exec, stream, n },
        8 => Op::Discard { exec, stream },
        9 => Op::Forget { exec },
        10 => Op::Produce { exec, stream, n },
        11 => Op::Eat { exec, n },
        12 => Op::Exit { exec },
        13 => Op::HostSends { frames: exec },
        14 => Op::GuestReceives { n },
        15 => Op::GuestWrites {
            size: FRAME_MAX / 3 + n * 10,
        },
        _ => Op::HostReceives { frames: exec },
    })
}
