//! Whether a restore takes longer for a larger guest: over the memory that it has, and over how much
//! of it the guest had filled and uses again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use forebay::Vm;
use forebay_tests::experiment::{Experiment, Options};
use forebay_tests::measure::commands::round_trip;
use forebay_tests::{builder, private_in_guests};
use tempfile::TempDir;

const MIB: f64 = 1_048_576.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::from_arguments();
    let (memory, filled) = if options.quick {
        (vec![64, 512, 4096], vec![0, 16])
    } else {
        (vec![64, 256, 1024, 2048, 4096], vec![0, 16, 128])
    };
    let mut snapshots = HashMap::new();
    Experiment::new("restore-vs-memory", options)
        .about(
            "A VM from a snapshot's directory whose files are cached, of a guest that had filled so \
             much of its memory with random bytes. From the call of start: to the guest's first \
             instruction, to a VM that takes commands, and to the result of a first one, which does \
             nothing. Then the guest reads all that it had filled: the working set. Last, the memory \
             that this VM holds and shares with nobody.",
        )
        .factor("memory_mib", memory)
        .factor("filled_mib", filled)
        // A quarter is what a guest can fill and still run commands.
        .only(|point| Ok(point.get::<u32>("filled_mib")? * 4 <= point.get("memory_mib")?))
        .repeat(10)
        .run(async |point, sample| {
            let (memory, filled) = (point.get("memory_mib")?, point.get("filled_mib")?);
            let snapshot = match snapshots.entry((memory, filled)) {
                Entry::Occupied(made) => made.into_mut(),
                Entry::Vacant(place) => place.insert(snapshot_of(memory, filled).await?),
            };
            let started = Instant::now();
            let vm = Vm::restore(snapshot.path()).start().await?;
            sample.duration("takes commands", started.elapsed());
            round_trip(&vm).await?;
            sample.duration("first command", started.elapsed());
            let first = vm.boot_report().first_instruction;
            sample.duration("first instruction", first.context("the guest ran")?);
            if filled > 0 {
                let read = vm.shell("cat /tmp/filled > /dev/null").status();
                let status = sample.time("working set", read).await?;
                ensure!(status.success(), "what was filled cannot be read: {status:?}");
            }
            sample.record("private memory", "MiB", private_in_guests() as f64 / MIB);
            vm.close().await;
            Ok(())
        })
        .await
}

/// A snapshot of a guest with so much memory, so much of it filled.
async fn snapshot_of(memory_mib: u32, filled_mib: u32) -> Result<TempDir> {
    let directory = tempfile::tempdir().context("make a directory for a snapshot")?;
    let vm = builder().memory_mib(memory_mib).start().await?;
    let fill = format!("head -c {filled_mib}m /dev/urandom > /tmp/filled");
    let status = vm.shell(fill).status().await?;
    ensure!(
        status.success(),
        "{filled_mib} MiB cannot be filled: {status:?}"
    );
    vm.snapshot(directory.path()).await?;
    vm.close().await;
    Ok(directory)
}
