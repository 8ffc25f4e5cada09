//! What a window buys and what it costs: the rate of a command's stdout over `output_limit` and chunk
//! size, with the memory that it makes the host hold.

use std::time::Duration;

use anyhow::Result;
use forebay::{Limits, Vm};
use forebay_tests::experiment::{Experiment, Options, Point, Sample};
use forebay_tests::measure::commands::{round_trip, stdout_rate};
use forebay_tests::measure::still::until_full;
use forebay_tests::measure::streams::endless_writer;
use forebay_tests::{MemoryWatch, builder, resident_in_guests};

/// Guest memory in MiB.
const MEMORY_MIB: u32 = 256;
/// What the command writes at a time.
const BLOCK: usize = 64 << 10;
/// Bytes of a frame's header, which makes a chunk's frame a power of two.
const HEADER: u32 = 16;
/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const MIB: f64 = 1_048_576.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::from_arguments();
    let bytes = if options.quick { 4 << 20 } else { 16 << 20 };
    Experiment::new("throughput-vs-window", options)
        .about(
            "A command writes to its stdout 64 KiB at a time and the application reads as fast as it \
             can: the rate from the request to the last byte, and by how much the host's memory beyond \
             the guest's grew meanwhile. Then a command writes without end and nobody reads: by how \
             much it had grown when the window was full. Last, how much of the guest's memory is \
             resident on the host. Each sample is a process of its own.",
        )
        .factor("output_limit_kib", [64, 256, 1024, 4096])
        .factor("chunk_kib", [4, 16, 32])
        .repeat(5)
        .apart()
        .run(async |point, sample| {
            let vm = builder()
                .memory_mib(MEMORY_MIB)
                .exec_limits(limits(point)?)
                .start()
                .await?;
            // What an execution touches for the first time is none of a window's memory.
            round_trip(&vm).await?;
            let memory = MemoryWatch::start(LOOK_EVERY);
            read(&vm, bytes, sample).await?;
            unread(&vm).await?;
            sample.record("host memory, unread", "MiB", memory.grown() as f64 / MIB);
            sample.record("guest memory", "MiB", resident_in_guests() as f64 / MIB);
            vm.close().await;
            Ok(())
        })
        .await
}

fn limits(point: &Point) -> Result<Limits> {
    Ok(Limits {
        output_limit: point.get::<u32>("output_limit_kib")? << 10,
        output_chunk_size: (point.get::<u32>("chunk_kib")? << 10) - HEADER,
        ..Limits::default()
    })
}

async fn read(vm: &Vm, bytes: u64, sample: &mut Sample) -> Result<()> {
    let memory = MemoryWatch::start(LOOK_EVERY);
    // The first transfer touches guest memory that the host has not given yet.
    stdout_rate(vm.client(), bytes, BLOCK).await?;
    let rate = stdout_rate(vm.client(), bytes, BLOCK).await?;
    sample.record("stdout", "MiB/s", rate);
    sample.record("host memory, read", "MiB", memory.grown() as f64 / MIB);
    Ok(())
}

/// Has a command write until its window is full, and end.
async fn unread(vm: &Vm) -> Result<()> {
    let mut writer = endless_writer(vm).await?;
    until_full(vm, 1).await?;
    writer.kill();
    writer.wait().await?;
    Ok(())
}
