//! Developer tasks: `cargo xtask <task>`. One file per task.
//!
//! Every task that needs something that is not in the repository (packages, the guest kernel, the
//! rig) gets it first, from the cache or by building it; see `setup`.

#![forbid(unsafe_code)]

mod apt;
mod arrows;
mod bench;
mod demo;
mod dependencies;
mod experiment;
#[cfg(test)]
mod flow_contract_test;
mod fuzz;
mod here;
mod image;
mod images;
mod lint;
mod place;
mod rig;
mod setup;
mod terminal;
mod test;
mod verdict;
mod vm_tests;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::terminal::Terminal;

/// Developer tasks of forebay.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Gets everything the other tasks need: packages, guest kernel, default image, rig.
    Setup,
    /// Builds the default guest image and makes it this machine's default.
    Image,
    /// Real programs of Debian, each checking itself in a guest; needs the package archive.
    Images(images::Options),
    /// Boots a guest and shows what forebay does, checking every step.
    Demo,
    /// Formats, lints, docs, dependency arrows, all tests; VM tests in the rig where needed.
    Test(test::Options),
    /// Measures, beside QEMU where there is something to compare.
    Bench(bench::Options),
    /// Runs an experiment and reports it: table, CSV, JSON and a page with plots.
    Experiment(experiment::Options),
    /// Attacks the flow contract with the fuzz targets, guided by coverage.
    Fuzz(fuzz::Options),
    /// Runs a program of this machine, or a busybox command, inside the rig.
    Rig(rig::Options),
    /// Format, clippy and documentation, warnings denied; licences and sources of dependencies.
    Lint,
    /// Checks which crate may depend on which.
    Arrows,
}

fn main() -> ExitCode {
    let terminal = Terminal::new();
    let done = match Arguments::parse().task {
        Task::Setup => setup::task(&terminal),
        Task::Image => image::task(&terminal),
        Task::Images(options) => images::task(&options, &terminal),
        Task::Demo => demo::task(&terminal),
        Task::Test(options) => test::task(&options, &terminal),
        Task::Bench(options) => bench::task(&options, &terminal),
        Task::Experiment(options) => experiment::task(&options, &terminal),
        Task::Fuzz(options) => fuzz::task(&options, &terminal),
        Task::Rig(options) => rig::task(&options, &terminal),
        Task::Lint => lint::task(),
        Task::Arrows => arrows::task(),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
