//! `forebay-bench exec`: what running a command costs.
//!
//! | module | owns |
//! |---|---|
//! | `round_trip` | a command that does nothing, alone and beside others, over what the guest alone needs |
//! | `rate` | how many commands are run per second |
//! | `echo` | a byte through a terminal |
//!
//! One VM, one vCPU. Missing an aim is no failure of the program.

mod echo;
mod rate;
mod round_trip;

use anyhow::Result;
use forebay::Vm;

use crate::bench::guest::{Guests, MEMORY_MIB};
use crate::bench::statistics::Samples;
use crate::bench::table::{Cell, Table};
use crate::bench::{Clock, runtime, say};

/// Samples taken in turn with the other side's.
const TURN: usize = 10;
/// Not counted, before the first.
const WARM_UP: usize = 3;

/// How much of each is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    clock: Clock,
    /// Commands run one after the other, for each row.
    commands: usize,
    /// The same beside commands that use up the processor: each takes its time.
    among_busy: usize,
    /// Commands run for each rate.
    burst: usize,
    /// Bytes echoed one after the other.
    echoes: usize,
}

impl Plan {
    /// The usual numbers, or fewer for a quick look.
    pub(crate) fn new(clock: Clock, quick: bool) -> Self {
        let (commands, among_busy, burst, echoes) = if quick {
            (100, 20, 128, 100)
        } else {
            (500, 100, 512, 500)
        };
        Self {
            clock,
            commands,
            among_busy,
            burst,
            echoes,
        }
    }
}

/// Takes all figures of the plan, saying on standard error what it is at.
pub(crate) fn run(plan: &Plan) -> Result<Vec<Table>> {
    let guests = Guests::find()?;
    let vm = Vm::builder()
        .image(guests.with_helper)
        .memory_mib(MEMORY_MIB);
    runtime()?.block_on(async {
        let vm = vm.start().await?;
        let tables = tables(plan, &vm).await;
        vm.close().await;
        tables
    })
}

async fn tables(plan: &Plan, vm: &Vm) -> Result<Vec<Table>> {
    let mut tables = round_trip::tables(plan, vm).await?;
    say("rates of commands");
    tables.push(rate::table(plan, vm).await?);
    say("echoes");
    tables.push(echo::table(plan, vm).await?);
    Ok(tables)
}

/// What a row says of times: their number, their median, their tail.
fn cells(times: &Samples) -> [Cell; 4] {
    [
        times.count().to_string().into(),
        times.percentile(50).into(),
        times.percentile(95).into(),
        times.percentile(99).into(),
    ]
}
