//! An experiment of one's own, to begin from: how long a boot takes, and how long the first command,
//! with how much memory and how many processors.
//!
//! `cargo xtask experiment my_experiment`; docs/experiments.md says how to write another.

use anyhow::Result;
use forebay_tests::builder;
use forebay_tests::experiment::{Experiment, Options};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    Experiment::new("my_experiment", Options::from_arguments())
        .about("A boot to an agent that takes commands, then the first command, until its result.")
        .factor("memory_mib", [64, 128, 256, 512])
        .factor("cpus", [1, 2])
        .repeat(10)
        .run(async |point, sample| {
            let vm = builder()
                .memory_mib(point.get("memory_mib")?)
                .cpus(point.get("cpus")?);
            let vm = sample.time("boot", vm.start()).await?;
            sample
                .time("first command", vm.shell("true").status())
                .await?;
            vm.close().await;
            Ok(())
        })
        .await
}
