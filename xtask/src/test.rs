//! `cargo xtask test`: everything that must hold before a change goes in.

use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use forebay_images::progress::Progress;

use crate::place::Place;
use crate::verdict::Verdict;
use crate::workspace::{self, Artifact, cargo};
use crate::{arrows, fuzz, lint, place, setup, vm_tests};

/// The package whose integration tests boot guests.
const VM_TESTS: &str = "forebay-tests";
/// Of these, the one that boots the distribution's kernel too: its files are large to carry along.
const KERNEL_TESTS: &str = "kernels";
/// Of these, those begun first, so that none of them is left for the end, where nothing runs beside it.
const LONGEST: [&str; 4] = ["commands", "snapshot", "processes", "hostile"];
/// That package's benchmark, which tells them what memory is held; the variable names it to them.
const BENCH: (&str, &str) = ("FOREBAY_BENCH", "forebay-bench");

#[derive(Args)]
pub(crate) struct Options {
    /// Only the VM tests whose program is named so; may be repeated. Skips everything else.
    #[arg(long = "vm", value_name = "PROGRAM")]
    vm: Vec<String>,
    /// Processors of the rig's machines. On more than one, what runs side by side does so truly, and
    /// the emulator now and then breaks a guest.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    processors: u8,
    /// Passed to the VM test programs: a filter, or libtest options.
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn task(options: &Options, progress: &dyn Progress) -> Result<ExitCode> {
    // First of all, so that the guest kernel builds before cargo needs the processors.
    let mut guest = setup::guest(progress)?;
    let place = Place::with_processors(options.processors, progress)?;
    let mut total = Verdict::default();
    let mut summary = Vec::new();
    if options.vm.is_empty() {
        lint::all()?;
        arrows::check()?;
        let units = unit_tests()?;
        summary.push(("unit tests on this machine".to_owned(), units));
        summary.push((
            "fuzz targets, for a moment".to_owned(),
            fuzz::short(progress)?,
        ));
        if let Place::Rig { .. } = place {
            summary.push(("the rig's own tests".to_owned(), rig_tests()?));
        }
    }
    let command = workspace::build_program("forebay-cli", "forebay", place.profile())?;
    guest.named.push((place::COMMAND_VARIABLE, command));
    let bench = workspace::build_program(VM_TESTS, BENCH.1, place.profile())?;
    guest.named.push((BENCH.0, bench));
    let programs = workspace::build_tests(VM_TESTS, place.profile())?;
    for named in &options.vm {
        if !programs
            .iter()
            .any(|p| p.kind == "test" && p.name == *named)
        {
            let known: Vec<_> = chosen(&programs, &[]).map(|p| p.name.as_str()).collect();
            bail!(
                "there is no VM test program {named:?}; there are: {}",
                known.join(", ")
            );
        }
    }
    let mut with_guests = Vec::new();
    for program in chosen(&programs, &options.vm) {
        let guest = if program.name == KERNEL_TESTS {
            guest.clone().with_cloud_kernel(progress)?
        } else {
            guest.clone()
        };
        with_guests.push(vm_tests::Program {
            name: program.name.clone(),
            path: program.path.clone(),
            guest,
        });
    }
    with_guests.sort_by_key(|program| !LONGEST.contains(&program.name.as_str()));
    let verdicts = vm_tests::all(&with_guests, &options.arguments, &place);
    for (program, verdict) in with_guests.iter().zip(verdicts) {
        let what = format!("VM tests {} {}", program.name, place.name());
        summary.push((what, verdict));
    }
    println!();
    for (what, verdict) in summary {
        println!(
            "{what}: {} passed, {} failed",
            verdict.passed, verdict.failed
        );
        for failure in &verdict.failures {
            println!("  failed: {failure}");
        }
        for why in &verdict.repeated {
            println!("  ran again: {why}");
        }
        total += verdict;
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The integration tests among a package's test programs, all or those named.
fn chosen<'a>(programs: &'a [Artifact], named: &'a [String]) -> impl Iterator<Item = &'a Artifact> {
    programs
        .iter()
        .filter(|program| program.kind == "test")
        .filter(|program| named.is_empty() || named.contains(&program.name))
}

/// Everything that needs no guest: all packages' tests, and the harness's own.
fn unit_tests() -> Result<Verdict> {
    let mut verdict = Verdict::default();
    for arguments in [
        &["--workspace", "--exclude", VM_TESTS][..],
        &["-p", VM_TESTS, "--lib", "--bins"][..],
        // The hub under loom.
        &[
            "-p",
            "forebay-exec",
            "--features",
            "loom",
            "--lib",
            "loom_test",
        ][..],
    ] {
        verdict += counted(cargo().args(["test", "--no-fail-fast"]).args(arguments))?;
    }
    Ok(verdict)
}

/// The rig on itself, one L1 at a time.
fn rig_tests() -> Result<Verdict> {
    let init = setup::rig_init()?;
    let mut command = cargo();
    command
        .args(["test", "-p", "forebay-rig", "--test", "rig"])
        .args(["--", "--test-threads=1"])
        .env("FOREBAY_RIG_INIT", init);
    counted(&mut command)
}

fn counted(command: &mut Command) -> Result<Verdict> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("run cargo test")?;
    let mut output = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        let mut block = [0; 8192];
        loop {
            let n = stdout.read(&mut block).context("read from cargo test")?;
            if n == 0 {
                break;
            }
            std::io::stdout().write_all(&block[..n])?;
            output.extend_from_slice(&block[..n]);
        }
    }
    let status = child.wait().context("wait for cargo test")?;
    Ok(Verdict::read(
        &String::from_utf8_lossy(&output),
        status.success(),
    ))
}
