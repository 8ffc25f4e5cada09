//! `cargo xtask fuzz`: the fuzz targets of `fuzz/`, guided by coverage, on the stable toolchain.
//!
//! libFuzzer wants instrumentation that cargo has no switch for; the flags below are those of
//! `cargo fuzz`, which needs a nightly toolchain only for sanitizers. The corpus stays below
//! `target/fuzz` and grows from run to run. An input that fails is saved beside it and replays
//! with `--replay`. A short run is a part of `cargo xtask test`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use forebay_images::progress::Progress;

use crate::apt;
use crate::verdict::Verdict;
use crate::workspace::{cargo, check, root, shown};

/// Instrumentation for coverage and comparisons.
const FLAGS: [&str; 7] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// libFuzzer itself is C++.
const PACKAGES: [&str; 1] = ["g++"];

/// Seconds that each target runs.
const LONG: u32 = 600;
const SHORT: u32 = 10;

#[derive(Args)]
pub(crate) struct Options {
    /// Only this target.
    target: Option<Target>,
    /// Seconds for each target.
    #[arg(long, value_name = "N", default_value_t = LONG, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Ten seconds for all targets side by side; says nothing unless one fails.
    #[arg(long, conflicts_with = "seconds")]
    short: bool,
    /// Runs the target on this input alone.
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with_all = ["seconds", "short"])]
    replay: Option<PathBuf>,
}

/// A program of `fuzz/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Target {
    /// Any frames from a guest, to the host's end of a connection.
    HostFrames,
    /// Any bytes from a host, to the guest's end.
    GuestBytes,
    /// Any bytes from clients, to the attach server.
    ClientBytes,
    /// Operations at both ends, against the model.
    Operations,
    /// A saved connection, changed anywhere.
    SavedState,
    /// A snapshot's state file, changed anywhere.
    StateFile,
    /// Any rings and chains, to the console device.
    Chains,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::HostFrames => "host_frames",
            Self::GuestBytes => "guest_bytes",
            Self::ClientBytes => "client_bytes",
            Self::Operations => "operations",
            Self::SavedState => "saved_state",
            Self::StateFile => "state_file",
            Self::Chains => "chains",
        }
    }

    /// Longest input worth trying, in bytes: some hundred steps.
    fn longest(self) -> u32 {
        match self {
            Self::Chains | Self::Operations | Self::SavedState | Self::StateFile => 1024,
            Self::HostFrames | Self::GuestBytes | Self::ClientBytes => 2048,
        }
    }
}

pub(crate) fn task(options: &Options, progress: &dyn Progress) -> Result<ExitCode> {
    let programs = build(progress)?;
    if let (Some(target), Some(file)) = (options.target, &options.replay) {
        let file = file
            .canonicalize()
            .with_context(|| format!("replay {}", file.display()))?;
        return run(Command::new(programs.join(target.name())).arg(file));
    }
    let targets: &[Target] = match &options.target {
        Some(target) => std::slice::from_ref(target),
        None => Target::value_variants(),
    };
    if options.short {
        let verdict = side_by_side(&programs, targets)?;
        return Ok(code(verdict.failed == 0));
    }
    for &target in targets {
        let seconds = options.seconds;
        println!("\n{}: {seconds} s", target.name());
        let done = run(&mut fuzz(&programs, target, seconds)?)?;
        if done != ExitCode::SUCCESS {
            eprintln!("{}", how_to_replay(target));
            return Ok(done);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All targets for ten seconds, for `cargo xtask test`.
pub(crate) fn short(progress: &dyn Progress) -> Result<Verdict> {
    side_by_side(&build(progress)?, Target::value_variants())
}

/// Runs targets at once, for a short time; shows what one that failed has said.
fn side_by_side(programs: &Path, targets: &[Target]) -> Result<Verdict> {
    let mut running: Vec<(Target, PathBuf, Child)> = Vec::new();
    for &target in targets {
        let log = directory().join(target.name()).with_extension("log");
        let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut command = fuzz(programs, target, SHORT)?;
        let child = command
            .stdout(file.try_clone().context("duplicate the log")?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("run {}", shown(&command)))?;
        running.push((target, log, child));
    }
    let mut verdict = Verdict::default();
    for (target, log, mut child) in running {
        if child.wait().context("wait for a fuzz target")?.success() {
            verdict.passed += 1;
            continue;
        }
        verdict.failed += 1;
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        eprintln!("{said}\n{}", how_to_replay(target));
    }
    Ok(verdict)
}

/// One target with its corpus, for its time.
fn fuzz(programs: &Path, target: Target, seconds: u32) -> Result<Command> {
    let name = target.name();
    let corpus = directory().join("corpus").join(name);
    let failures = failures(target);
    for path in [&corpus, &failures] {
        std::fs::create_dir_all(path).with_context(|| format!("create {}", path.display()))?;
    }
    let mut command = Command::new(programs.join(name));
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={}", target.longest()))
        .arg(format!("-artifact_prefix={}/", failures.display()))
        .args(["-timeout=20", "-rss_limit_mb=2048", "-use_value_profile=1"])
        // An input is a list of steps: short ones reach nothing.
        .args(["-len_control=0", "-verbosity=0", "-print_final_stats=1"])
        .arg(&corpus);
    Ok(command)
}

fn how_to_replay(target: Target) -> String {
    format!(
        "{0} failed; its input is in {1}. Again: cargo xtask fuzz {0} --replay FILE",
        target.name(),
        failures(target).display()
    )
}

/// Where a target's failing inputs go.
fn failures(target: Target) -> PathBuf {
    directory().join("failures").join(target.name())
}

/// Builds all targets; gives the directory of the programs.
fn build(progress: &dyn Progress) -> Result<PathBuf> {
    let architecture = std::env::consts::ARCH;
    if !cfg!(target_os = "linux") {
        bail!("the fuzz targets are built for Linux alone");
    }
    apt::ensure(&PACKAGES, progress)?;
    // Named explicitly, so that the flags do not reach build scripts and procedural macros.
    let triple = format!("{architecture}-unknown-linux-gnu");
    check(
        cargo()
            .args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml"])
            .args(["--target", &triple, "--target-dir"])
            .arg(directory())
            .env("RUSTFLAGS", FLAGS.join(" ")),
    )?;
    Ok(directory().join(triple).join("release"))
}

/// Where builds, corpus and failures are kept.
fn directory() -> PathBuf {
    root().join("target").join("fuzz")
}

/// Runs a fuzz program to its end.
fn run(command: &mut Command) -> Result<ExitCode> {
    let status = command
        .status()
        .with_context(|| format!("run {}", shown(command)))?;
    Ok(code(status.success()))
}

fn code(success: bool) -> ExitCode {
    if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
