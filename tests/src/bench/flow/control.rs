//! How long a control takes while others stream or stand still, and whether streams share fairly.
//!
//! The control is a signal to a command that answers each with a byte: from the call to the byte.
//! It passes the queue of controls, the agent, the kernel's delivery, a pipe and the output's way
//! back, so all of it is an upper bound of a control's own way.

use std::time::Instant;

use anyhow::Result;
use forebay::{ExecControl, ExecReader, Limits, Signal, Vm};
use tokio::io::AsyncReadExt as _;
use tokio::runtime::Runtime;

use crate::bench::flow::latency::row;
use crate::bench::flow::{MEMORY_MIB, MIB, Plan, builder};
use crate::bench::guest::{Guests, HELPER};
use crate::bench::still::until_full;
use crate::bench::streams::{Streams, endless_writer};
use crate::bench::table::Table;
use crate::bench::{milliseconds, within};

/// Executions that stream at once.
const STREAMS: usize = 16;
/// Streams run this many signals before their share is looked at.
const WARM_UP: usize = 5;

/// `flow_control`, `flow_share`.
pub(crate) fn tables(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Vec<Table>> {
    let usual = Limits::default();
    let limits = Limits {
        // Beside as many as the defaults admit, the one that answers.
        max_executions: usual.max_executions + 1,
        ..usual
    };
    let vm = builder(guests, limits).memory_mib(MEMORY_MIB);
    let vm = runtime.block_on(vm.start())?;
    let tables = runtime.block_on(measure(plan, &vm, usual.max_executions));
    runtime.block_on(vm.close());
    tables
}

async fn measure(plan: &Plan, vm: &Vm, stalled: u32) -> Result<Vec<Table>> {
    let unit = plan.clock.milliseconds();
    let mut controls = Table::new(
        "flow_control",
        format!(
            "In {unit}. A signal to a command that answers each with a byte, until the byte is \
             read; alone, beside {STREAMS} commands whose endless output is read as fast as it \
             comes, and beside {stalled} whose output nobody reads."
        ),
        &["beside", "n", "p50", "p95", "max"],
    );
    let mut echo = Echo::start(vm).await?;
    let idle = within(vm, echo.times(plan.samples)).await?;
    row(&mut controls, "nothing".to_owned(), idle)?;

    let streams = Streams::start(vm, STREAMS).await?;
    within(vm, echo.times(WARM_UP)).await?;
    let (begun, before) = (Instant::now(), streams.counts());
    let mut times = Vec::new();
    while times.len() < plan.samples || begun.elapsed() < plan.share {
        times.extend(within(vm, echo.times(1)).await?);
    }
    let (seconds, after) = (begun.elapsed().as_secs_f64(), streams.counts());
    row(&mut controls, format!("{STREAMS} streaming"), times)?;
    streams.end()?;
    let rates: Vec<f64> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| (after - before) as f64 / MIB as f64 / seconds)
        .collect();

    let mut writers = Vec::new();
    for _ in 0..stalled {
        writers.push(endless_writer(vm).await?);
    }
    until_full(vm, stalled as usize).await?;
    let times = within(vm, echo.times(plan.samples)).await?;
    row(&mut controls, format!("{stalled} stalled"), times)?;
    Ok(vec![controls, shares(&rates, seconds)])
}

/// A command that answers signals.
struct Echo {
    control: ExecControl,
    answers: ExecReader,
}

impl Echo {
    async fn start(vm: &Vm) -> Result<Self> {
        let number = Signal::USR1.number().to_string();
        let command = vm.exec(HELPER, ["echo-signal", &number]).spawn().await?;
        let control = command.control();
        let mut echo = Self {
            control,
            answers: command.split().stdout,
        };
        echo.answer().await?;
        Ok(echo)
    }

    async fn answer(&mut self) -> Result<()> {
        self.answers.read_exact(&mut [0]).await?;
        Ok(())
    }

    async fn times(&mut self, count: usize) -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let started = Instant::now();
            self.control.signal(Signal::USR1).await?;
            self.answer().await?;
            times.push(milliseconds(started));
        }
        Ok(times)
    }
}

fn shares(rates: &[f64], seconds: f64) -> Table {
    let mut table = Table::new(
        "flow_share",
        format!(
            "What each of {STREAMS} endless writers got of the port over {seconds:.1} s, read as fast \
             as it comes; Jain's index is 1 when all got the same, 1/{STREAMS} when one got all."
        ),
        &[
            "streams",
            "MiB/s together",
            "MiB/s least",
            "MiB/s most",
            "Jain",
        ],
    );
    table.row([
        rates.len().to_string().into(),
        rates.iter().sum::<f64>().into(),
        rates.iter().copied().fold(f64::INFINITY, f64::min).into(),
        rates.iter().copied().fold(0.0, f64::max).into(),
        jain(rates).into(),
    ]);
    table
}

/// Jain's index of fairness.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
#[path = "control_test.rs"]
mod tests;
