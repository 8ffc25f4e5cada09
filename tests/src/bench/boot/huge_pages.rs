//! What is behind a guest's memory: the host's common pages, huge ones where it finds them, which is
//! what a VM asks for by itself, or huge ones of its pool.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use forebay::{ExecEvent, Vm};
use forebay_tests::in_rig;
use rustix::thread::disable_transparent_huge_pages;
use tokio::runtime::Runtime;

use crate::bench::boot::Plan;
use crate::bench::guest::{Guests, HELPER, MEMORY_MIB};
use crate::bench::statistics::Samples;
use crate::bench::table::Table;
use crate::bench::{milliseconds, within};

/// What the program in the guest touches, in MiB.
const TOUCHED_MIB: u32 = 128;
/// What a huge page of the pool has, in MiB.
const HUGE_PAGE_MIB: u32 = 2;
/// The host's pool.
const POOL: &str = "/proc/sys/vm/nr_hugepages";
const POOL_FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// Which pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pages {
    Common,
    Transparent,
    Pool,
}

/// Times of one guest, in milliseconds.
#[derive(Clone, Copy)]
struct Times {
    ready: f64,
    touched: f64,
    again: f64,
}

/// `boot_huge_pages`.
pub(crate) fn table(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Table> {
    let pool = Pool::of(MEMORY_MIB)?;
    let mut kinds = vec![Pages::Common, Pages::Transparent];
    if pool.is_some() {
        kinds.push(Pages::Pool);
    } else {
        eprintln!("{POOL} is too small for huge_pages: {MEMORY_MIB} MiB are needed");
    }
    let mut times: Vec<Vec<Times>> = kinds.iter().map(|_| Vec::new()).collect();
    for round in 0..=plan.boots {
        for (pages, times) in kinds.iter().zip(&mut times) {
            let taken = runtime.block_on(pages.times(guests))?;
            if round > 0 {
                times.push(taken);
            }
        }
    }
    let mut table = Table::new(
        "boot_huge_pages",
        format!(
            "Medians in {}, the default image in a guest of {MEMORY_MIB} MiB and one vCPU, taken in \
             turn: its boot until the agent takes commands, a program that writes to {TOUCHED_MIB} MiB \
             from its request until it has, and the same program once more in the same guest. \
             *common*: transparent huge pages are off for the process; *transparent*: the default; \
             *pool*: `huge_pages`.",
            plan.clock.milliseconds()
        ),
        &["pages", "n", "ready", "x", "touched", "x", "again", "x"],
    );
    let median = |times: &[Times], of: fn(&Times) -> f64| -> Result<f64> {
        Ok(Samples::new("boot_huge_pages", times.iter().map(of).collect())?.median())
    };
    let columns: [fn(&Times) -> f64; 3] = [|all| all.ready, |all| all.touched, |all| all.again];
    for (pages, taken) in kinds.iter().zip(&times) {
        let mut cells = vec![pages.name().into(), taken.len().to_string().into()];
        for of in columns {
            let (this, common) = (median(taken, of)?, median(&times[0], of)?);
            cells.extend([this.into(), (this / common).into()]);
        }
        table.row(cells);
    }
    Ok(table)
}

impl Pages {
    fn name(self) -> &'static str {
        match self {
            Self::Common => "common",
            Self::Transparent => "transparent",
            Self::Pool => "pool",
        }
    }

    async fn times(self, guests: &Guests) -> Result<Times> {
        // Of this process, so of guest memory that it maps and faults in.
        disable_transparent_huge_pages(self == Self::Common)?;
        let taken = self.taken(guests).await;
        disable_transparent_huge_pages(false)?;
        taken
    }

    async fn taken(self, guests: &Guests) -> Result<Times> {
        let builder = Vm::builder()
            .image(guests.with_helper.clone())
            .memory_mib(MEMORY_MIB)
            .huge_pages(self == Self::Pool);
        let started = Instant::now();
        let vm = builder.start().await?;
        let ready = milliseconds(started);
        let touched = within(&vm, touch(&vm)).await?;
        let again = within(&vm, touch(&vm)).await?;
        vm.close().await;
        Ok(Times {
            ready,
            touched,
            again,
        })
    }
}

/// Has a program write to memory, and ends it when it has: how long that took.
async fn touch(vm: &Vm) -> Result<f64> {
    let started = Instant::now();
    let mut hog = vm
        .exec(HELPER, ["hog".to_owned(), TOUCHED_MIB.to_string()])
        .spawn()
        .await?;
    while let Some(event) = hog.recv().await {
        match event {
            ExecEvent::Stdout(_) => {
                let taken = milliseconds(started);
                hog.kill();
                // Its memory is the guest's again.
                hog.wait().await?;
                return Ok(taken);
            }
            ExecEvent::Exited(status) => bail!("the program that touches memory ended: {status}"),
            _ => {}
        }
    }
    bail!("the program that touches memory said nothing")
}

/// Huge pages of the host, enough for a guest.
struct Pool {
    /// We made it.
    ours: bool,
}

impl Pool {
    /// In the rig it is made for this; elsewhere it is there or not.
    fn of(mib: u32) -> Result<Option<Self>> {
        let pages = mib.div_ceil(HUGE_PAGE_MIB);
        if in_rig() {
            fs::write(POOL, pages.to_string()).with_context(|| format!("write {POOL}"))?;
        }
        let free = fs::read_to_string(POOL_FREE).unwrap_or_default();
        let enough = free.trim().parse().is_ok_and(|free: u32| free >= pages);
        Ok(enough.then_some(Self { ours: in_rig() }))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.ours {
            // The rig ends with us: this is for what is measured after it.
            let _ = fs::write(POOL, "0");
        }
    }
}
