//! `cargo xtask bench`: the benchmark program, twice. By counted instructions in the rig, where what
//! one processor does repeats to 0.1 % whatever the host does; by wall clock where guests run, for
//! what needs two processors to be told.
//!
//! Each run prints its table; the file has the figures of both, each with the load of this machine
//! around its run, since wall-clock figures taken beside other work are worth less.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use forebay_images::progress::Progress;
use forebay_rig::{Assets, RigCommand};
use serde_json::{Map, Value, json};

use crate::place::{self, Place};
use crate::setup::{self, Guest};
use crate::{rig, workspace};

/// For each of the two runs.
const DEADLINE: Duration = Duration::from_secs(3600);
/// The rig's, by wall clock.
const PROCESSORS: u8 = 2;
/// As users build it, unlike tests in the rig.
const PROFILE: &str = "release";
/// Where the program writes its figures in L1.
const FIGURES: &str = "/tmp/figures.json";
/// What the comparison with QEMU's own microVM needs beside its libraries, as on the host.
const PEER: [&str; 3] = [
    "/usr/bin/qemu-system-x86_64",
    "/usr/share/seabios",
    "/usr/share/qemu",
];

/// Of `flow`, by the program's names.
const PARTS: [&str; 6] = [
    "bounds",
    "controls",
    "stdout",
    "stdin",
    "latencies",
    "delayed",
];

#[derive(Args)]
pub(crate) struct Options {
    /// What to measure.
    #[arg(value_enum, default_value = "machine")]
    subject: Subject,
    /// Also write the figures to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Take fewer samples.
    #[arg(long)]
    quick: bool,
    /// Of `flow`, only this; may be given more than once. Bounds and delayed are by wall clock.
    #[arg(long, value_name = "PART", value_parser = PARTS)]
    only: Vec<String>,
    /// Only one of the two runs.
    #[arg(long, value_enum)]
    clock: Option<Clock>,
}

/// What can be measured, by the program's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Boots, round trips, rates and memory of a VM.
    Machine,
    /// What the flow contract costs; fails where a bound of it does not hold.
    Flow,
    /// What running a command costs: alone, beside others, on a terminal.
    Exec,
    /// What boots cost, over kernels, memory, vCPUs and images; builds and fetches those kernels.
    Boot,
    /// What pausing, saving and copying a VM costs.
    Snapshot,
}

/// What tells the time of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Clock {
    /// Instructions counted by the rig: boots and round trips of one processor.
    Instructions,
    /// The wall clock: rates and memory; where guests run on this machine, everything.
    Wall,
}

/// One figure, as the program wrote it.
type Figure = Map<String, Value>;

pub(crate) fn task(options: &Options, progress: &dyn Progress) -> Result<ExitCode> {
    if !options.only.is_empty() && options.subject != Subject::Flow {
        bail!("only `flow` has parts: leave --only out, or measure `flow`");
    }
    let mut guest = setup::guest(progress)?;
    if options.subject == Subject::Boot {
        guest = guest
            .with_cloud_kernel(progress)?
            .with_shared_kernel(progress)?;
    }
    let wanted = |clock| options.clock.is_none_or(|only| only == clock);
    let mut figures = Vec::new();
    if wanted(Clock::Instructions) {
        let assets = setup::rig(progress)?;
        let bench = workspace::build_program("forebay-tests", "forebay-bench", PROFILE)?;
        progress.note("bench by counted instructions, in the rig");
        figures.extend(under_load(progress, || {
            let command = place::counted(&bench, &guest).args(arguments("instructions", options));
            in_rig(command, &assets)
        })?);
    }
    if wanted(Clock::Wall) {
        let place = Place::find(progress)?;
        let bench = workspace::build_program("forebay-tests", "forebay-bench", PROFILE)?;
        progress.note(&format!("bench by wall clock, {}", place.name()));
        figures.extend(under_load(progress, || match &place {
            Place::Here => here(&bench, &guest, options),
            Place::Rig { assets, .. } => {
                // A guest and what reads from it side by side, which is what is measured.
                let command = place::with_guest(RigCommand::new(bench.to_string_lossy()), &guest)
                    .processors(PROCESSORS);
                in_rig(command.args(arguments("wall", options)), assets)
            }
        })?);
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_vec_pretty(&figures)?;
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        println!("{} figures in {}", figures.len(), path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn arguments(clock: &str, options: &Options) -> Vec<String> {
    let subject = match options.subject {
        Subject::Machine => "machine",
        Subject::Flow => "flow",
        Subject::Exec => "exec",
        Subject::Boot => "boot",
        Subject::Snapshot => "snapshot",
    };
    let mut arguments: Vec<_> = [subject, "--clock", clock].map(str::to_owned).into();
    if options.quick {
        arguments.push("--quick".to_owned());
    }
    for part in &options.only {
        arguments.extend(["--only".to_owned(), part.clone()]);
    }
    arguments
}

fn in_rig(command: RigCommand, assets: &Assets) -> Result<Vec<Figure>> {
    let mut command = command
        .args(["--json", FIGURES])
        .output(FIGURES)
        .deadline(DEADLINE);
    for path in PEER {
        command = command.file(path, path);
    }
    let outcome = forebay_rig::run(&command, assets, &mut rig::show)?;
    let whose = if !outcome.emulator_at_fault().is_empty() {
        "; the rig's emulator broke a guest meanwhile, which says nothing about the library: run it \
         again"
    } else {
        ""
    };
    if !outcome.status.success() {
        bail!("the benchmark failed: {:?}{whose}", outcome.status);
    }
    let file = outcome
        .file(FIGURES)
        .context("the benchmark left no figures")?;
    read(&file)
}

fn here(bench: &Path, guest: &Guest, options: &Options) -> Result<Vec<Figure>> {
    let file = workspace::root().join("target/figures.json");
    let mut arguments = arguments("wall", options);
    arguments.extend(["--json".to_owned(), file.to_string_lossy().into_owned()]);
    let ended = Place::Here.run(bench, &arguments, guest, DEADLINE, &mut rig::show)?;
    if !ended.success() {
        bail!("the benchmark failed: {:?}", ended.status);
    }
    read(&file)
}

fn read(path: &Path) -> Result<Vec<Figure>> {
    let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&text).context("understand the figures")
}

/// Runs, and notes in each figure and for the reader how loaded this machine was before and after.
fn under_load(
    progress: &dyn Progress,
    run: impl FnOnce() -> Result<Vec<Figure>>,
) -> Result<Vec<Figure>> {
    let before = load();
    let mut figures = run()?;
    let after = load();
    progress.note(&format!(
        "load of this machine over 1, 5 and 15 minutes: {before} before, {after} after; the \
         benchmark itself keeps up to {} processors busy",
        std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(PROCESSORS.into())
    ));
    for figure in &mut figures {
        let load = json!({ "before": before, "after": after });
        figure.insert("host_load".to_owned(), load);
    }
    Ok(figures)
}

/// Processes wanting a processor over the last minutes.
pub(crate) fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(
        |_| "unknown".to_owned(),
        |text| text.split(' ').take(3).collect::<Vec<_>>().join(" "),
    )
}
