//! How long a write takes until it is handed over, and an end until it is told.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use forebay::{Limits, Signal, Stdin, Vm};
use tokio::runtime::Runtime;

use crate::bench::flow::{Plan, builder};
use crate::bench::guest::{Guests, HELPER, MEMORY_MIB};
use crate::bench::statistics::Samples;
use crate::bench::table::Table;
use crate::bench::{milliseconds, within};

/// Sizes of writes: a line, a chunk, a pipe's capacity.
const WRITES: [usize; 3] = [64, 16 << 10, 64 << 10];

/// `flow_latency`.
pub(crate) fn table(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Table> {
    let unit = plan.clock.milliseconds();
    let mut table = Table::new(
        "flow_latency",
        format!(
            "In {unit}. A write to the stdin of a command that reads as fast as it can, one after \
             the other, until each was handed over; and a kill of a command that sleeps, until its \
             end is told."
        ),
        &["what", "n", "p50", "p95", "max"],
    );
    let vm = builder(guests, Limits::default()).memory_mib(MEMORY_MIB);
    let vm = runtime.block_on(vm.start())?;
    for size in WRITES {
        let times = runtime.block_on(within(&vm, writes(&vm, size, plan.samples)))?;
        row(&mut table, format!("write of {size} bytes"), times)?;
    }
    let ends = runtime.block_on(within(&vm, ends(&vm, plan.samples)))?;
    row(&mut table, "kill until the end is told".to_owned(), ends)?;
    runtime.block_on(vm.close());
    Ok(table)
}

/// A row with count, median, tail and greatest of these times.
pub(crate) fn row(table: &mut Table, what: String, times: Vec<f64>) -> Result<()> {
    let times = Samples::new(&what, times)?;
    table.row([
        what.into(),
        times.count().to_string().into(),
        times.percentile(50).into(),
        times.percentile(95).into(),
        times.max().into(),
    ]);
    Ok(())
}

async fn writes(vm: &Vm, size: usize, count: usize) -> Result<Vec<f64>> {
    let drain = vm.exec(HELPER, ["drain"]).stdin(Stdin::piped());
    let mut drain = drain.spawn().await?;
    let stdin = drain.take_stdin().context("stdin is piped")?;
    let data = Bytes::from(vec![0x5a; size]);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        stdin.write(data.clone()).await?;
        times.push(milliseconds(started));
    }
    stdin.close().await?;
    drain.wait().await?;
    Ok(times)
}

async fn ends(vm: &Vm, count: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let mut command = vm.exec("sleep", ["100000"]).spawn().await?;
        let started = Instant::now();
        command.kill();
        let status = command.wait().await?;
        times.push(milliseconds(started));
        ensure!(
            status.signal() == Some(Signal::KILL),
            "killed, but {status:?}"
        );
    }
    Ok(times)
}
