//! How long a boot takes, to three points of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

use crate::bench::Plan;
use crate::bench::bare::Bare;
use crate::bench::guest::{Guests, MEMORY_MIB};
use crate::bench::peer::Peer;
use crate::bench::report::{Aim, Figure};
use crate::bench::statistics::Samples;

const QEMU_BOOT: &str = "QEMU microvm: its start to PID 1";

/// One boot of each kind, in milliseconds.
struct Round {
    first_instruction: f64,
    pid1: f64,
    ready: f64,
    peer: f64,
}

/// `first_instruction`, `boot_to_pid1`, `boot_to_ready`.
pub(crate) fn figures(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Vec<Figure>> {
    // One round more: the first finds files not yet read and a host not yet probed.
    let rounds = (0..=plan.boots)
        .map(|_| round(guests, runtime))
        .collect::<Result<Vec<_>>>()?;
    let column = |name: &str, of: fn(&Round) -> f64| {
        Samples::new(name, rounds.iter().skip(1).map(of).collect())
    };
    let unit = plan.clock.milliseconds();
    let peer = column("QEMU boot", |round| round.peer)?;
    let first = Figure::new(
        "first_instruction",
        unit,
        "call of start to the first entry into the guest; each first boot of a process is left out",
        column("first_instruction", |round| round.first_instruction)?,
        "copying kernel and initramfs into guest memory",
    );
    let pid1 = Figure::new(
        "boot_to_pid1",
        unit,
        "call of start to the first bytes that PID 1, a bare port server, sends over the port",
        column("boot_to_pid1", |round| round.pid1)?,
        "the kernel's own start",
    );
    let ready = Figure::new(
        "boot_to_ready",
        unit,
        "call of start to its return with an agent that takes commands",
        column("boot_to_ready", |round| round.ready)?,
        "the kernel's own start, then the agent's mounts",
    );
    Ok(vec![
        first.peer(QEMU_BOOT, &peer).aim(Aim::RatioAtMost(0.15)),
        pid1.peer(QEMU_BOOT, &peer),
        ready.peer(QEMU_BOOT, &peer).aim(Aim::RatioAtMost(0.6)),
    ])
}

fn round(guests: &Guests, runtime: &Runtime) -> Result<Round> {
    let bare = Bare::boot(&guests.bare)?;
    let pid1 = bare.boot;
    let first = bare
        .boot_report()
        .first_instruction
        .context("the guest ran, so it had a first instruction")?;
    runtime.block_on(bare.close());

    let started = Instant::now();
    let vm = runtime.block_on(
        forebay::Vm::builder()
            .image(guests.image.clone())
            .memory_mib(MEMORY_MIB)
            .start(),
    )?;
    let ready = started.elapsed();
    runtime.block_on(vm.close());

    let peer = Peer::boot(&guests.bare)?;
    Ok(Round {
        first_instruction: milliseconds(first),
        pid1: milliseconds(pid1),
        ready: milliseconds(ready),
        peer: milliseconds(peer.boot),
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
