//! What running a command costs beside others that run: none, a few, all that are admitted.

use anyhow::{Result, ensure};
use forebay_tests::builder;
use forebay_tests::experiment::{Experiment, Options};
use forebay_tests::measure::beside::Others;
use forebay_tests::measure::commands::round_trip;

/// Guest memory in MiB: more than a hundred processes with full pipes.
const MEMORY_MIB: u32 = 512;
/// Round trips that are measured in each VM.
const ROUND_TRIPS: usize = 20;
/// Not counted, before them.
const WARM_UP: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let others = [Others::Sleep, Others::Stream].map(Others::name);
    Experiment::new("latency-vs-executions", Options::from_arguments())
        .about(
            "A static program that does nothing, from the request until its result is there, while so \
             many other executions run on the same vCPU: asleep, or writing without end to a reader \
             that keeps up. 127 others and this one are all that the usual limits admit.",
        )
        .factor("running", [0, 1, 4, 16, 64, 127])
        .factor("others", others)
        .repeat(10)
        .run(async |point, sample| {
            let vm = builder().memory_mib(MEMORY_MIB).start().await?;
            let others: Others = point.get("others")?;
            let count = point.get("running")?;
            let running = others.start(&vm, count).await?;
            for _ in 0..WARM_UP {
                round_trip(&vm).await?;
            }
            for _ in 0..ROUND_TRIPS {
                let unit = sample.clock().milliseconds();
                sample.record("round trip", unit, round_trip(&vm).await?);
            }
            let still = vm.inspect().executions.executions.len();
            ensure!(still == count, "of {count} others {still} still ran at the end");
            running.end().await?;
            vm.close().await;
            Ok(())
        })
        .await
}
