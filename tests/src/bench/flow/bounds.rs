//! The memory bounds as a table, each case measured by a process of its own.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum as _;

use crate::bench::flow::stalled::{Bound, Case};
use crate::bench::flow::{MIB, Plan};
use crate::bench::say;
use crate::bench::table::Table;

/// Tells this program to be the process of a case.
const STAND_STILL: &str = "--stand-still";

/// `flow_memory`, and which bounds are broken.
pub(crate) fn table(plan: &Plan) -> Result<(Table, Option<String>)> {
    let mut table = Table::new(
        "flow_memory",
        format!(
            "The most by which resident memory grew, from before the executions began until they \
             had stood still at full window for {:?} (the slow reader: had read for {:?}). Guest \
             memory is left out on the host. While all stood still one more was refused on the \
             spot, and a kill passed. One-byte chunks are forced by an `output_chunk_size` of 1, \
             with an `output_limit` of {} KiB. A broken bound is a failure.",
            plan.stall,
            plan.slow_read,
            plan.tiny_window >> 10
        ),
        &["memory", "grown, MiB", "at most, MiB", "", "held meanwhile"],
    );
    let mut broken = Vec::new();
    for case in Case::value_variants() {
        for bound in in_a_process_of_its_own(*case, plan)? {
            broken.extend(judge(bound, &mut table));
        }
    }
    let broken = (!broken.is_empty()).then(|| format!("bounds are broken: {broken:?}"));
    Ok((table, broken))
}

/// Adds a row; what is broken, if it is.
fn judge(bound: Bound, table: &mut Table) -> Option<String> {
    let kept = bound.grown <= bound.at_most;
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    table.row([
        bound.what.as_str().into(),
        mib(bound.grown).into(),
        mib(bound.at_most).into(),
        if kept { "kept" } else { "broken" }.into(),
        bound.held.into(),
    ]);
    (!kept).then_some(bound.what)
}

fn in_a_process_of_its_own(case: Case, plan: &Plan) -> Result<Vec<Bound>> {
    let name = case.to_possible_value().context("every case has a name")?;
    say(&format!("memory bounds: {}", name.get_name()));
    let myself = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(myself);
    command.args([STAND_STILL, name.get_name()]);
    if plan.quick {
        command.arg("--quick");
    }
    let done = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run this program again")?;
    if !done.status.success() {
        bail!("the process for {name:?} failed: {}", done.status);
    }
    serde_json::from_slice(&done.stdout).context("understand the process of a case")
}

#[cfg(test)]
#[path = "bounds_test.rs"]
mod tests;
