//! Rates of stdout and stdin over windows, chunks and write sizes, and what each costs.
//!
//! One VM per pair of window and chunk, all of them alive, so that transfers of every kind are taken
//! in turn. Beside them a bare guest that copies the same writer's pipe to its port, with and without
//! the control groups that a command has.

use anyhow::Result;
use forebay::{Limits, Vm};
use tokio::runtime::Runtime;

use crate::bench::bare::Bare;
use crate::bench::commands::stdout_rate;
use crate::bench::flow::price::{Cpu, Frames, Price};
use crate::bench::flow::{MIB, Part, Plan, builder};
use crate::bench::guest::{Guests, MEMORY_MIB};
use crate::bench::port::Writer;
use crate::bench::rates::{self, BLOCK, WRITE};
use crate::bench::statistics::Samples;
use crate::bench::table::{Cell, Table};
use crate::bench::within;

/// Bytes of a frame's header, which makes a chunk's frame a power of two.
const HEADER: u32 = 16;
/// Transfers in writes this small are shorter by the factor beside it.
const SMALL_WRITES: [(usize, u64); 2] = [(64, 64), (1, 1024)];

/// One kind of transfer, and its samples.
struct Case {
    name: String,
    vm: usize,
    block: usize,
    bytes: u64,
    stdout: Vec<Sample>,
    stdin: Vec<Sample>,
}

struct Sample {
    rate: f64,
    price: Price,
}

/// Transfers without an agent.
#[derive(Default)]
struct Copies {
    free: Vec<Sample>,
    contained: Vec<Sample>,
}

