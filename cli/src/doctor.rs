//! `forebay doctor`: the library's checks of this host, for people and for scripts.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use forebay::doctor::{Check, examine, is_fit};

#[derive(Args)]
#[command(after_help = "\
Ends with 0 if microVMs can run here (warnings are no reason against it), 1 if not, and 125 if that
could not be found out.

With --json there is an array of objects with three strings each: `name`, one of KVM, guests,
descriptors, threads, memory, `control group`, `address space`, overcommit and image, or of more to
come; `outcome`, one of good, warning and bad; and `detail`, for people: what was found, and what to
do if that is not good.")]
pub(crate) struct Options {
    /// Prints the checks as JSON.
    #[arg(long, conflicts_with = "probe")]
    json: bool,
    /// Only asks whether this KVM runs unmodified guests, and says so in one line.
    #[arg(long)]
    probe: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (text, fit) = if options.probe {
        probe()
    } else {
        all(options.json)?
    };
    match writeln!(io::stdout(), "{text}") {
        // The reader had enough; the exit code still answers.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("cannot write to stdout")?,
    }
    Ok(if fit {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn probe() -> (String, bool) {
    match forebay::probe() {
        Ok(()) => ("this KVM runs guests".to_owned(), true),
        Err(error) => (format!("guests cannot run here: {error}"), false),
    }
}

fn all(json: bool) -> Result<(String, bool)> {
    let checks = examine();
    let text = if json {
        serde_json::to_string_pretty(&checks).context("cannot write the checks as JSON")?
    } else {
        checks
            .iter()
            .map(Check::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    Ok((text, is_fit(&checks)))
}
