//! What is measured, and how.
//!
//! | module | owns |
//! |---|---|
//! | `statistics` | samples, their least and their median |
//! | `report` | a figure, its aim, the table |
//! | `table` | rows of figures, for people and as JSON |
//! | `streams` | endless writers, and a thread that reads them |
//! | `guest` | the guests that are booted |
//! | `port` | what a bare guest can be asked over its port |
//! | `bare` | our machine with a bare guest and a counter for a gate |
//! | `peer` | QEMU with the same bare guest |
//! | `boot`, `round_trips`, `rates`, `memory` | the figures |
//! | `flow` | what the flow contract costs, and its bounds |
//! | `exec` | what running a command costs: alone, beside others, on a terminal |
//!
//! **Bare guest.** The same kernel and initramfs as everywhere, but PID 1 is a small program that
//! serves the port directly. Ours and the peer's differ in nothing but the machine around them.
//!
//! **Interleaving.** Where two things are compared, their samples are taken in turn (A B A B) within
//! one run, so that whatever else the host does hits both.
//!
//! **Aims** are printed beside the figures. Missing one is no failure of the program: a loaded host
//! must not turn into an error.

mod bare;
mod boot;
pub(crate) mod exec;
pub(crate) mod flow;
mod guest;
mod memory;
mod peer;
mod port;
mod rates;
mod report;
mod round_trips;
mod statistics;
mod streams;
mod table;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use forebay::Vm;
use tokio::runtime::{Builder, Runtime};

use guest::Guests;
pub(crate) use memory::host_one_vm;
pub(crate) use peer::Peer;
pub(crate) use report::{Figure, table};
pub(crate) use table::Table;

/// How time passes where we run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Clock {
    /// As everywhere.
    Wall,
    /// One nanosecond per instruction that the emulated host and its guests execute.
    Instructions,
}

impl Clock {
    /// The unit of times.
    fn milliseconds(self) -> &'static str {
        match self {
            Self::Wall => "ms",
            Self::Instructions => "virtual ms",
        }
    }

    /// What rates are per.
    fn second(self) -> &'static str {
        match self {
            Self::Wall => "second",
            Self::Instructions => "virtual second",
        }
    }
}

/// What to measure and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) clock: Clock,
    /// Boots and round trips of one processor.
    pub(crate) times: bool,
    /// What needs two processors to be told, and memory.
    pub(crate) rates: bool,
    /// Boots of each kind.
    boots: usize,
    /// Commands run one after the other.
    commands: usize,
    /// Bytes echoed one after the other.
    echoes: usize,
    /// Transfers of each kind.
    transfers: usize,
    /// Bytes of each transfer.
    bytes: u64,
    /// Processes whose memory is looked at.
    processes: usize,
}

impl Plan {
    /// The usual numbers, or fewer for a quick look.
    pub(crate) fn new(clock: Clock, times: bool, rates: bool, quick: bool) -> Self {
        let (boots, commands, echoes) = if quick { (2, 10, 50) } else { (5, 40, 200) };
        let (transfers, mib, processes) = if quick { (3, 8, 1) } else { (9, 32, 3) };
        Self {
            clock,
            times,
            rates,
            boots,
            commands,
            echoes,
            transfers,
            bytes: mib << 20,
            processes,
        }
    }
}

/// Takes all figures of the plan, saying on standard error what it is at.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Figure>> {
    let guests = Guests::find()?;
    let runtime = runtime()?;
    let mut figures = Vec::new();
    if plan.times {
        say("boots");
        figures.extend(boot::figures(plan, &guests, &runtime)?);
        say("round trips");
        figures.extend(round_trips::figures(plan, &guests, &runtime)?);
    }
    if plan.rates {
        say("rates");
        figures.extend(rates::figures(plan, &guests, &runtime)?);
        say("memory");
        figures.push(memory::figure(plan, &guests)?);
    }
    Ok(figures)
}

/// The application's side: one thread, ours, that polls what we wait for.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Far beyond any sample: what takes so long is not measured but reported.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something that a VM does; if it takes too long, the error has the VM's state.
async fn within<T>(vm: &Vm, what: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, what).await {
        Ok(done) => done,
        Err(_) => bail!(
            "no end within {PATIENCE:?}; the VM: {}; its console: {}",
            serde_json::to_string(&vm.inspect())?,
            vm.console().last_lines(20)
        ),
    }
}

/// Milliseconds since then.
fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn say(what: &str) {
    eprintln!("measuring {what} ...");
}
