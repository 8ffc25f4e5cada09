//! `forebay-bench snapshot`: what it costs to have a VM stand still, to save it, and to start copies.
//!
//! | module | owns |
//! |---|---|
//! | `pause` | how long it takes until all stands still, and until it is let go on |
//! | `window` | for how long a VM stands still for a template or a snapshot |
//! | `memory` | whether a copy starts later for a guest with more memory |
//! | `first` | from the call to the first command's result, and what the first touch of pages costs |
//! | `sizes` | files, and the memory of each copy |
//! | `aims` | where figures should be |
//!
//! VMs of one vCPU. Missing an aim is no failure of the program.

mod aims;
mod first;
mod memory;
mod pause;
mod sizes;
mod window;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use forebay::{Vm, VmBuilder};
use tempfile::TempDir;

use crate::bench::beside::{Others, Running};
use crate::bench::guest::{Guests, MEMORY_MIB};
use crate::bench::statistics::Samples;
use crate::bench::table::Table;
use crate::bench::{Clock, runtime, say};
use aims::Aims;

const MIB: f64 = 1_048_576.0;
/// Commands that write without end, where a VM is not idle.
const STREAMS: usize = 8;
/// Far beyond what the agent takes to freeze them.
const QUIESCE_WITHIN: Duration = Duration::from_secs(30);

/// How much of each is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    clock: Clock,
    /// Pauses of each kind.
    pauses: usize,
    /// VMs saved in each way.
    windows: usize,
    /// Copies started of each kind.
    starts: usize,
    /// Guest memories that copies are compared over, in MiB; ascending.
    memories: &'static [u32],
    /// Copies that are alive at once.
    clones: usize,
}

impl Plan {
    /// The usual numbers, or fewer for a quick look.
    pub(crate) fn new(clock: Clock, quick: bool) -> Self {
        let (pauses, windows, starts, clones) = if quick {
            (20, 2, 3, 4)
        } else {
            (100, 4, 8, 10)
        };
        Self {
            clock,
            pauses,
            windows,
            starts,
            memories: if quick {
                &[64, 1024]
            } else {
                &[64, 256, 1024, 4096]
            },
            clones,
        }
    }
}

/// Takes all figures of the plan, saying on standard error what it is at.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Table>> {
    let guests = Guests::find()?;
    let mut aims = Aims::new(plan.clock);
    runtime()?.block_on(async {
        say("pauses");
        let pauses = pause::table(plan, &guests).await?;
        say("windows of snapshots");
        let windows = window::table(plan, &guests, &mut aims).await?;
        say("starts over memory");
        let memories = memory::table(plan, &guests, &mut aims).await?;
        say("first commands");
        let [firsts, touches] = first::tables(plan, &guests, &mut aims).await?;
        say("sizes");
        let sizes = sizes::table(plan, &guests).await?;
        Ok(vec![
            pauses,
            windows,
            memories,
            firsts,
            touches,
            sizes,
            aims.table(),
        ])
    })
}

/// A VM with the helper program.
fn builder(guests: &Guests) -> VmBuilder {
    Vm::builder()
        .image(guests.with_helper.clone())
        .memory_mib(MEMORY_MIB)
}

/// Writers without end that are read as fast as they write; `None` for none.
async fn streaming(vm: &Vm, count: usize) -> Result<Option<Running>> {
    Ok(match count {
        0 => None,
        count => Some(Others::Stream.start(vm, count).await?),
    })
}

/// For tables.
fn beside(streams: usize) -> String {
    match streams {
        0 => "nothing".to_owned(),
        count => format!("{count} {}", Others::Stream.name()),
    }
}

/// A place for one snapshot.
fn directory() -> Result<TempDir> {
    tempfile::tempdir().context("make a directory for a snapshot")
}

/// Milliseconds since then; the next lap begins.
fn lap(since: &mut Instant) -> f64 {
    let now = Instant::now();
    let spent = now.duration_since(*since).as_secs_f64() * 1e3;
    *since = now;
    spent
}

/// One quantity of many samples.
fn column<T>(what: &str, samples: &[T], of: impl Fn(&T) -> f64) -> Result<Samples> {
    Samples::new(what, samples.iter().map(of).collect())
}
