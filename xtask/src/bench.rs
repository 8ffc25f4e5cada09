//! `cargo xtask bench`: the benchmark program, twice: by wall clock where guests run, and by
//! counted instructions in the rig, which repeat to 0.1 % whatever the host does.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use forebay_images::progress::Progress;
use forebay_rig::{Assets, RigCommand};
use serde_json::Value;

use crate::place::{self, Place};
use crate::setup::{self, Guest};
use crate::{rig, workspace};

/// For each of the two runs.
const DEADLINE: Duration = Duration::from_secs(3600);
/// Where the program writes its figures.
const FIGURES: &str = "/tmp/figures.json";
/// What the comparison with QEMU's own microVM needs beside its libraries, as on the host.
const PEER: [&str; 3] = [
    "/usr/bin/qemu-system-x86_64",
    "/usr/share/seabios",
    "/usr/share/qemu",
];

#[derive(Args)]
pub(crate) struct Options {
    /// Also write the figures to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn task(options: &Options, progress: &dyn Progress) -> Result<ExitCode> {
    let guest = setup::guest(progress)?;
    let assets = setup::rig(progress)?;
    let bench = workspace::build_program("forebay-tests", "forebay-bench", "rig")?;
    let place = Place::find(progress)?;
    progress.note(&format!("load of this machine: {}", load()));

    let mut figures = Vec::new();
    let counted = place::counted(&bench, &guest).args(["--clock", "instructions"]);
    figures.extend(in_rig(counted, &assets)?);
    figures.extend(match place {
        Place::Here => here(&bench, &guest)?,
        Place::Rig(assets) => {
            let timed = place::with_guest(RigCommand::new(bench.to_string_lossy()), &guest)
                .args(["--clock", "wall"]);
            in_rig(timed, &assets)?
        }
    });
    if let Some(path) = &options.json {
        let text = serde_json::to_vec_pretty(&figures)?;
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn in_rig(command: RigCommand, assets: &Assets) -> Result<Vec<Value>> {
    let mut command = command
        .args(["--json", FIGURES])
        .output(FIGURES)
        .deadline(DEADLINE);
    for path in PEER {
        command = command.file(path, path);
    }
    let outcome = forebay_rig::run(&command, assets, &mut rig::show)?;
    if !outcome.status.success() {
        bail!("the benchmark failed: {:?}", outcome.status);
    }
    let file = outcome
        .file(FIGURES)
        .context("the benchmark left no figures")?;
    read(&file)
}

fn here(bench: &Path, guest: &Guest) -> Result<Vec<Value>> {
    let file = workspace::root().join("target/figures.json");
    let arguments = ["--clock", "wall", "--json", &file.to_string_lossy()].map(str::to_owned);
    let status = Place::Here.run(bench, &arguments, guest, DEADLINE, &mut |_| ())?;
    if !status.success() {
        bail!("the benchmark failed: {status:?}");
    }
    read(&file)
}

fn read(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&text).context("understand the figures")
}

/// Processes wanting a processor over the last minutes; figures taken beside others are worth less.
fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(
        |_| "unknown".to_owned(),
        |text| text.split(' ').take(3).collect::<Vec<_>>().join(" "),
    )
}
