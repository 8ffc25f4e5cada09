//! A process whose executions stand still, and what memory is held meanwhile.
//!
//! Each case is a process of its own, since memory that an earlier one gave back to the allocator
//! would hide what a later one takes.

use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use forebay::{Exec, ExecError, ExecHandle, Limits, Signal, Stdin, Vm};
use forebay_tests::MemoryWatch;
use rustix::process::{Signal as KernelSignal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use crate::bench::flow::look::Guest;
use crate::bench::flow::{MEMORY_MIB, MIB, Plan, answer, builder};
use crate::bench::guest::{Guests, HELPER};
use crate::bench::still::{LOOK_EVERY, full, until_full, until_stdin_full};
use crate::bench::streams::endless_writer;
use crate::bench::{runtime, within};

/// What the host may hold beside the allowances: bookkeeping per execution, the allocator's slack.
const HOST_SLACK: u64 = 4 * MIB;
/// The same for one execution.
const HOST_SLACK_OF_ONE: u64 = MIB;
/// What the agent may hold beside the allowances.
const AGENT_SLACK: u64 = MIB;
/// What the whole guest may take beside the allowances and the pipes: the kernel's own pages.
const GUEST_SLACK: u64 = 8 * MIB;
/// What a pipe holds outside the allowance.
const PIPE: u64 = 64 << 10;
/// Given to each stdin: more than pipe and allowance.
const INPUT: usize = 1 << 20;

/// Which memory is held how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Case {
    /// Output that nobody reads.
    Output,
    /// The same in chunks of one byte, which cost 257 each.
    TinyOutput,
    /// Stdin that no command reads.
    Stdin,
    /// A reader of 1000 bytes a second.
    SlowReader,
}

/// A bound, and what was found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) what: String,
    /// The most bytes by which memory grew.
    pub(crate) grown: u64,
    pub(crate) at_most: u64,
    /// What was held when it stood still.
    pub(crate) held: String,
}

/// Is the process of that case: prints its bounds as JSON.
pub(crate) fn stand_still(case: Case, plan: &Plan) -> Result<()> {
    // Whoever reads that is our parent; without it nobody does.
    set_parent_process_death_signal(Some(KernelSignal::KILL))?;
    let guests = Guests::find()?;
    let bounds = runtime()?.block_on(async {
        match case {
            Case::Output => output(plan, &guests, Limits::default(), "output unread").await,
            Case::TinyOutput => {
                let limits = Limits {
                    output_chunk_size: 1,
                    output_limit: plan.tiny_window,
                    ..Limits::default()
                };
                output(plan, &guests, limits, "one-byte chunks unread").await
            }
            Case::Stdin => stdin(plan, &guests).await,
            Case::SlowReader => slow_reader(plan, &guests).await,
        }
    })?;
    println!("{}", serde_json::to_string(&bounds)?);
    Ok(())
}

async fn output(plan: &Plan, guests: &Guests, limits: Limits, what: &str) -> Result<Vec<Bound>> {
    let vm = start(guests, limits).await?;
    let most = limits.max_executions;
    let memory = MemoryWatch::start(LOOK_EVERY);
    let mut writers = Vec::new();
    for _ in 0..most {
        writers.push(endless_writer(&vm).await?);
    }
    let held = until_full(&vm, writers.len()).await?;
    tokio::time::sleep(plan.stall).await;
    let grown = memory.grown();
    refused(&vm, most)?;
    killable(writers.pop().context("there are some")?, &vm).await?;
    drop(writers);
    vm.close().await;
    Ok(vec![Bound {
        what: format!("host, {most} x {what}"),
        grown,
        at_most: u64::from(most) * u64::from(limits.output_limit) + HOST_SLACK,
        held,
    }])
}

