//! What is measured, and how.
//!
//! | module | owns |
//! |---|---|
//! | `report` | a figure, its aim, the table |
//! | `guest` | the guests that are booted |
//! | `port` | what a bare guest can be asked over its port |
//! | `bare` | our machine with a bare guest and a counter for a gate |
//! | `peer` | QEMU with the same bare guest |
//! | `boot`, `round_trips`, `rates`, `memory` | the figures; `boot` also takes boots apart |
//! | `flow` | what the flow contract costs, and its bounds |
//! | `exec` | what running a command costs: alone, beside others, on a terminal |
//! | `snapshot` | what pausing, saving and copying a VM costs |
//!
//! What experiments need as well is in `forebay_tests::measure`: samples, tables, the work that guests
//! are given.
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
pub(crate) mod boot;
pub(crate) mod exec;
pub(crate) mod flow;
mod guest;
mod memory;
mod peer;
mod port;
mod rates;
mod report;
mod round_trips;
pub(crate) mod snapshot;

use anyhow::Result;
pub(crate) use forebay_tests::measure::{Clock, table::Table};
use forebay_tests::measure::{
    PATIENCE, beside, commands, milliseconds, runtime, statistics, still, streams, table, within,
};

use guest::Guests;
pub(crate) use memory::host_one_vm;
pub(crate) use peer::Peer;
pub(crate) use report::{Figure, table};

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

fn say(what: &str) {
    eprintln!("measuring {what} ...");
}
