//! Notices when the emulator has broken a guest.
//!
//! The emulator's virtualisation extension has faults that several emulated processors bring out,
//! about once in some minutes of busy guests. In one of them L1's registers are stored as the guest's
//! when it leaves: from then on that guest executes L1's addresses in L1's page tables, and hangs. KVM's
//! exit then names the address behind L1's own `vmrun` instruction as the guest's, which no sound
//! guest can have. In the other the guest dies of a triple fault. A guest may do that of its own
//! accord, but then it does so every time, so that whoever repeats a run for it sees it again. A kernel
//! that reboots itself by a triple fault does it with a breakpoint exception, and is not counted.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};

const TRACING: &str = "/sys/kernel/tracing";
/// Of our own, so that programs may trace as they like.
const INSTANCE: &str = "/sys/kernel/tracing/instances/forebay-rig";
/// KVM's function with the instruction that enters a guest, and a bound of its length.
const FUNCTION: &str = "__svm_vcpu_run";
const FUNCTION_LENGTH: u64 = 0x400;
/// Why a guest leaves that met an exception it cannot take: `SVM_EXIT_SHUTDOWN`.
const SHUTDOWN: u32 = 0x7f;
/// The event whose delivery failed when a kernel reboots by a triple fault: a valid software
/// exception, vector 3.
const REBOOT: u32 = 0x8000_0403;

/// How many exits are told.
const TOLD: usize = 4;

/// Looks from its creation on.
pub(crate) struct Witness(());

impl Witness {
    /// Begins to look; KVM's modules must be loaded.
    pub(crate) fn begin() -> Result<Self> {
        let symbols = fs::read_to_string("/proc/kallsyms").context("read L1's symbols")?;
        let start =
            address(&symbols, FUNCTION).with_context(|| format!("L1's KVM has no {FUNCTION}"))?;
        let end = start.saturating_add(FUNCTION_LENGTH);
        mount("tracefs", TRACING, "tracefs", MountFlags::empty(), None)
            .context("mount tracefs in L1")?;
        fs::create_dir(INSTANCE).context("create a trace of L1")?;
        write("buffer_size_kb", "16")?;
        write(
            "events/kvm/kvm_exit/filter",
            &format!(
                "(guest_rip >= {start:#x} && guest_rip < {end:#x}) || \
                 (exit_reason == {SHUTDOWN:#x} && intr_info != {REBOOT:#x})"
            ),
        )?;
        write("events/kvm/kvm_exit/enable", "1")?;
        Ok(Self(()))
    }

    /// The first few such exits. The buffer keeps the newest hundreds, so there is one if there was.
    pub(crate) fn seen(&self) -> Result<Vec<String>> {
        let trace = fs::read_to_string(Path::new(INSTANCE).join("trace"))
            .context("read the trace of L1")?;
        Ok(entries(&trace).take(TOLD).map(str::to_owned).collect())
    }
}

fn write(file: &str, value: &str) -> Result<()> {
    let path = Path::new(INSTANCE).join(file);
    fs::write(&path, value).with_context(|| format!("write {value:?} to {}", path.display()))
}

/// A symbol's address in the form of `/proc/kallsyms`: `ffffffffc0698510 t name\t[module]`.
fn address(symbols: &str, name: &str) -> Option<u64> {
    symbols.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next()?;
        (words.nth(1)? == name).then(|| u64::from_str_radix(address, 16).ok())?
    })
}

/// The lines of a trace that are not its heading.
fn entries(trace: &str) -> impl Iterator<Item = &str> {
    let lines = trace.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
#[path = "witness_test.rs"]
mod tests;
