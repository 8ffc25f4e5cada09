//! The `forebay` command: run one command in a fresh microVM or in one that another program has, or
//! look whether this host can.
//!
//! | module | owns |
//! |---|---|
//! | [`run`] | `forebay run` and `forebay shell`: boot, run, end |
//! | [`image`] | `forebay image`: building images, and their cache |
//! | [`exec`] | `forebay exec`: attach, run |
//! | [`adopt`] | `forebay adopt`: attach, take over what was left |
//! | [`snapshot`] | `forebay snapshot` and `forebay restore`: a VM that is saved, a command in a copy |
//! | [`fork`] | `forebay fork`: many copies, and what each took |
//! | [`top`] | `forebay top`: who is slow |
//! | [`invocation`], [`values`] | the options of all that run a command, as one request |
//! | [`command`] | one command from its start to its end: streams, terminal, signals, exit code |
//! | [`relay`] | this process's standard streams to and from the command's |
//! | [`terminal`], [`detach_keys`] | this terminal while the command has it; the keys that leave it |
//! | [`signals`] | signals that would end this program, for the command |
//! | [`status`] | exit codes |
//! | [`doctor`] | `forebay doctor` |
//!
//! Everything else is the library's. `FOREBAY_LOG` (the syntax of `RUST_LOG`) turns on its trace,
//! on standard error.

#![forbid(unsafe_code)]

mod adopt;
mod command;
mod detach_keys;
mod doctor;
mod exec;
mod fork;
mod image;
mod invocation;
mod relay;
mod run;
mod signals;
mod snapshot;
mod status;
mod terminal;
mod top;
mod values;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// The variable that turns the trace on.
const LOG_VARIABLE: &str = "FOREBAY_LOG";

/// Run commands in microVMs.
#[derive(Parser)]
#[command(
    name = "forebay",
    version,
    after_help = "FOREBAY_LOG=debug (or a filter in the syntax of RUST_LOG) traces to stderr."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Boots a microVM, runs one command in it and ends as the command did.
    Run(run::Options),
    /// Boots a microVM with its shell at this terminal.
    Shell(run::ShellOptions),
    /// Builds guest images, lists, shows and removes them.
    Image(image::Options),
    /// Runs one command in the microVM of another program and ends as the command did.
    Exec(exec::Options),
    /// Takes over a command that was left in the microVM of another program, or lists those.
    Adopt(adopt::Options),
    /// Boots a microVM, runs a command in it if one is given, and saves the VM.
    Snapshot(snapshot::SnapshotOptions),
    /// Runs one command in a copy of a saved microVM and ends as the command did.
    Restore(snapshot::RestoreOptions),
    /// Starts many copies of one microVM, runs a command in each, and says what each of them took.
    Fork(fork::Options),
    /// Shows who is slow in the microVM of another program, live.
    Top(top::Options),
    /// Says whether this host can run microVMs and, if not, what to do.
    Doctor(doctor::Options),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(answer) => {
            // Help and version are answers on stdout; anything else is an error like all of ours.
            let wrong = answer.use_stderr();
            // With that stream closed there is nowhere left to say so.
            let _ = answer.print();
            return if wrong {
                status::OUR_FAILURE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match trace().and_then(|()| match arguments.command {
        Command::Run(options) => run::run(&options),
        Command::Shell(options) => run::shell(&options),
        Command::Image(options) => image::run(&options),
        Command::Exec(options) => exec::run(&options),
        Command::Adopt(options) => adopt::run(&options),
        Command::Snapshot(options) => snapshot::snapshot(&options),
        Command::Restore(options) => snapshot::restore(&options),
        Command::Fork(options) => fork::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Doctor(options) => doctor::run(&options),
    }) {
        Ok(code) => code,
        Err(error) => {
            status::complain(&status::told(&error));
            status::OUR_FAILURE.into()
        }
    }
}

/// Sends the library's trace to stderr, if it was asked for.
fn trace() -> Result<()> {
    let Some(filter) = std::env::var_os(LOG_VARIABLE).filter(|filter| !filter.is_empty()) else {
        return Ok(());
    };
    let filter = EnvFilter::try_new(filter.to_string_lossy())
        .with_context(|| format!("{LOG_VARIABLE} cannot be understood"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}
