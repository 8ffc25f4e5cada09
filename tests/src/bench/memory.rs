//! What a VM costs its host process beside the guest's own memory.
//!
//! Each sample is a process of its own, so that nothing of other measurements is left in it: this
//! program again, hosting one VM, and QEMU.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use forebay::Vm;
use serde::{Deserialize, Serialize};

use crate::bench::guest::{Guests, HELPER, MEMORY_MIB};
use crate::bench::peer::Peer;
use crate::bench::report::{Aim, Figure};
use crate::bench::statistics::Samples;
use crate::bench::{Plan, runtime};

/// What tells this program to be the process that is looked at.
pub(crate) const HOST_ONE_VM: &str = "--host-one-vm";
const KIB_PER_MIB: f64 = 1024.0;

/// Resident memory of this process, guest memory left out, in KiB.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Resident {
    /// Before a VM was made.
    without: u64,
    /// With one that has booted and run a command.
    with: u64,
}

/// `vmm_memory`.
pub(crate) fn figure(plan: &Plan, guests: &Guests) -> Result<Figure> {
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    let mut whole = 0;
    for _ in 0..plan.processes {
        let resident = in_a_process_of_its_own()?;
        whole = whole.max(resident.with);
        ours.push(resident.with.saturating_sub(resident.without) as f64 / KIB_PER_MIB);
        let peer = Peer::boot(&guests.bare)?;
        peers.push(resident_beside_guest(&peer.pid().to_string())? as f64 / KIB_PER_MIB);
    }
    let ours = Samples::new("vmm_memory", ours)?;
    let peers = Samples::new("QEMU memory", peers)?;
    let what = format!(
        "resident memory that a VM, booted and having run a command, adds to its process, guest \
         memory left out; with all else in it that process has {:.1} MiB",
        whole as f64 / KIB_PER_MIB
    );
    Ok(Figure::new(
        "vmm_memory",
        "MiB",
        what,
        ours,
        "code touched for the first time, stacks of the VM's threads, KVM's shared pages",
    )
    .peer("QEMU process", &peers)
    .aim(Aim::AtMost(3.0)))
}

fn in_a_process_of_its_own() -> Result<Resident> {
    let myself = std::env::current_exe().context("find this program")?;
    let done = Command::new(myself)
        .arg(HOST_ONE_VM)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run this program again")?;
    if !done.status.success() {
        bail!("the process with one VM failed: {}", done.status);
    }
    serde_json::from_slice(&done.stdout).context("understand what the process with one VM said")
}

/// Is that process: prints what it found out about itself as JSON.
pub(crate) fn host_one_vm() -> Result<()> {
    let guests = Guests::find()?;
    let runtime = runtime()?;
    let without = resident_beside_guest("self")?;
    let vm = runtime.block_on(
        Vm::builder()
            .image(guests.with_helper)
            .memory_mib(MEMORY_MIB)
            .start(),
    )?;
    runtime.block_on(vm.exec(HELPER, ["true"]).output())?;
    let with = resident_beside_guest("self")?;
    runtime.block_on(vm.close());
    println!("{}", serde_json::to_string(&Resident { without, with })?);
    Ok(())
}

/// Resident memory of a process beside its guest's memory, in KiB.
fn resident_beside_guest(process: &str) -> Result<u64> {
    let path = format!("/proc/{process}/smaps");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    Ok(resident_beside(&text, u64::from(MEMORY_MIB) << 10))
}

/// The sum of `Rss` over all mappings in `smaps`, in KiB, but for those that can hold a guest of
/// `guest` KiB.
fn resident_beside(smaps: &str, guest: u64) -> u64 {
    let mut sum = 0;
    let mut size = 0;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (field, value) = (words.next(), words.next().and_then(|v| v.parse().ok()));
        match (field, value) {
            (Some("Size:"), Some(value)) => size = value,
            (Some("Rss:"), Some(value)) if size < guest => sum += value,
            _ => {}
        }
    }
    sum
}

#[cfg(test)]
#[path = "memory_test.rs"]
mod tests;
