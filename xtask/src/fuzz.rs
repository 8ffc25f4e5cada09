//! `cargo xtask fuzz`: the fuzz targets of `fuzz/`, guided by coverage, on the stable toolchain.
//!
//! libFuzzer wants instrumentation that cargo has no switch for; the flags below are those of
//! `cargo fuzz`, which needs a nightly toolchain only for sanitizers. The corpus stays below
//! `target/fuzz` and grows from run to run. An input that fails is saved beside it and replays
//! with `--replay`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

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
    /// Ten seconds for each target.
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
    /// Operations at both ends, against the model.
    Operations,
    /// Any rings and chains, to the console device.
    Chains,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::HostFrames => "host_frames",
            Self::GuestBytes => "guest_bytes",
            Self::Operations => "operations",
            Self::Chains => "chains",
        }
    }

    /// Longest input worth trying, in bytes: some hundred steps.
    fn longest(self) -> u32 {
        match self {
            Self::Chains | Self::Operations => 1024,
            Self::HostFrames | Self::GuestBytes => 2048,
        }
    }
}

pub(crate) fn task(options: &Options) -> Result<ExitCode> {
    let programs = build()?;
    if let (Some(target), Some(file)) = (options.target, &options.replay) {
        let file = file
            .canonicalize()
            .with_context(|| format!("replay {}", file.display()))?;
        return run(Command::new(programs.join(target.name())).arg(file));
    }
    let seconds = if options.short {
        SHORT
    } else {
        options.seconds
    };
    let targets: &[Target] = match &options.target {
        Some(target) => std::slice::from_ref(target),
        None => Target::value_variants(),
    };
    for &target in targets {
        if fuzz(&programs, target, seconds)? != ExitCode::SUCCESS {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs one target for its time.
fn fuzz(programs: &Path, target: Target, seconds: u32) -> Result<ExitCode> {
    let name = target.name();
    let corpus = directory().join("corpus").join(name);
    let failures = directory().join("failures").join(name);
    for path in [&corpus, &failures] {
        std::fs::create_dir_all(path).with_context(|| format!("create {}", path.display()))?;
    }
    println!("\n{name}: {seconds} s");
    let code = run(Command::new(programs.join(name))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={}", target.longest()))
        .arg(format!("-artifact_prefix={}/", failures.display()))
        .args(["-timeout=20", "-rss_limit_mb=2048", "-use_value_profile=1"])
        // An input is a list of steps: short ones reach nothing.
        .args(["-len_control=0", "-verbosity=0", "-print_final_stats=1"])
        .arg(&corpus))?;
    if code != ExitCode::SUCCESS {
        eprintln!(
            "{name} failed; its input is in {}. Again: cargo xtask fuzz {name} --replay FILE",
            failures.display()
        );
    }
    Ok(code)
}

/// Builds all targets; gives the directory of the programs.
fn build() -> Result<PathBuf> {
    let architecture = std::env::consts::ARCH;
    if !cfg!(target_os = "linux") {
        bail!("the fuzz targets are built for Linux alone");
    }
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
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
