//! `cargo xtask experiment NAME`: an experiment on snapshots, executions or whatever else, where there
//! is real KVM.
//!
//! An experiment is a program below `tests/examples`. It measures, in the rig where guests cannot run
//! here; `forebay-report` then makes table, CSV and page of that on this machine, which alone knows
//! its own load.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use forebay_images::progress::Progress;
use forebay_rig::{Assets, RigCommand};

use crate::bench::load;
use crate::place::{self, Place};
use crate::setup::{self, Guest};
use crate::{rig, workspace};

const DEADLINE: Duration = Duration::from_secs(2 * 3600);
/// Where experiments are, one file each.
const DIRECTORY: &str = "tests/examples";
/// Where the program writes in L1.
const MEASURED: &str = "/tmp/measured.json";

#[derive(Args)]
pub(crate) struct Options {
    /// Which experiment.
    name: String,
    /// Take fewer samples.
    #[arg(long)]
    quick: bool,
    /// Repeats the order of an earlier run, which printed this number.
    #[arg(long, value_name = "N")]
    seed: Option<String>,
    /// What tells the time.
    #[arg(long, value_enum, default_value = "wall")]
    clock: Clock,
}

/// What tells the time of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Clock {
    /// The wall clock, on this machine if guests run here.
    Wall,
    /// Instructions counted by the rig: repeats whatever this machine does, for one processor.
    Instructions,
}

pub(crate) fn task(options: &Options, progress: &dyn Progress) -> Result<ExitCode> {
    let name = known(&options.name, &workspace::root().join(DIRECTORY))?;
    let guest = setup::guest(progress)?;
    let place = match options.clock {
        Clock::Wall => Place::find(progress)?,
        Clock::Instructions => Place::Rig {
            assets: Box::new(setup::rig(progress)?),
            processors: 1,
        },
    };
    let experiment = workspace::build_example("forebay-tests", &name, place.profile())?;
    let report = workspace::build_program("forebay-tests", "forebay-report", place.profile())?;
    let directory = workspace::root().join("target/experiments").join(&name);
    fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
    let measured = directory.join("measured.json");

    let mut report = Command::new(report);
    report.args([&measured, &directory]);
    report.args(["--place", place.name(), "--profile", place.profile()]);
    report.args(["--began", &said("date", &["-u", "+%F %T UTC"])]);
    report.args([
        "--commit",
        &said("git", &["describe", "--always", "--dirty"]),
    ]);
    report.args(["--load-before", &load()]);
    progress.note(&format!("experiment {name}, {}", place.name()));
    let beware = match &place {
        Place::Here => {
            here(&experiment, &guest, options, &measured)?;
            None
        }
        Place::Rig { assets, .. } => in_rig(&experiment, &guest, assets, options, &measured)?,
    };
    report.args(["--load-after", &load()]);
    if let Some(why) = beware {
        report.args(["--note", &format!("Beware: {why}.")]);
    }
    let status = report.status().context("run forebay-report")?;
    // All of it is in the report's own file.
    fs::remove_file(&measured).with_context(|| format!("remove {}", measured.display()))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The experiment of that name; otherwise the error names all that there are.
fn known(name: &str, directory: &Path) -> Result<String> {
    let mut names = Vec::new();
    let found = fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    for file in found {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned()),
            );
        }
    }
    if !names.iter().any(|known| known == name) {
        names.sort();
        bail!(
            "there is no experiment {name:?}; there are: {} (files of {DIRECTORY}, where a new one \
             can be put)",
            names.join(", ")
        );
    }
    Ok(name.to_owned())
}

fn arguments(options: &Options, out: &str) -> Vec<String> {
    let clock = match options.clock {
        Clock::Wall => "wall",
        Clock::Instructions => "instructions",
    };
    let mut arguments: Vec<_> = ["--out", out, "--clock", clock].map(str::to_owned).into();
    if options.quick {
        arguments.push("--quick".to_owned());
    }
    if let Some(seed) = &options.seed {
        arguments.extend(["--seed".to_owned(), seed.clone()]);
    }
    arguments
}

fn here(experiment: &Path, guest: &Guest, options: &Options, measured: &Path) -> Result<()> {
    let arguments = arguments(options, &measured.to_string_lossy());
    let ended = Place::Here.run(experiment, &arguments, guest, DEADLINE, &mut rig::show)?;
    if !ended.success() {
        bail!("the experiment failed: {:?}", ended.status);
    }
    Ok(())
}

/// What was measured, and why it may be worth little.
fn in_rig(
    experiment: &Path,
    guest: &Guest,
    assets: &Assets,
    options: &Options,
    measured: &Path,
) -> Result<Option<String>> {
    let command = match options.clock {
        Clock::Wall => place::with_guest(RigCommand::new(experiment.to_string_lossy()), guest),
        Clock::Instructions => place::counted(experiment, guest),
    };
    let command = command
        .args(arguments(options, MEASURED))
        .output(MEASURED)
        .deadline(DEADLINE);
    let outcome = forebay_rig::run(&command, assets, &mut rig::show)?;
    let beware = place::emulator_at_fault(&outcome);
    if !outcome.status.success() {
        let beware = beware.map_or_else(String::new, |why| format!("; {why}: run it again"));
        bail!("the experiment failed: {:?}{beware}", outcome.status);
    }
    let file = outcome
        .file(MEASURED)
        .context("the experiment left nothing")?;
    fs::copy(&file, measured).with_context(|| format!("write {}", measured.display()))?;
    Ok(beware)
}

/// What a command prints, for the report alone: without it that says `unknown`.
fn said(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program)
        .args(arguments)
        .current_dir(workspace::root())
        .output();
    match done {
        Ok(done) if done.status.success() => {
            String::from_utf8_lossy(&done.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
#[path = "experiment_test.rs"]
mod tests;
