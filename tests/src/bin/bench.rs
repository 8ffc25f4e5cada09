//! `forebay-bench`: takes the project's figures where guests can run; see `cargo xtask bench`, which
//! runs it twice, by wall clock and by counted instructions.

#[path = "../bench/mod.rs"]
mod bench;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use bench::{Clock, Peer, Plan, Table, boot, exec, flow, snapshot};
use clap::{Parser, ValueEnum};
use forebay_tests::in_rig;
use serde::Serialize;

/// Measures forebay, beside QEMU where there is something to compare.
#[derive(Parser)]
#[command(name = "forebay-bench")]
struct Arguments {
    /// What to measure.
    #[arg(value_enum, default_value = "machine")]
    subject: Subject,
    /// How time passes here. By counted instructions only what one processor does is measured:
    /// boots and round trips. By wall clock the rest, and on hardware everything.
    #[arg(long, value_enum, default_value = "wall")]
    clock: Clock,
    /// Take fewer samples.
    #[arg(long)]
    quick: bool,
    /// Of `flow`, only this; may be given more than once.
    #[arg(long, value_enum, value_name = "PART")]
    only: Vec<flow::Part>,
    /// Also write the figures to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Host one VM, and say how much memory that takes: used by this program itself.
    #[arg(long, hide = true)]
    host_one_vm: bool,
    /// Let executions stand still, and say how much memory that takes: used by this program itself.
    #[arg(long, hide = true, value_enum, value_name = "CASE")]
    stand_still: Option<flow::Case>,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Subject {
    /// Boots, round trips, rates and memory of a VM.
    Machine,
    /// What the flow contract costs, and that its bounds hold.
    Flow,
    /// What running a command costs: alone, beside others, on a terminal.
    Exec,
    /// What boots cost, over kernels, memory, vCPUs and images.
    Boot,
    /// What pausing, saving and copying a VM costs.
    Snapshot,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.host_one_vm {
        return bench::host_one_vm();
    }
    if let Some(case) = arguments.stand_still {
        let plan = flow::Plan::new(arguments.clock, arguments.quick);
        return flow::stand_still(case, &plan);
    }
    if !arguments.only.is_empty() && !matches!(arguments.subject, Subject::Flow) {
        bail!("only `flow` has parts: leave --only out, or measure `flow`");
    }
    match arguments.subject {
        Subject::Machine => machine(&arguments),
        Subject::Flow => flow(&arguments),
        Subject::Exec => exec(&arguments),
        Subject::Boot => boot(&arguments),
        Subject::Snapshot => snapshot(&arguments),
    }
}

fn machine(arguments: &Arguments) -> Result<()> {
    let peer = Peer::check()?;
    let counted = arguments.clock == Clock::Instructions;
    let plan = Plan::new(
        arguments.clock,
        // Wall time in the emulated host is the emulator's, and means nothing for one processor.
        counted || !in_rig(),
        !counted,
        arguments.quick,
    );
    let figures = bench::run(&plan)?;
    println!("\n{}\nBeside: {peer}.\n", arguments.clock.explained());
    println!("{}", bench::table(&figures));
    arguments.write(&figures)
}

fn flow(arguments: &Arguments) -> Result<()> {
    let plan = flow::Plan::new(arguments.clock, arguments.quick).only(&arguments.only);
    println!("\n{}\n", arguments.clock.explained());
    match arguments.show(|show| flow::run(&plan, show))? {
        Some(which) => bail!(which),
        None => Ok(()),
    }
}

fn exec(arguments: &Arguments) -> Result<()> {
    let plan = exec::Plan::new(arguments.clock, arguments.quick);
    arguments.tell(&exec::run(&plan)?)
}

fn boot(arguments: &Arguments) -> Result<()> {
    let peer = Peer::check()?;
    let plan = boot::Plan::new(arguments.clock, arguments.quick);
    println!("\n{}\nBeside: {peer}.\n", arguments.clock.explained());
    arguments.show(|show| boot::run(&plan, show))
}

fn snapshot(arguments: &Arguments) -> Result<()> {
    let plan = snapshot::Plan::new(arguments.clock, arguments.quick);
    arguments.tell(&snapshot::run(&plan)?)
}

impl Arguments {
    /// Prints each table as soon as it is there, and writes the rows of all that there were, if that was
    /// asked for, whatever becomes of the rest.
    fn show<T>(&self, run: impl FnOnce(&mut dyn FnMut(Table)) -> Result<T>) -> Result<T> {
        let mut records = Vec::new();
        let outcome = run(&mut |table: Table| {
            println!("{}", table.markdown());
            records.extend(table.records());
        });
        self.write(&records)?;
        outcome
    }

    /// Prints the tables, and writes their rows if that was asked for.
    fn tell(&self, tables: &[Table]) -> Result<()> {
        println!("\n{}\n", self.clock.explained());
        for table in tables {
            println!("{}", table.markdown());
        }
        let records: Vec<_> = tables.iter().flat_map(Table::records).collect();
        self.write(&records)
    }

    /// Writes the figures, if that was asked for.
    fn write(&self, figures: &impl Serialize) -> Result<()> {
        let Some(path) = &self.json else {
            return Ok(());
        };
        let text = serde_json::to_vec_pretty(figures)?;
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
    }
}
