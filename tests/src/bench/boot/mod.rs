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
//! not count: it finds files not yet read. In the rig all files are in memory, and by counted
//! instructions boots repeat to 1 %: there a quick look boots the distribution's kernel once, which
//! counts.

mod beside_qemu;
mod figures;
mod huge_pages;
mod kernels;
mod parts;
mod sizes;

use anyhow::{Result, ensure};
use forebay_tests::in_rig;

use crate::bench::guest::Guests;
use crate::bench::table::Table;
use crate::bench::{Clock, runtime, say};

pub(crate) use figures::figures;
use kernels::{Kernel, Kernels};

/// How much of each is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    clock: Clock,
    /// Boots of each kind.
    boots: usize,
    quick: bool,
}

impl Plan {
    /// The usual numbers, or fewer for a quick look.
    pub(crate) fn new(clock: Clock, quick: bool) -> Self {
        Self {
            clock,
            boots: if quick { 2 } else { 5 },
            quick,
        }
    }

    /// How often a kernel is booted, and how many of those boots count: the last ones.
    fn rounds(&self, kernel: &Kernel) -> Rounds {
        if self.quick && self.clock == Clock::Instructions && kernel.long {
            Rounds { all: 1, count: 1 }
        } else {
            Rounds::after_one(self.boots)
        }
    }
}

/// See [`Plan::rounds`].
#[derive(Debug, Clone, Copy)]
struct Rounds {
    all: usize,
    count: usize,
}

impl Rounds {
    /// So many, after one that does not count.
    fn after_one(count: usize) -> Self {
        Self {
            all: count + 1,
            count,
        }
    }
}

/// Takes all figures of the plan, saying on standard error what it is at, and gives each table as soon
/// as it is whole.
pub(crate) fn run(plan: &Plan, mut take: impl FnMut(Table)) -> Result<()> {
    let guests = Guests::find()?;
    let kernels = Kernels::find(&guests.image)?;
    let runtime = runtime()?;
    let mut missing = Vec::new();
    // A table that cannot be taken is no reason to lose the others.
    let mut all_of = |what: &'static str, table: &dyn Fn() -> Result<Table>| {
        say(what);
        match table() {
            Ok(table) => take(table),
            Err(why) => {
                eprintln!("{what}: {why:#}");
                missing.push(what);
            }
        }
    };
    // Wall time in the emulated host is the emulator's, and means nothing for one processor.
    if plan.clock == Clock::Instructions || !in_rig() {
        all_of("boots of all kernels", &|| {
            sizes::kernels(plan, &guests, &kernels, &runtime)
        });
        all_of("boots beside QEMU's", &|| {
            beside_qemu::table(plan, &guests, &kernels, &runtime)
        });
        all_of("boots over memory", &|| {
            sizes::memory(plan, &guests, &kernels, &runtime)
        });
        all_of("boots over sizes of images", &|| {
            sizes::images(plan, &guests, &kernels, &runtime)
        });
        all_of("boots on huge pages", &|| {
            huge_pages::table(plan, &guests, &runtime)
        });
    }
    all_of("boots over vCPUs", &|| {
        sizes::vcpus(plan, &guests, &kernels, &runtime)
    });
    ensure!(missing.is_empty(), "not taken: {}", missing.join(", "));
    Ok(())
}
