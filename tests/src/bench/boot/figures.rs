//! How long a boot takes, to three points of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay::{Image, Vm};
use tokio::runtime::Runtime;

use crate::bench::bare::Bare;
use crate::bench::boot::Rounds;
use crate::bench::boot::kernels::Kernel;
use crate::bench::guest::{BareGuest, Guests, MEMORY_MIB};
use crate::bench::peer::Peer;
use crate::bench::report::{Aim, Figure};
use crate::bench::statistics::Samples;
use crate::bench::{self, milliseconds};

const QEMU_BOOT: &str = "QEMU microvm: its start to PID 1";

/// Boots of one kernel, ours and QEMU's in turn, each to its points in milliseconds.
pub(crate) struct Boots {
    pub(crate) first_instruction: Samples,
    pub(crate) pid1: Samples,
    pub(crate) ready: Samples,
    pub(crate) peer: Samples,
}

/// One boot of each kind.
#[derive(Debug)]
struct Round {
    first_instruction: f64,
    pid1: f64,
    ready: f64,
    peer: f64,
}

/// `first_instruction`, `boot_to_pid1`, `boot_to_ready`.
pub(crate) fn figures(
    plan: &bench::Plan,
    guests: &Guests,
    runtime: &Runtime,
) -> Result<Vec<Figure>> {
    let kernel = Kernel::of(&guests.image);
    let rounds = Rounds::after_one(plan.boots);
    let boots = Boots::take(rounds, &kernel, &guests.bare, &guests.image, runtime)?;
    let unit = plan.clock.milliseconds();
    let first = Figure::new(
        "first_instruction",
        unit,
        "call of start to the first entry into the guest; each first boot of a process is left out",
        boots.first_instruction,
        "copying kernel and initramfs into guest memory",
    );
    let pid1 = Figure::new(
        "boot_to_pid1",
        unit,
        "call of start to the first bytes that PID 1, a bare port server, sends over the port",
        boots.pid1,
        "the kernel's own start",
    );
    let ready = Figure::new(
        "boot_to_ready",
        unit,
        "call of start to its return with an agent that takes commands",
        boots.ready,
        "the kernel's own start, then the agent's mounts",
    );
    Ok(vec![
        first
            .peer(QEMU_BOOT, &boots.peer)
            .aim(Aim::RatioAtMost(0.15)),
        pid1.peer(QEMU_BOOT, &boots.peer),
        ready
            .peer(QEMU_BOOT, &boots.peer)
            .aim(Aim::RatioAtMost(0.6)),
    ])
}

impl Boots {
    /// So many of each; what does not count finds files not yet read and a host not yet probed.
    pub(super) fn take(
        rounds: Rounds,
        kernel: &Kernel,
        bare: &BareGuest,
        image: &Image,
        runtime: &Runtime,
    ) -> Result<Self> {
        let taken = (0..rounds.all)
            .map(|_| round(kernel, bare, image, runtime))
            .collect::<Result<Vec<_>>>()?;
        let column = |name: &str, of: fn(&Round) -> f64| {
            let count = taken.iter().skip(rounds.all - rounds.count);
            Samples::new(name, count.map(of).collect())
        };
        Ok(Self {
            first_instruction: column("first_instruction", |round| round.first_instruction)?,
            pid1: column("boot_to_pid1", |round| round.pid1)?,
            ready: column("boot_to_ready", |round| round.ready)?,
            peer: column("QEMU boot", |round| round.peer)?,
        })
    }
}

fn round(kernel: &Kernel, guest: &BareGuest, image: &Image, runtime: &Runtime) -> Result<Round> {
    let bare = Bare::boot(guest)?;
    let pid1 = bare.boot;
    let first = bare
        .boot_report()
        .first_instruction
        .context("the guest ran, so it had a first instruction")?;
    runtime.block_on(bare.close());

    let started = Instant::now();
    let builder = Vm::builder().image(image.clone()).memory_mib(MEMORY_MIB);
    let vm = runtime.block_on(kernel.boots(builder).start())?;
    let ready = milliseconds(started);
    runtime.block_on(vm.close());

    let peer = Peer::boot(guest)?;
    let round = Round {
        first_instruction: in_milliseconds(first),
        pid1: in_milliseconds(pid1),
        ready,
        peer: in_milliseconds(peer.boot),
    };
    eprintln!("{}: {round:.1?}", kernel.name);
    Ok(round)
}

fn in_milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
