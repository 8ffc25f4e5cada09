//! How long one small thing takes: a command that does nothing, a byte through one that runs.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use forebay::{Stdin, Vm};
use tokio::io::AsyncReadExt;
use tokio::runtime::Runtime;

use crate::bench::commands::round_trip;
use crate::bench::guest::{Guests, HELPER, MEMORY_MIB};
use crate::bench::peer::Peer;
use crate::bench::port::echo_times;
use crate::bench::report::{Aim, Figure};
use crate::bench::statistics::Samples;
use crate::bench::{Plan, milliseconds, within};

/// Round trips taken in turn with the other side's.
const TURN: usize = 10;
/// Not counted, before the first.
const WARM_UP: usize = 3;

/// `true_round_trip`, `echo_round_trip`.
pub(crate) fn figures(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Vec<Figure>> {
    let vm = runtime.block_on(
        Vm::builder()
            .image(guests.with_helper.clone())
            .memory_mib(MEMORY_MIB)
            .start(),
    )?;
    let commands = runtime.block_on(within(&vm, commands(plan, &vm)))?;
    let echoes = echoes(plan, guests, &vm, runtime)?;
    runtime.block_on(vm.close());
    Ok(vec![commands, echoes])
}

async fn commands(plan: &Plan, vm: &Vm) -> Result<Figure> {
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..WARM_UP {
        round_trip(vm).await?;
    }
    while ours.len() < plan.commands {
        for _ in 0..TURN.min(plan.commands - ours.len()) {
            ours.push(round_trip(vm).await?);
        }
        floor.extend(fork_exec(vm, TURN).await?);
    }
    let unit = plan.clock.milliseconds();
    let ours = Samples::new("true_round_trip", ours)?;
    let floor = Samples::new("fork+exec", floor)?;
    Ok(Figure::new(
        "true_round_trip",
        unit,
        "request of a static program that does nothing, until its result is there",
        ours,
        "the guest's clone, exec and exit of the program, in a cgroup of its own",
    )
    .floor("fork+exec+wait of it, in the guest", &floor)
    .aim(Aim::RatioAtMost(1.6)))
}

/// Has the guest run the same program by itself; each in milliseconds.
pub(crate) async fn fork_exec(vm: &Vm, count: usize) -> Result<Vec<f64>> {
    let done = vm
        .exec(HELPER, ["forkexec-floor", &count.to_string()])
        .output()
        .await?;
    let text = done.stdout_str().context("the floor is text")?;
    let times = floor_times(text)?;
    if times.len() != count {
        bail!("{count} times were asked for, {} came: {text}", times.len());
    }
    Ok(times)
}

/// The samples that the program names, in nanoseconds, as milliseconds.
fn floor_times(text: &str) -> Result<Vec<f64>> {
    let (_, samples) = text
        .trim()
        .rsplit_once("samples_ns=")
        .with_context(|| format!("no samples in {text:?}"))?;
    samples
        .split(',')
        .map(|sample| {
            let nanoseconds: u64 = sample
                .parse()
                .with_context(|| format!("{sample:?} is no time"))?;
            Ok(nanoseconds as f64 / 1e6)
        })
        .collect()
}

fn echoes(plan: &Plan, guests: &Guests, vm: &Vm, runtime: &Runtime) -> Result<Figure> {
    let mut qemu = Peer::boot(&guests.bare)?;
    let mut cat = runtime.block_on(vm.exec("cat", [""; 0]).stdin(Stdin::piped()).spawn())?;
    let stdin = cat.take_stdin().context("stdin is piped")?;
    let mut parts = cat.split();
    let mut echo = async |count: usize| -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let started = Instant::now();
            stdin.write_all(b".").await?;
            let mut byte = [0];
            parts.stdout.read_exact(&mut byte).await?;
            times.push(milliseconds(started));
        }
        Ok(times)
    };

    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    runtime.block_on(within(vm, echo(WARM_UP)))?;
    echo_times(&mut qemu, WARM_UP)?;
    while ours.len() < plan.echoes {
        let turn = TURN.min(plan.echoes - ours.len());
        ours.extend(runtime.block_on(within(vm, echo(turn)))?);
        peer.extend(echo_times(&mut qemu, turn)?);
    }
    let ours = Samples::new("echo_round_trip", ours)?;
    let peer = Samples::new("QEMU echo", peer)?;
    Ok(Figure::new(
        "echo_round_trip",
        plan.clock.milliseconds(),
        "one byte to the stdin of a running cat, until it is read from its stdout; \
         the peer's guest has no pipes and no second process between",
        ours,
        "two wake-ups more than the peer in the guest: cat, and the agent for its answer",
    )
    .peer("QEMU port echo", &peer)
    .aim(Aim::RatioAtMost(0.6)))
}

#[cfg(test)]
#[path = "round_trips_test.rs"]
mod tests;
