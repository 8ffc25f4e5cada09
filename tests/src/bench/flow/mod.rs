//! `forebay-bench flow`: what the flow contract costs, and that its bounds hold.
//!
//! | module | owns |
//! |---|---|
//! | `bounds` | the memory bounds as a table; each case in a process of its own |
//! | `stalled` | such a process: executions that stand still, and what is held meanwhile |
//! | `look` | what memory is held in the guest at a moment |
//! | `control` | a signal's way, idle and under load; the share of each stream |
//! | `throughput` | rates over windows, chunks and write sizes, with their price |
//! | `price` | processor time and frames of a transfer |
//! | `latency` | one write, one end |
//! | `delayed`, `relay` | a client of the attach socket that is far away |
//!
//! Bounds are not times: a broken one is a failure of the program. Everything else is printed.

mod bounds;
mod control;
mod delayed;
mod latency;
mod look;
mod price;
mod relay;
mod stalled;
mod throughput;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use forebay::{Limits, Vm, VmBuilder};

use crate::bench::guest::Guests;
use crate::bench::table::Table;
use crate::bench::{Clock, runtime, say};
pub(crate) use stalled::{Case, stand_still};

/// Guest memory in MiB: more than a hundred processes with full pipes.
const MEMORY_MIB: u32 = 512;
const MIB: u64 = 1 << 20;

/// What can be measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Memory of executions that stand still; by wall clock only.
    Bounds,
    /// A signal's way, and the share of each stream.
    Controls,
    /// Rates of stdout, and the copies beside it.
    Stdout,
    /// Rates of stdin.
    Stdin,
    /// One write, one end.
    Latencies,
    /// Clients that are far away; by wall clock only.
    Delayed,
}

/// How much of each is measured.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Empty for all.
    only: Vec<Part>,
    clock: Clock,
    quick: bool,
    /// How long executions stand still while memory is watched.
    stall: Duration,
    /// Window of each execution whose chunks are one byte, in output units.
    tiny_window: u32,
    /// How long the slow reader reads.
    slow_read: Duration,
    /// Signals, writes and ends of each kind.
    samples: usize,
    /// How long streams share at least.
    share: Duration,
    /// Transfers of each kind.
    transfers: usize,
    /// Bytes of each transfer.
    bytes: u64,
}

impl Plan {
    /// The usual numbers, or fewer for a quick look.
    pub(crate) fn new(clock: Clock, quick: bool) -> Self {
        let second = Duration::from_secs(1);
        let (stall, slow_read, share) = if quick { (5, 5, 2) } else { (60, 30, 8) };
        // A second of counted instructions takes the emulator many.
        let share = match clock {
            Clock::Wall => second * share,
            Clock::Instructions => second * share / 10,
        };
        // Enough that starting the command, a virtual millisecond, does not count.
        let (samples, transfers, mib) = if quick { (30, 2, 16) } else { (200, 5, 32) };
        Self {
            only: Vec::new(),
            clock,
            quick,
            stall: second * stall,
            tiny_window: if quick { 64 << 10 } else { 1 << 20 },
            slow_read: second * slow_read,
            samples,
            share,
            transfers,
            bytes: mib * MIB,
        }
    }

    /// Measures these parts; all if none is named.
    pub(crate) fn only(mut self, parts: &[Part]) -> Self {
        self.only = parts.to_vec();
        self
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Whether something is left that is measured by this clock.
    fn has_work(&self, wall: bool) -> bool {
        let by_wall_only = |part: &Part| matches!(part, Part::Bounds | Part::Delayed);
        wall || self.only.is_empty() || !self.only.iter().all(by_wall_only)
    }
}

/// Measures all that the clock can tell, saying on standard error what it is at, and shows each table as
/// soon as it is there: what was measured is not lost with what comes later. Gives what is wrong, if a
/// bound was broken.
pub(crate) fn run(plan: &Plan, mut show: impl FnMut(Table)) -> Result<Option<String>> {
    let guests = Guests::find()?;
    let runtime = runtime()?;
    let mut broken = None;
    let wall = plan.clock == Clock::Wall;
    if !plan.has_work(wall) {
        bail!("memory bounds and delayed clients are measured by wall clock: --clock wall");
    }
    if wall && plan.wants(Part::Bounds) {
        say("memory bounds");
        let (table, wrong) = bounds::table(plan)?;
        show(table);
        broken = wrong;
    }
    if plan.wants(Part::Controls) {
        say("controls and shares");
        let tables = control::tables(plan, &guests, &runtime)?;
        tables.into_iter().for_each(&mut show);
    }
    if plan.wants(Part::Stdout) || plan.wants(Part::Stdin) {
        say("throughput");
        let tables = throughput::tables(plan, &guests, &runtime)?;
        tables.into_iter().for_each(&mut show);
    }
    if plan.wants(Part::Latencies) {
        say("latencies");
        show(latency::table(plan, &guests, &runtime)?);
    }
    if wall && plan.wants(Part::Delayed) {
        say("delayed clients");
        show(delayed::table(plan, &guests, &runtime)?);
    }
    Ok(broken)
}

/// A VM with the helper program and these limits.
fn builder(guests: &Guests, limits: Limits) -> VmBuilder {
    Vm::builder()
        .image(guests.with_helper.clone())
        .exec_limits(limits)
}

/// What a script prints, trimmed.
async fn answer(vm: &Vm, script: &str) -> Result<String> {
    let done = vm.shell(script).output().await?;
    if !done.status().success() {
        bail!("{script:?} failed: {:?}", done.status());
    }
    let text = done.stdout_str().context("it prints text")?;
    Ok(text.trim().to_owned())
}
