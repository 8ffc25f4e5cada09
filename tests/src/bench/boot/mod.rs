//! What a boot costs: three figures of the usual benchmark, and `forebay-bench boot`, which takes
//! boots apart.
//!
//! | module | owns |
//! |---|---|
//! | `figures` | three points of a boot, beside QEMU's |
//! | `kernels` | the kernels that are booted |
//! | `parts` | one boot, and what its time went into |
//! | `sizes` | the same over memory, vCPUs, kernels and sizes of images |
//! | `beside_qemu` | the three points of each kernel |
//! | `huge_pages` | what is behind a guest's memory |
//!
//! **Turns.** What stands in one table is booted in turn, once per round, and the first round does
//! not count: it finds files not yet read.

mod beside_qemu;
mod figures;
mod huge_pages;
mod kernels;
mod parts;
mod sizes;

use anyhow::Result;
use forebay_tests::in_rig;

use crate::bench::guest::Guests;
use crate::bench::table::Table;
use crate::bench::{Clock, runtime, say};

pub(crate) use figures::figures;
use kernels::Kernels;

/// How much of each is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    clock: Clock,
    /// Boots of each kind.
    boots: usize,
}

impl Plan {
    /// The usual numbers, or fewer for a quick look.
    pub(crate) fn new(clock: Clock, quick: bool) -> Self {
        Self {
            clock,
            boots: if quick { 2 } else { 5 },
        }
    }
}

/// Takes all figures of the plan, saying on standard error what it is at, and gives each table as soon
/// as it is whole.
pub(crate) fn run(plan: &Plan, mut take: impl FnMut(Table)) -> Result<()> {
    let guests = Guests::find()?;
    let kernels = Kernels::find(&guests.image)?;
    let runtime = runtime()?;
    // Wall time in the emulated host is the emulator's, and means nothing for one processor.
    if plan.clock == Clock::Instructions || !in_rig() {
        say("boots of all kernels");
        take(sizes::kernels(plan, &guests, &kernels, &runtime)?);
        say("boots beside QEMU's");
        take(beside_qemu::table(plan, &guests, &kernels, &runtime)?);
        say("boots over memory");
        take(sizes::memory(plan, &guests, &kernels, &runtime)?);
        say("boots over sizes of images");
        take(sizes::images(plan, &guests, &kernels, &runtime)?);
        say("boots on huge pages");
        take(huge_pages::table(plan, &guests, &runtime)?);
    }
    say("boots over vCPUs");
    take(sizes::vcpus(plan, &guests, &kernels, &runtime)?);
    Ok(())
}
