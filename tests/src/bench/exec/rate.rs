//! How many commands that do nothing are run per second, when so many are under way at once.

use std::time::Instant;

use anyhow::{Result, ensure};
use forebay::Vm;
use tokio::task::JoinSet;

use crate::bench::exec::Plan;
use crate::bench::guest::HELPER;
use crate::bench::round_trips::fork_exec;
use crate::bench::statistics::Samples;
use crate::bench::table::Table;
use crate::bench::within;

/// How many are under way at once: up to all that the default limits admit.
const UNDER_WAY: [usize; 4] = [1, 16, 64, 128];

/// `exec_rate`.
pub(crate) async fn table(plan: &Plan, vm: &Vm) -> Result<Table> {
    let second = plan.clock.second();
    let mut table = Table::new(
        "exec_rate",
        format!(
            "Programs that do nothing, run to their result per {second}, with so many under way at \
             once; the floor starts them and waits for them one after the other in the guest."
        ),
        &["under way", "n", "per second", "x floor"],
    );
    let floor = Samples::new("fork+exec", within(vm, fork_exec(vm, plan.burst)).await?)?;
    let floor = 1e3 / floor.median();
    for under_way in UNDER_WAY {
        let rate = within(vm, rate(vm, under_way, plan.burst)).await?;
        table.row([
            under_way.to_string().into(),
            plan.burst.to_string().into(),
            rate.into(),
            (rate / floor).into(),
        ]);
    }
    table.row([
        "floor".into(),
        plan.burst.to_string().into(),
        floor.into(),
        1.0.into(),
    ]);
    Ok(table)
}

/// Runs `total` commands, `under_way` at a time; how many per second.
async fn rate(vm: &Vm, under_way: usize, total: usize) -> Result<f64> {
    let started = Instant::now();
    let mut running = JoinSet::new();
    for begun in 0..total {
        if begun >= under_way {
            join(&mut running).await?;
        }
        running.spawn(vm.exec(HELPER, ["true"]).status());
    }
    while !running.is_empty() {
        join(&mut running).await?;
    }
    Ok(total as f64 / started.elapsed().as_secs_f64())
}

type Ended = Result<forebay::ExitStatus, forebay::ExecError>;

async fn join(running: &mut JoinSet<Ended>) -> Result<()> {
    if let Some(ended) = running.join_next().await {
        let status = ended??;
        ensure!(status.success(), "what does nothing failed: {status:?}");
    }
    Ok(())
}
