//! The three points of a boot beside QEMU's boot of the same kernel.

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::bench::boot::Plan;
use crate::bench::boot::figures::Boots;
use crate::bench::boot::kernels::Kernels;
use crate::bench::guest::{Guests, MEMORY_MIB};
use crate::bench::table::{Cell, Table};

/// `boot_beside_qemu`.
pub(crate) fn table(
    plan: &Plan,
    guests: &Guests,
    kernels: &Kernels,
    runtime: &Runtime,
) -> Result<Table> {
    let mut table = Table::new(
        "boot_beside_qemu",
        format!(
            "Medians in {}, {MEMORY_MIB} MiB and one vCPU: our first instruction, PID 1 of a guest \
             without an agent (the first bytes that it sends over the port), the agent's Ready; and \
             QEMU's `microvm` from its start to the same PID 1. Taken in turn.",
            plan.clock.milliseconds()
        ),
        &[
            "kernel",
            "n",
            "first instruction",
            "PID 1",
            "ready",
            "QEMU, PID 1",
            "first / QEMU",
            "PID 1 / QEMU",
            "ready / QEMU",
        ],
    );
    for kernel in [&kernels.minimal, &kernels.debian, &kernels.bzimage] {
        let bare = kernel.bare(guests)?;
        let boots = Boots::take(plan.rounds(kernel), kernel, &bare, &guests.image, runtime)?;
        let ours = [&boots.first_instruction, &boots.pid1, &boots.ready];
        let peer = boots.peer.median();
        let mut cells = vec![
            Cell::from(kernel.name),
            boots.peer.count().to_string().into(),
        ];
        cells.extend(ours.map(|samples| Cell::from(samples.median())));
        cells.push(peer.into());
        cells.extend(ours.map(|samples| Cell::from(samples.median() / peer)));
        table.row(cells);
    }
    Ok(table)
}
