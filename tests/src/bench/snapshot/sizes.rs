//! What a snapshot takes on the disk, and each copy in memory.

use anyhow::{Context as _, Result};
use forebay::Survivors;

use crate::bench::commands::round_trip;
use crate::bench::guest::Guests;
use crate::bench::snapshot::{MIB, Plan, STREAMS, builder, column, directory};
use crate::bench::still::until_full;
use crate::bench::streams::endless_writer;
use crate::bench::table::Table;
use crate::bench::within;

/// `snapshot_sizes`.
pub(super) async fn table(plan: &Plan, guests: &Guests) -> Result<Table> {
    let mut table = Table::new(
        "snapshot_sizes",
        "A snapshot's files in a directory, in KiB and MiB: what the memory file pretends to be, and \
         what it takes. Then copies of the same template, all alive at once, their executions killed: \
         the memory that each has of its own after a command that does nothing, in MiB.",
        &[
            "executions",
            "state, KiB",
            "memory apparent, MiB",
            "memory allocated, MiB",
            "copies",
            "own p50",
            "own max",
        ],
    );
    for writers in [0, STREAMS] {
        let place = directory()?;
        let vm = builder(guests).forkable(true).start().await?;
        round_trip(&vm).await?;
        let mut unread = Vec::new();
        for _ in 0..writers {
            unread.push(endless_writer(&vm).await?);
        }
        let mut executions = "none".to_owned();
        if writers > 0 {
            let held = within(&vm, until_full(&vm, writers)).await?;
            executions = format!("{writers}: {held}");
        }
        let template = vm.template().await?;
        let report = template.save(place.path()).await?;
        drop(unread);
        vm.close().await;
        let memory = place.path().join("memory");
        let apparent = memory.metadata().context("look at the memory file")?.len();

        let mut copies = Vec::new();
        for _ in 0..plan.clones {
            let copy = template.fork().survivors(Survivors::Kill).start().await?;
            round_trip(&copy).await?;
            copies.push(copy);
        }
        let mut owned = Vec::new();
        for copy in &copies {
            owned.push(copy.memory_usage()?.private);
        }
        let own = column("memory of a copy", &owned, |bytes| *bytes as f64 / MIB)?;
        table.row([
            executions.into(),
            (report.state_bytes as f64 / 1024.0).into(),
            (apparent as f64 / MIB).into(),
            (report.memory_bytes as f64 / MIB).into(),
            copies.len().to_string().into(),
            own.median().into(),
            own.max().into(),
        ]);
        for copy in copies {
            copy.close().await;
        }
    }
    Ok(table)
}
