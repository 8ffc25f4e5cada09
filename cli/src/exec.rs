//! `forebay exec`: run in the VM of another program, end as the command ended.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use forebay::Client;
use tokio::runtime::Runtime;

use crate::command::{self, Invocation, Signals};
use crate::status;

#[derive(Args)]
#[command(after_help = "\
Stdin, stdout, stderr and the exit code are the command's, as with `forebay run`. SIGINT, SIGTERM \
and SIGHUP are passed on to the command; five seconds later, or at the second one, it is killed. It \
is also killed when this program ends in any other way; the VM goes on.")]
pub(crate) struct Options {
    /// The socket of the VM, as given to `forebay run --attach-socket` or to the library.
    #[arg(long, value_name = "PATH")]
    attach: PathBuf,
    #[command(flatten)]
    invocation: Invocation,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runtime = command::runtime()?;
    let code = drive(options, &runtime);
    // A thread that reads our stdin may be blocked in it for ever.
    runtime.shutdown_background();
    code.map(ExitCode::from)
}

fn drive(options: &Options, runtime: &Runtime) -> Result<u8> {
    let handle = runtime.handle().clone();
    runtime.block_on(async {
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        let client = tokio::select! {
            client = Client::connect(&options.attach) => client?,
            signal = signals.next() => return Ok(status::of_signal(signal.number())),
        };
        options.invocation.run(&client, handle, &mut signals).await
    })
}
