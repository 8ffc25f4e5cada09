//! A command that does nothing, from the call to its result, over what the guest alone needs to
//! start that program and wait for it.

use anyhow::Result;
use forebay::Vm;

use crate::bench::beside::Others;
use crate::bench::commands::round_trip;
use crate::bench::exec::{Plan, TURN, WARM_UP, cells};
use crate::bench::round_trips::fork_exec;
use crate::bench::statistics::Samples;
use crate::bench::table::Table;
use crate::bench::{say, within};

/// How many others run.
const RUNNING: [usize; 3] = [1, 16, 64];

/// The idle round trip over the floor, by medians, is to be at most this.
const OVER_FLOOR: f64 = 1.6;
/// The idle tail over the idle median is to be at most this.
const TAIL_OVER_MEDIAN: f64 = 2.0;

/// `exec_round_trip`, `exec_aims`.
pub(crate) async fn tables(plan: &Plan, vm: &Vm) -> Result<Vec<Table>> {
    let unit = plan.clock.milliseconds();
    let mut table = Table::new(
        "exec_round_trip",
        format!(
            "In {unit}. A static program that does nothing, from the call until its result is there; \
             alone, and beside others on the same vCPU: asleep, writing without end to a reader that \
             keeps up, or (by wall clock only) using up the processor. The floor is fork, exec and \
             wait of the same program by a process in the guest, taken in turn with it beside the \
             same others."
        ),
        &[
            "beside",
            "n",
            "p50",
            "p95",
            "p99",
            "floor p50",
            "x floor",
            "p99 / p50",
        ],
    );
    say("round trips beside nothing");
    for _ in 0..WARM_UP {
        round_trip(vm).await?;
    }
    let idle = Pair::take(vm, plan.commands).await?;
    idle.row(&mut table, "nothing".to_owned());
    for &others in Others::told_by(plan.clock) {
        let samples = match others {
            Others::Sleep | Others::Stream => plan.commands,
            Others::Spin => plan.among_busy,
        };
        for count in RUNNING {
            let beside = format!("{count} {}", others.name());
            say(&format!("round trips beside {beside}"));
            let running = others.start(vm, count).await?;
            let pair = Pair::take(vm, samples).await?;
            pair.row(&mut table, beside);
            running.end().await?;
        }
    }
    Ok(vec![table, idle.aims()])
}

/// Ours and the floor's times under the same conditions.
struct Pair {
    ours: Samples,
    floor: Samples,
}

impl Pair {
    async fn take(vm: &Vm, count: usize) -> Result<Self> {
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        while ours.len() < count {
            let turn = TURN.min(count - ours.len());
            for _ in 0..turn {
                ours.push(within(vm, round_trip(vm)).await?);
            }
            floor.extend(within(vm, fork_exec(vm, turn)).await?);
        }
        Ok(Self {
            ours: Samples::new("round trips", ours)?,
            floor: Samples::new("fork+exec", floor)?,
        })
    }

    fn over_floor(&self) -> f64 {
        self.ours.percentile(50) / self.floor.percentile(50)
    }

    fn tail_over_median(&self) -> f64 {
        self.ours.percentile(99) / self.ours.percentile(50)
    }

    fn row(&self, table: &mut Table, beside: String) {
        let [n, p50, p95, p99] = cells(&self.ours);
        table.row([
            beside.into(),
            n,
            p50,
            p95,
            p99,
            self.floor.percentile(50).into(),
            self.over_floor().into(),
            self.tail_over_median().into(),
        ]);
    }

    /// Whether the idle figures are where they should be.
    fn aims(&self) -> Table {
        let mut table = Table::new(
            "exec_aims",
            "Where the round trip beside nothing should be.",
            &["ratio", "found", "at most", ""],
        );
        for (what, found, at_most) in [
            ("p50 over the floor's p50", self.over_floor(), OVER_FLOOR),
            ("p99 over p50", self.tail_over_median(), TAIL_OVER_MEDIAN),
        ] {
            let met = if found <= at_most { "met" } else { "not met" };
            table.row([what.into(), found.into(), at_most.into(), met.into()]);
        }
        table
    }
}

#[cfg(test)]
#[path = "round_trip_test.rs"]
mod tests;
