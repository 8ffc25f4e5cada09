//! Three ways to a VM that takes commands: a boot, a snapshot's directory, a template in memory.

use std::time::Instant;

use anyhow::{Context as _, Result};
use forebay::Vm;
use forebay_tests::experiment::{Experiment, Options, Sample};
use forebay_tests::measure::commands::round_trip;
use forebay_tests::{builder, private_in_guests};

/// Guest memory in MiB.
const MEMORY_MIB: u32 = 256;
const MIB: f64 = 1_048_576.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir().context("make a directory for a snapshot")?;
    let source = builder()
        .memory_mib(MEMORY_MIB)
        .forkable(true)
        .start()
        .await?;
    // Whatever a first command touches is part of what is saved.
    round_trip(&source).await?;
    let template = source.template().await?;
    source.close().await;
    // The same moment, so that both copies have the same to touch.
    template.save(directory.path()).await?;

    Experiment::new("cold-vs-restore-vs-fork", Options::from_arguments())
        .about(
            "A VM with 256 MiB from a boot of its kernel, from a snapshot's directory whose files are \
             cached, and from a template in memory. From the call of start: to the guest's first \
             instruction, to a VM that takes commands, and to the result of a first one, which does \
             nothing. Then the memory that this VM holds and shares with nobody.",
        )
        .factor("from", ["boot", "snapshot", "template"])
        .repeat(20)
        .run(async |point, sample| {
            let started = Instant::now();
            let vm = match point.get::<String>("from")?.as_str() {
                "boot" => builder().memory_mib(MEMORY_MIB).start().await?,
                "snapshot" => Vm::restore(directory.path()).start().await?,
                _ => template.fork().start().await?,
            };
            measure(&vm, started, sample).await?;
            vm.close().await;
            Ok(())
        })
        .await
}

async fn measure(vm: &Vm, started: Instant, sample: &mut Sample) -> Result<()> {
    sample.duration("takes commands", started.elapsed());
    round_trip(vm).await?;
    sample.duration("first command", started.elapsed());
    let first = vm.boot_report().first_instruction;
    sample.duration("first instruction", first.context("the guest ran")?);
    sample.record("private memory", "MiB", private_in_guests() as f64 / MIB);
    Ok(())
}
