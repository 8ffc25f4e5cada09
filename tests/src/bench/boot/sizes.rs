//! Boots over what a user chooses: kernel, memory, vCPUs, image.

use std::path::Path;

use anyhow::{Context, Result};
use forebay_guest_helper::pattern::Pattern;
use forebay_images::InitramfsBuilder;
use tokio::runtime::Runtime;

use crate::bench::Clock;
use crate::bench::boot::Plan;
use crate::bench::boot::kernels::{Kernel, Kernels};
use crate::bench::boot::parts::{self, Case};
use crate::bench::guest::{Guests, MEMORY_MIB};
use crate::bench::table::Table;

/// Sizes of guests, in MiB.
const MEMORY: [u32; 4] = [64, 256, 1024, 4096];
const VCPUS: [u8; 3] = [1, 2, 4];
/// What is added to the image, in MiB.
const PADDING: [usize; 3] = [0, 64, 256];
/// Of a guest that can hold all of that, in MiB.
const ROOMY_MIB: u32 = 1024;
/// Bytes of a file that is added.
const FILE: usize = 64 << 10;

/// `boot_kernel`.
pub(crate) fn kernels(
    plan: &Plan,
    guests: &Guests,
    kernels: &Kernels,
    runtime: &Runtime,
) -> Result<Table> {
    let all = [
        &kernels.minimal,
        &kernels.shared,
        &kernels.debian,
        &kernels.bzimage,
    ];
    let cases = all.map(|kernel| (vec![kernel.name.to_owned()], usual(kernel, guests)));
    let what = format!("The default image in a guest of {MEMORY_MIB} MiB and one vCPU.");
    let about = ("boot_kernel", what.as_str());
    parts::table(plan, runtime, about, &["kernel"], &cases)
}

/// `boot_memory`.
pub(crate) fn memory(
    plan: &Plan,
    guests: &Guests,
    kernels: &Kernels,
    runtime: &Runtime,
) -> Result<Table> {
    let mut cases = Vec::new();
    for kernel in [&kernels.minimal, &kernels.debian] {
        for memory_mib in MEMORY.map(|mib| mib.max(kernel.least_mib)) {
            let case = Case {
                memory_mib,
                ..usual(kernel, guests)
            };
            cases.push((heads(kernel, memory_mib), case));
        }
    }
    let about = ("boot_memory", "The default image, one vCPU.");
    parts::table(plan, runtime, about, &["kernel", "MiB"], &cases)
}

/// `boot_vcpus`.
pub(crate) fn vcpus(
    plan: &Plan,
    guests: &Guests,
    kernels: &Kernels,
    runtime: &Runtime,
) -> Result<Table> {
    // Spinning is what the emulator is slowest at: each PAUSE leaves its loop. Guests whose vCPUs wait for
    // each other on the one processor of counted instructions are emulated for many minutes.
    let kernels_and_most: &[(&Kernel, u8)] = match plan.clock {
        Clock::Instructions => &[(&kernels.minimal, 2), (&kernels.shared, 4)],
        Clock::Wall => &[
            (&kernels.minimal, 4),
            (&kernels.shared, 4),
            (&kernels.debian, 4),
        ],
    };
    let mut cases = Vec::new();
    for (kernel, most) in kernels_and_most {
        for cpus in VCPUS.into_iter().filter(|cpus| cpus <= most) {
            let case = Case {
                cpus,
                ..usual(kernel, guests)
            };
            cases.push((heads(kernel, cpus), case));
        }
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let what = format!(
        "The default image in a guest of {MEMORY_MIB} MiB, on a host of {processors} processor{}.",
        if processors == 1 { "" } else { "s" }
    );
    let about = ("boot_vcpus", what.as_str());
    parts::table(plan, runtime, about, &["kernel", "vCPUs"], &cases)
}

/// `boot_image`.
pub(crate) fn images(
    plan: &Plan,
    guests: &Guests,
    kernels: &Kernels,
    runtime: &Runtime,
) -> Result<Table> {
    let directory = tempfile::tempdir().context("make a directory for layers")?;
    let mut layers = Vec::new();
    for mib in PADDING {
        let layer = (mib > 0).then(|| directory.path().join(format!("{mib}.cpio")));
        if let Some(layer) = &layer {
            pad(layer, mib)?;
        }
        layers.push((mib, layer));
    }
    let mut cases = Vec::new();
    for kernel in [&kernels.minimal, &kernels.debian] {
        for (mib, layer) in &layers {
            let case = Case {
                layer: layer.as_deref(),
                memory_mib: ROOMY_MIB,
                ..usual(kernel, guests)
            };
            cases.push((heads(kernel, mib), case));
        }
    }
    let what = format!(
        "The default image and so many MiB more in files of {} KiB, in a guest of {ROOMY_MIB} MiB and \
         one vCPU.",
        FILE >> 10
    );
    let about = ("boot_image", what.as_str());
    parts::table(plan, runtime, about, &["kernel", "MiB more"], &cases)
}

/// What everything else differs from in one thing.
fn usual<'a>(kernel: &'a Kernel, guests: &'a Guests) -> Case<'a> {
    Case {
        kernel,
        image: &guests.image,
        layer: None,
        memory_mib: MEMORY_MIB,
        cpus: 1,
    }
}

fn heads(kernel: &Kernel, size: impl ToString) -> Vec<String> {
    vec![kernel.name.to_owned(), size.to_string()]
}

/// An initramfs layer with files of so many MiB, which hold what nothing can make smaller.
fn pad(path: &Path, mib: usize) -> Result<()> {
    let mut layer = InitramfsBuilder::new();
    let mut pattern = Pattern::new(mib as u64);
    for number in 0..(mib << 20) / FILE {
        layer.file(&format!("padding/{number}"), 0o644, pattern.take(FILE));
    }
    Ok(layer.write_file(path)?)
}