async fn stdin(plan: &Plan, guests: &Guests) -> Result<Vec<Bound>> {
    let usual = Limits::default();
    let most = usual.max_executions;
    let limits = Limits {
        // One to look at the guest.
        max_executions: most + 1,
        ..usual
    };
    let vm = start(guests, limits).await?;
    let data = Bytes::from(vec![0x5a; INPUT]);
    let mut sleepers = Vec::new();
    for _ in 0..most {
        let sleeper = vm.exec("sleep", ["100000"]).stdin(Stdin::piped());
        sleepers.push(sleeper.spawn().await?);
    }
    let before = Guest::look(&vm).await?;
    let memory = MemoryWatch::start(LOOK_EVERY);
    let mut writes = Vec::new();
    for sleeper in &mut sleepers {
        let stdin = sleeper.take_stdin().context("stdin is piped")?;
        let data = data.clone();
        writes.push(tokio::spawn(async move { stdin.write(data).await }));
    }
    until_stdin_full(&vm, sleepers.len()).await?;
    let first = Guest::look(&vm).await?;
    tokio::time::sleep(plan.stall).await;
    let host_grown = memory.grown();
    let last = Guest::look(&vm).await?;
    let last_slot = vm.exec("sleep", ["100000"]).spawn().await?;
    refused(&vm, most + 1)?;
    killable(sleepers.pop().context("there are some")?, &vm).await?;
    drop(last_slot);
    for sleeper in &sleepers {
        sleeper.kill();
    }
    for write in writes {
        // An error: it was waiting for a command that is gone now.
        drop(write.await?);
    }
    vm.close().await;
    let allowed = u64::from(most) * u64::from(usual.input_limit);
    let held = format!("{} bytes given to each, none of it read", data.len());
    let bound = |what: &str, grown, at_most| Bound {
        what: format!("{what}, {most} x stdin unread"),
        grown,
        at_most,
        held: held.clone(),
    };
    let agent_peak = first.agent.max(last.agent);
    let least_free = first.free.min(last.free);
    Ok(vec![
        bound(
            "agent",
            agent_peak.saturating_sub(before.agent),
            allowed + AGENT_SLACK,
        ),
        bound(
            "guest with its pipes",
            before.free.saturating_sub(least_free),
            allowed + u64::from(most) * PIPE + GUEST_SLACK,
        ),
        bound("host", host_grown, HOST_SLACK),
    ])
}

async fn slow_reader(plan: &Plan, guests: &Guests) -> Result<Vec<Bound>> {
    /// A thousand bytes a second.
    const READ: usize = 100;
    const EVERY: Duration = Duration::from_millis(100);
    let limits = Limits::default();
    let vm = start(guests, limits).await?;
    let memory = MemoryWatch::start(LOOK_EVERY);
    let total = (1_u64 << 30).to_string();
    let producer = vm
        .exec(HELPER, ["write", "--total", &total])
        .spawn()
        .await?;
    let mut parts = producer.split();
    let begun = Instant::now();
    let mut read = 0;
    while begun.elapsed() < plan.slow_read {
        let mut some = [0; READ];
        within(&vm, async { Ok(parts.stdout.read_exact(&mut some).await?) }).await?;
        read += some.len();
        tokio::time::sleep(EVERY).await;
    }
    let grown = memory.grown();
    let held = format!("{}; {read} bytes read", full(&vm, 1).unwrap_or_default());
    drop(parts);
    vm.close().await;
    Ok(vec![Bound {
        what: "host, 1 GiB read at 1000 bytes a second".to_owned(),
        grown,
        at_most: u64::from(limits.output_limit) + HOST_SLACK_OF_ONE,
        held,
    }])
}

async fn start(guests: &Guests, limits: Limits) -> Result<Vm> {
    let vm = builder(guests, limits)
        .memory_mib(MEMORY_MIB)
        .start()
        .await?;
    // The first execution fills the allocator's pools.
    answer(&vm, "true").await?;
    Ok(vm)
}

/// One more than all is refused on the spot, with both numbers.
fn refused(vm: &Vm, most: u32) -> Result<()> {
    let more: Exec = vm.exec("true", [""; 0]);
    let once = pin!(more.spawn()).poll(&mut TaskContext::from_waker(Waker::noop()));
    match once {
        Poll::Ready(Err(ExecError::AtCapacity { limit, active, .. })) if active == most => {
            ensure!(limit == active, "refused at {active} of {limit}");
            Ok(())
        }
        other => bail!("one more than {most} was not refused at once: {other:?}"),
    }
}

/// A kill passes, and a new command runs in the slot that it frees.
async fn killable(mut one: ExecHandle, vm: &Vm) -> Result<()> {
    one.kill();
    let status = within(vm, async { Ok(one.wait().await?) }).await?;
    ensure!(
        status.signal() == Some(Signal::KILL),
        "killed, but {status:?}"
    );
    let answer = within(vm, answer(vm, "echo here")).await?;
    ensure!(answer == "here", "answered {answer:?}");
    Ok(())
}
