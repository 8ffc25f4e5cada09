//! Lists of operations over both ends, against the naive model of the core's property test.
#![no_main]

use arbitrary::{Result, Unstructured};
use forebay_exec_proto::model::World;
use forebay_fuzz::{limits, op};

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
