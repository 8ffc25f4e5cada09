//! One boot, and what its time went into.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use forebay::{BootReport, Image, Vm};
use tokio::runtime::Runtime;

use crate::bench::Clock;
use crate::bench::boot::Plan;
use crate::bench::boot::kernels::Kernel;
use crate::bench::statistics::Samples;
use crate::bench::table::{Cell, Table};

/// The columns that [`table`] adds.
const COLUMNS: [&str; 9] = [
    "n",
    "ready",
    "least",
    "VM",
    "load",
    "enter",
    "early kernel",
    "kernel",
    "agent",
];

/// What the columns are, for a table's description.
const EXPLAINED: &str = "*ready* is from the call of start until the agent takes commands (median \
    and least of n), and the others are its parts (medians): *VM*, memory, vCPUs and devices are made; \
    *load*, kernel and initramfs are copied into guest memory; *enter*, up to the first instruction; \
    *early kernel*, until the guest's clock begins: what the kernel does to uncompress itself and to \
    lay out memory; *kernel*, from there to PID 1; *agent*, from there to its Ready.";

/// Several times what any boot here takes by counted instructions: one that never ends is emulated to
/// its deadline, a virtual second in many seconds.
const LIMIT: Duration = Duration::from_secs(10);

/// One kind of boot.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) image: &'a Image,
    /// A layer on top of it.
    pub(crate) layer: Option<&'a Path>,
    pub(crate) memory_mib: u32,
    pub(crate) cpus: u8,
}

/// Times of one boot, in milliseconds.
struct Parts {
    ready: f64,
    /// One after the other; together they are `ready`.
    of_it: [f64; 6],
}

impl Case<'_> {
    fn boot(&self, clock: Clock, runtime: &Runtime) -> Result<Parts> {
        let builder = Vm::builder()
            .image(self.image.clone())
            .memory_mib(self.memory_mib)
            .cpus(self.cpus);
        let builder = match clock {
            Clock::Instructions => builder.boot_deadline(LIMIT),
            Clock::Wall => builder,
        };
        let builder = match self.layer {
            Some(layer) => builder.initramfs(layer),
            None => builder,
        };
        let vm = runtime.block_on(self.kernel.boots(builder).start())?;
        let report = vm.boot_report();
        runtime.block_on(vm.close());
        Parts::of(&report)
    }
}

impl Parts {
    fn of(report: &BootReport) -> Result<Self> {
        let parts = || {
            let (set_up, loaded, first) =
                (report.set_up?, report.loaded?, report.first_instruction?);
            let (ready, pid1) = (report.ready?, report.guest_pid1?);
            // The host hears of the Ready at once, so both clocks agree there.
            let clock = ready.checked_sub(report.guest_ready?)?;
            let at = [set_up, loaded, first, clock, clock + pid1, ready];
            let mut before = Duration::ZERO;
            let of_it = at.map(|at| {
                let part = milliseconds(at) - milliseconds(before);
                before = at;
                part
            });
            Some(Self {
                ready: milliseconds(ready),
                of_it,
            })
        };
        parts().with_context(|| format!("the boot lacks a part: {report:?}"))
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Boots each case, in turn, and makes a row of it: what sets it apart, one cell per heading, and its
/// times. One that does not boot here is said, once, and its row has no times: the others are worth
/// having, and where several vCPUs share one emulated processor some guests do not come up.
pub(crate) fn table(
    plan: &Plan,
    runtime: &Runtime,
    (name, what): (&str, &str),
    headings: &[&str],
    cases: &[(Vec<String>, Case<'_>)],
) -> Result<Table> {
    let mut boots: Vec<Option<Vec<Parts>>> = cases.iter().map(|_| Some(Vec::new())).collect();
    let of = |case: &Case<'_>| plan.rounds(case.kernel);
    let rounds = cases.iter().map(|(_, case)| of(case).all).max();
    for left in (0..rounds.unwrap_or(0)).rev() {
        for ((heads, case), boots) in cases.iter().zip(&mut boots) {
            let rounds = of(case);
            let (Some(taken), true) = (&mut *boots, left < rounds.all) else {
                continue;
            };
            let heads = heads.join(", ");
            match case.boot(plan.clock, runtime) {
                Ok(parts) => {
                    eprintln!("{name}: {heads}: {:.1}", parts.ready);
                    if left < rounds.count {
                        taken.push(parts);
                    }
                }
                Err(why) => {
                    eprintln!("{name}: {heads}: {why:#}");
                    *boots = None;
                }
            }
        }
    }
    let unit = plan.clock.milliseconds();
    let columns = [headings, &COLUMNS].concat();
    let mut table = Table::new(name, format!("{what} In {unit}: {EXPLAINED}"), &columns);
    for ((heads, _), boots) in cases.iter().zip(&boots) {
        let mut cells: Vec<Cell> = heads.iter().map(|head| head.clone().into()).collect();
        let Some(boots) = boots else {
            cells.extend(COLUMNS.map(|_| Cell::Nothing));
            table.row(cells);
            continue;
        };
        let ready = Samples::new(name, boots.iter().map(|boot| boot.ready).collect())?;
        cells.push(boots.len().to_string().into());
        cells.extend([ready.median().into(), ready.min().into()]);
        for part in 0..boots.first().map_or(0, |boot| boot.of_it.len()) {
            let part = boots.iter().map(|boot| boot.of_it[part]).collect();
            cells.push(Samples::new(name, part)?.median().into());
        }
        table.row(cells);
    }
    Ok(table)
}