/// `flow_stdout`, `flow_stdin`, those that are wanted.
pub(crate) fn tables(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Vec<Table>> {
    let (outwards, inwards) = (plan.wants(Part::Stdout), plan.wants(Part::Stdin));
    let usual = Limits::default();
    let mut vms = Vec::new();
    let mut cases = Vec::new();
    for (name, limits) in all_limits(usual) {
        vms.push(runtime.block_on(builder(guests, limits).memory_mib(MEMORY_MIB).start())?);
        cases.push(Case::new(name, vms.len() - 1, BLOCK, plan.bytes));
    }
    for (block, shorter) in SMALL_WRITES {
        let name = format!("defaults, {block}-byte writes");
        cases.push(Case::new(name, 0, block, plan.bytes / shorter));
    }
    let mut bare = outwards.then(|| Bare::boot(&guests.bare)).transpose()?;
    let mut copies = Copies::default();
    // One round more: the first touches guest memory that the host has not given yet.
    for round in 0..=plan.transfers {
        if let Some(bare) = &mut bare {
            copies.free.push(copy(bare, Writer::Free, plan.bytes)?);
            let contained = copy(bare, Writer::Contained, plan.bytes)?;
            copies.contained.push(contained);
        }
        for case in &mut cases {
            let vm = &vms[case.vm];
            if outwards {
                let sample = runtime.block_on(within(vm, stdout(vm, case)))?;
                case.stdout.push(sample);
            }
            if inwards {
                let sample = runtime.block_on(within(vm, stdin(vm, case)))?;
                case.stdin.push(sample);
            }
        }
        if round == 0 {
            copies = Copies::default();
            for case in &mut cases {
                case.stdout.clear();
                case.stdin.clear();
            }
        }
    }
    for vm in vms {
        runtime.block_on(vm.close());
    }
    if let Some(bare) = bare {
        runtime.block_on(bare.close());
    }
    let mut tables = Vec::new();
    if outwards {
        tables.push(stdout_table(&copies, &cases)?);
    }
    if inwards {
        tables.push(stdin_table(&cases)?);
    }
    Ok(tables)
}

/// The defaults first, then each limit by itself.
fn all_limits(usual: Limits) -> Vec<(String, Limits)> {
    let mut all = vec![("defaults".to_owned(), usual)];
    for (name, window) in [
        ("64 KiB", 64 << 10),
        ("256 KiB", 256 << 10),
        ("1 MiB", 1 << 20),
        ("4 MiB", 4 << 20),
        ("u32::MAX", u32::MAX),
    ] {
        let limits = Limits {
            output_limit: window,
            input_limit: window,
            ..usual
        };
        all.push((format!("windows of {name}"), limits));
    }
    for kib in [4, 8, 16, 32] {
        let chunk = (kib << 10) - HEADER;
        let limits = Limits {
            output_chunk_size: chunk,
            stdin_chunk_size: chunk,
            ..usual
        };
        all.push((format!("chunks of {kib} KiB - {HEADER}"), limits));
    }
    all
}

impl Case {
    fn new(name: String, vm: usize, block: usize, bytes: u64) -> Self {
        Self {
            name,
            vm,
            block,
            bytes,
            stdout: Vec::new(),
            stdin: Vec::new(),
        }
    }
}

async fn stdout(vm: &Vm, case: &Case) -> Result<Sample> {
    let before = (Cpu::now()?, Frames::of(vm));
    let rate = stdout_rate(vm.client(), case.bytes, case.block).await?;
    let after = (Cpu::now()?, Frames::of(vm));
    Ok(Sample {
        rate,
        price: Price::between(case.bytes, before, after),
    })
}

async fn stdin(vm: &Vm, case: &Case) -> Result<Sample> {
    let before = (Cpu::now()?, Frames::of(vm));
    let rate = rates::stdin(vm.client(), case.bytes, case.block).await?;
    let after = (Cpu::now()?, Frames::of(vm));
    Ok(Sample {
        rate,
        price: Price::between(case.bytes, before, after),
    })
}

fn copy(bare: &mut Bare, writer: Writer, bytes: u64) -> Result<Sample> {
    let before = (Cpu::now()?, Frames::default());
    let rate = rates::copy(bare, writer, bytes)?;
    let after = (Cpu::now()?, Frames::default());
    Ok(Sample {
        rate,
        price: Price::between(bytes, before, after),
    })
}

/// The median of one quantity.
fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Result<f64> {
    Ok(Samples::new("a transfer", samples.iter().map(of).collect())?.median())
}

fn stdout_table(copies: &Copies, cases: &[Case]) -> Result<Table> {
    let mut table = Table::new(
        "flow_stdout",
        format!(
            "A command writes to its stdout, {} KiB at a time unless said, and the application \
             reads as fast as it can; {} MiB, the median of {}. Beside it a guest without an agent \
             that copies the same writer's pipe to the port, {} KiB at a time; *contained*: the writer \
             is in control groups as a command is, and only the flow differs. Chunks and \
             acknowledgements are all frames on the port, those of start and end among them; \
             processor time is that of the threads that run guests, and of all others.",
            BLOCK >> 10,
            cases.first().map_or(0, |case| case.bytes / MIB),
            copies.free.len(),
            WRITE >> 10,
        ),
        &[
            "case",
            "MiB/s",
            "x bare copy",
            "x contained",
            "chunks/MiB",
            "acks/MiB",
            "vCPU ms/MiB",
            "host ms/MiB",
        ],
    );
    let bare = median(&copies.free, |copy| copy.rate)?;
    let floor = median(&copies.contained, |copy| copy.rate)?;
    for (name, samples) in [
        ("bare copy", &copies.free),
        ("bare copy, contained", &copies.contained),
    ] {
        let rate = median(samples, |copy| copy.rate)?;
        table.row([
            name.into(),
            rate.into(),
            (rate / bare).into(),
            (rate / floor).into(),
            Cell::Nothing,
            Cell::Nothing,
            median(samples, |copy| copy.price.vcpus)?.into(),
            median(samples, |copy| copy.price.host)?.into(),
        ]);
    }
    for case in cases {
        let samples = &case.stdout;
        let rate = median(samples, |sample| sample.rate)?;
        table.row([
            case.name.as_str().into(),
            rate.into(),
            (rate / bare).into(),
            (rate / floor).into(),
            median(samples, |sample| sample.price.from_guest)?.into(),
            median(samples, |sample| sample.price.to_guest)?.into(),
            median(samples, |sample| sample.price.vcpus)?.into(),
            median(samples, |sample| sample.price.host)?.into(),
        ]);
    }
    Ok(table)
}

fn stdin_table(cases: &[Case]) -> Result<Table> {
    let mut table = Table::new(
        "flow_stdin",
        "The application writes to the stdin of a command that reads as fast as it can; otherwise \
         as `flow_stdout`.",
        &[
            "case",
            "MiB/s",
            "x defaults",
            "chunks/MiB",
            "acks/MiB",
            "vCPU ms/MiB",
            "host ms/MiB",
        ],
    );
    let mut usual = None;
    for case in cases {
        let samples = &case.stdin;
        let rate = median(samples, |sample| sample.rate)?;
        table.row([
            case.name.as_str().into(),
            rate.into(),
            (rate / *usual.get_or_insert(rate)).into(),
            median(samples, |sample| sample.price.to_guest)?.into(),
            median(samples, |sample| sample.price.from_guest)?.into(),
            median(samples, |sample| sample.price.vcpus)?.into(),
            median(samples, |sample| sample.price.host)?.into(),
        ]);
    }
    Ok(table)
}
