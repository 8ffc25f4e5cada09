//! Rates of stdout and stdin over windows, chunks and write sizes, and what each costs.
//!
//! One VM per pair of window and chunk, all of them alive, so that transfers of every kind are taken
//! in turn. Beside them a bare guest that copies the same writer's pipe to its port.

use anyhow::Result;
use forebay::{Limits, Vm};
use tokio::runtime::Runtime;

use crate::bench::bare::Bare;
use crate::bench::commands::stdout_rate;
use crate::bench::flow::price::{Cpu, Frames, Price};
use crate::bench::flow::{MIB, Plan, builder};
use crate::bench::guest::{Guests, MEMORY_MIB};
use crate::bench::rates::{self, BLOCK, WRITE};
use crate::bench::statistics::Samples;
use crate::bench::table::{Cell, Table};
use crate::bench::within;

/// Bytes of a frame's header, which makes a chunk's frame a power of two.
const HEADER: u32 = 16;
/// Transfers in writes this small are shorter by the factor beside it.
const SMALL_WRITES: [(usize, u64); 2] = [(64, 32), (1, 512)];

/// One kind of transfer, and its samples.
struct Case {
    name: String,
    vm: usize,
    block: usize,
    bytes: u64,
    samples: Vec<Sample>,
}

struct Sample {
    rate: f64,
    price: Price,
}

/// What the bare guest has copied.
#[derive(Default)]
struct Copies {
    /// To a thread that reads it.
    read: Vec<Sample>,
    /// To the device, where it is counted.
    counted: Vec<Sample>,
}

/// Every kind of transfer, and the VMs between which they take turns.
struct Transfers {
    vms: Vec<Vm>,
    cases: Vec<Case>,
}

/// `flow_stdout`.
pub(crate) fn stdout(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Table> {
    let mut transfers = Transfers::boot(plan, guests, runtime)?;
    let mut bare = Bare::boot(&guests.bare)?;
    let mut copies = Copies::default();
    // One round more: the first touches guest memory that the host has not given yet.
    for round in 0..=plan.transfers {
        if round == 1 {
            copies = Copies::default();
            transfers.forget();
        }
        let read = copy(&mut bare, plan.bytes, rates::copy_to_reader)?;
        copies.read.push(read);
        let counted = copy(&mut bare, plan.bytes, rates::copy)?;
        copies.counted.push(counted);
        transfers.round(runtime, async |vm, case| {
            stdout_rate(vm.client(), case.bytes, case.block).await
        })?;
    }
    runtime.block_on(bare.close());
    stdout_table(&copies, &transfers.close(runtime))
}

/// `flow_stdin`.
pub(crate) fn stdin(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Table> {
    let mut transfers = Transfers::boot(plan, guests, runtime)?;
    for round in 0..=plan.transfers {
        if round == 1 {
            transfers.forget();
        }
        transfers.round(runtime, async |vm, case| {
            rates::stdin(vm.client(), case.bytes, case.block).await
        })?;
    }
    stdin_table(&transfers.close(runtime))
}

impl Transfers {
    fn boot(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Self> {
        let mut vms = Vec::new();
        let mut cases = Vec::new();
        for (name, limits) in all_limits(Limits::default()) {
            vms.push(runtime.block_on(builder(guests, limits).memory_mib(MEMORY_MIB).start())?);
            cases.push(Case::new(name, vms.len() - 1, BLOCK, plan.bytes));
        }
        for (block, shorter) in SMALL_WRITES {
            let name = format!("defaults, {block}-byte writes");
            cases.push(Case::new(name, 0, block, plan.bytes / shorter));
        }
        Ok(Self { vms, cases })
    }

    /// One transfer of each kind; `way` gives its rate.
    fn round(
        &mut self,
        runtime: &Runtime,
        way: impl AsyncFn(&Vm, &Case) -> Result<f64>,
    ) -> Result<()> {
        for case in &mut self.cases {
            let vm = &self.vms[case.vm];
            let before = (Cpu::now()?, Frames::of(vm));
            let rate = runtime.block_on(within(vm, way(vm, case)))?;
            let after = (Cpu::now()?, Frames::of(vm));
            case.samples.push(Sample {
                rate,
                price: Price::between(case.bytes, before, after),
            });
        }
        Ok(())
    }

    fn forget(&mut self) {
        for case in &mut self.cases {
            case.samples.clear();
        }
    }

    fn close(self, runtime: &Runtime) -> Vec<Case> {
        for vm in self.vms {
            runtime.block_on(vm.close());
        }
        self.cases
    }
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
            samples: Vec::new(),
        }
    }
}

fn copy(
    bare: &mut Bare,
    bytes: u64,
    way: impl FnOnce(&mut Bare, u64) -> Result<f64>,
) -> Result<Sample> {
    let before = (Cpu::now()?, Frames::default());
    let rate = way(bare, bytes)?;
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
             that copies the same writer's pipe to the port, {} KiB at a time, where a thread reads \
             it or nobody does. Chunks and \
             acknowledgements are all frames on the port, those of start and end among them; \
             processor time is that of the threads that run guests, and of all others.",
            BLOCK >> 10,
            cases.first().map_or(0, |case| case.bytes / MIB),
            copies.read.len(),
            WRITE >> 10,
        ),
        &[
            "case",
            "MiB/s",
            "x bare copy",
            "chunks/MiB",
            "acks/MiB",
            "vCPU ms/MiB",
            "host ms/MiB",
        ],
    );
    let bare = median(&copies.read, |copy| copy.rate)?;
    for (name, samples) in [
        ("bare copy", &copies.read),
        ("bare copy that nobody reads", &copies.counted),
    ] {
        let rate = median(samples, |copy| copy.rate)?;
        table.row([
            name.into(),
            rate.into(),
            (rate / bare).into(),
            Cell::Nothing,
            Cell::Nothing,
            median(samples, |copy| copy.price.vcpus)?.into(),
            median(samples, |copy| copy.price.host)?.into(),
        ]);
    }
    for case in cases {
        let samples = &case.samples;
        let rate = median(samples, |sample| sample.rate)?;
        table.row([
            case.name.as_str().into(),
            rate.into(),
            (rate / bare).into(),
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
        let samples = &case.samples;
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
