//! Whether a copy starts later for a guest with more memory.

use std::time::Instant;

use anyhow::{Context as _, Result};
use forebay::{Restore, Template, Vm};
use tempfile::TempDir;

use crate::bench::commands::round_trip;
use crate::bench::guest::Guests;
use crate::bench::snapshot::aims::Aims;
use crate::bench::snapshot::{Plan, builder, column, directory};
use crate::bench::table::Table;

/// The first instruction of the largest guest's copy over that of the smallest, by medians, is to be at
/// most this.
const GROWTH: f64 = 1.1;

/// A guest that was saved both ways.
struct Saved {
    memory_mib: u32,
    template: Template,
    directory: TempDir,
}

/// How a copy comes to be.
struct Way {
    name: &'static str,
    restore: fn(&Saved) -> Restore,
}

const WAYS: [Way; 2] = [
    Way {
        name: "snapshot",
        restore: |saved| Vm::restore(saved.directory.path()),
    },
    Way {
        name: "template",
        restore: |saved| saved.template.fork(),
    },
];

struct Start {
    first_instruction: f64,
    ready: f64,
    answered: f64,
}

/// `snapshot_memory`.
pub(super) async fn table(plan: &Plan, guests: &Guests, aims: &mut Aims) -> Result<Table> {
    let mut sources = Vec::new();
    for &memory_mib in plan.memories {
        sources.push(save(guests, memory_mib).await?);
    }
    let mut starts: Vec<_> = sources.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    // In turn; one round more, which finds files not yet mapped.
    for round in 0..=plan.starts {
        for (saved, starts) in sources.iter().zip(&mut starts) {
            for (way, starts) in WAYS.iter().zip(starts) {
                let start = start((way.restore)(saved)).await?;
                if round > 0 {
                    starts.push(start);
                }
            }
        }
    }
    let unit = plan.clock.milliseconds();
    let mut table = Table::new(
        "snapshot_memory",
        format!(
            "In {unit}, from the call of start of a copy: to the first entry into the guest, to a VM \
             that takes commands, to the result of a first one, which does nothing. The guest has so \
             much memory and uses little of it; the files are cached."
        ),
        &[
            "from",
            "memory, MiB",
            "n",
            "first instruction p50",
            "max",
            "x least memory",
            "takes commands p50",
            "first true p50",
        ],
    );
    for (at, way) in WAYS.iter().enumerate() {
        let mut least = None;
        for (saved, starts) in sources.iter().zip(&starts) {
            let starts = &starts[at];
            let first = column(way.name, starts, |start: &Start| start.first_instruction)?;
            let growth = first.median() / *least.get_or_insert(first.median());
            table.row([
                way.name.into(),
                saved.memory_mib.to_string().into(),
                starts.len().to_string().into(),
                first.median().into(),
                first.max().into(),
                growth.into(),
                column(way.name, starts, |start| start.ready)?
                    .median()
                    .into(),
                column(way.name, starts, |start| start.answered)?
                    .median()
                    .into(),
            ]);
            if Some(&saved.memory_mib) == plan.memories.last() {
                let what = format!(
                    "first instruction from a {}: {} MiB over {} MiB",
                    way.name, saved.memory_mib, plan.memories[0]
                );
                aims.growth(what, growth, GROWTH);
            }
        }
    }
    Ok(table)
}

async fn save(guests: &Guests, memory_mib: u32) -> Result<Saved> {
    let directory = directory()?;
    let vm = builder(guests).memory_mib(memory_mib).forkable(true);
    let vm = vm.start().await?;
    // Whatever a first command touches is part of what is saved.
    round_trip(&vm).await?;
    let template = vm.template().await?;
    template.save(directory.path()).await?;
    vm.close().await;
    Ok(Saved {
        memory_mib,
        template,
        directory,
    })
}

async fn start(restore: Restore) -> Result<Start> {
    let begun = Instant::now();
    let since = || begun.elapsed().as_secs_f64() * 1e3;
    let vm = restore.start().await?;
    let ready = since();
    round_trip(&vm).await?;
    let answered = since();
    let first = vm.boot_report().first_instruction;
    let first = first.context("the guest ran, so it had a first instruction")?;
    vm.close().await;
    Ok(Start {
        first_instruction: first.as_secs_f64() * 1e3,
        ready,
        answered,
    })
}
