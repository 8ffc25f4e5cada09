//! This repository, and building programs of it with cargo.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// `cargo` in the repository's root, the one that runs us.
pub(crate) fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root());
    command
}

/// Runs a command to its end; an error unless it ends with 0.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("run {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", shown(command));
    }
    Ok(())
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    command
        .get_args()
        .fold(name.to_string_lossy().into_owned(), |text, argument| {
            text + " " + &argument.to_string_lossy()
        })
}

/// A program that cargo built.
#[derive(Debug, Clone)]
pub(crate) struct Artifact {
    /// The target's name.
    pub(crate) name: String,
    /// The target's kind: `bin`, `lib`, `test`.
    pub(crate) kind: String,
    /// The executable.
    pub(crate) path: PathBuf,
}

/// Builds a program of a package in a profile.
pub(crate) fn build_program(package: &str, program: &str, profile: &str) -> Result<PathBuf> {
    let built = build(
        cargo().args(["build", "-p", package, "--bin", program]),
        profile,
        &[],
    )?;
    only(built, program)
}

/// Builds an example of a package in a profile.
pub(crate) fn build_example(package: &str, example: &str, profile: &str) -> Result<PathBuf> {
    let built = build(
        cargo().args(["build", "-p", package, "--example", example]),
        profile,
        &[],
    )?;
    only(built, example)
}

/// Builds a program linked statically, with nothing to relocate at start: what runs as a guest's
/// `/init` finds no dynamic linker there.
///
/// The flags go to the final crate alone. As `RUSTFLAGS` they would reach procedural macros, which
/// cannot be static, and the dependencies do not need them.
pub(crate) fn build_static(package: &str, program: &str) -> Result<PathBuf> {
    let built = build(
        cargo().args(["rustc", "-p", package, "--bin", program]),
        "guest",
        &[
            "-C",
            "target-feature=+crt-static",
            "-C",
            "relocation-model=static",
        ],
    )?;
    only(built, program)
}

/// Builds the programs under a package's `tests` in a profile, without running them. Its unit tests and
/// examples are left out.
pub(crate) fn build_tests(package: &str, profile: &str) -> Result<Vec<Artifact>> {
    build(
        cargo().args(["test", "-p", package, "--test", "*", "--no-run"]),
        profile,
        &[],
    )
}

fn only(built: Vec<Artifact>, program: &str) -> Result<PathBuf> {
    built
        .into_iter()
        .find(|artifact| artifact.name == program)
        .map(|artifact| artifact.path)
        .with_context(|| format!("cargo built no program {program}"))
}

/// Runs a cargo build and returns the executables among its artifacts, fresh ones included.
fn build(command: &mut Command, profile: &str, rustc: &[&str]) -> Result<Vec<Artifact>> {
    command.args([
        "--profile",
        profile,
        "--message-format=json-render-diagnostics",
    ]);
    if !rustc.is_empty() {
        command.arg("--").args(rustc);
    }
    let done = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run {}", shown(command)))?;
    if !done.status.success() {
        bail!("{} failed: {}", shown(command), done.status);
    }
    let mut built = Vec::new();
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        // Other messages of cargo have other fields.
        let Ok(message) = serde_json::from_str::<Message>(line) else {
            continue;
        };
        if let (Some(target), Some(path)) = (message.target, message.executable) {
            built.push(Artifact {
                name: target.name,
                kind: target.kind.into_iter().next().unwrap_or_default(),
                path,
            });
        }
    }
    Ok(built)
}

/// The part of cargo's `compiler-artifact` message that matters here.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}
