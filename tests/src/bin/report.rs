//! `forebay-report`: makes table, CSV and page of what an experiment measured. Runs on the host; see
//! `cargo xtask experiment`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use forebay_tests::experiment::outcome::{Machine, Outcome};
use forebay_tests::experiment::report::{Host, Report};

/// Reports what an experiment measured. Ends with 1 if one of its samples failed.
#[derive(Parser)]
#[command(name = "forebay-report")]
struct Arguments {
    /// What the experiment wrote.
    measured: PathBuf,
    /// Where the report's files go.
    directory: PathBuf,
    /// Where the experiment ran.
    #[arg(long, default_value = "on this machine")]
    place: String,
    /// The cargo profile that it was built in.
    #[arg(long, default_value = "unknown")]
    profile: String,
    /// When it began.
    #[arg(long, default_value = "unknown")]
    began: String,
    /// Which version it was built from.
    #[arg(long, default_value = "unknown")]
    commit: String,
    /// Load of this machine before.
    #[arg(long, default_value = "unknown")]
    load_before: String,
    /// Load of this machine after.
    #[arg(long, default_value = "unknown")]
    load_after: String,
    /// Something else that a reader must know; may be repeated.
    #[arg(long = "note", value_name = "TEXT")]
    notes: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let report = Report {
        outcome: Outcome::read(&arguments.measured)?,
        host: Host {
            place: arguments.place,
            profile: arguments.profile,
            began: arguments.began,
            commit: arguments.commit,
            load_before: arguments.load_before,
            load_after: arguments.load_after,
            notes: arguments.notes,
            machine: Machine::here(),
        },
    };
    report.write(&arguments.directory)?;
    println!("{}", report.text());
    println!("{}", arguments.directory.join("report.html").display());
    let failed = report.outcome.failures().count();
    if failed > 0 {
        println!(
            "{failed} of {} samples failed",
            report.outcome.samples.len()
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
