//! `forebay exec`: run in the VM of another program, end as the command ended.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use forebay::Client;

use crate::command;
use crate::invocation::{EXIT_CODES, Invocation};
use crate::run::TERMINAL;
use crate::status;

#[derive(Args)]
#[command(after_help = format!("\
Stdin, stdout and stderr are the command's. {EXIT_CODES}

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGALRM are passed on to the command; five \
seconds after one of the first four, or at the next of them, it is killed. One that was ignored when this program began \
(nohup) stays ignored. The command is also killed when this program ends in any other way; the VM \
goes on. With --detach this program ends when the command runs, and the command lives on: once what \
it writes fills its allowance it waits, and it holds its place among the VM's executions, until \
`forebay adopt` takes it over or the VM ends.

With -t: {TERMINAL}"))]
pub(crate) struct Options {
    /// The socket of the VM, as given to `forebay run --attach-socket` or to the library.
    #[arg(long, value_name = "PATH")]
    attach: PathBuf,
    /// Leaves the command running, with its output kept for whoever adopts it, and prints the id for
    /// `forebay adopt`. It has no stdin; with -i it gets that of whoever adopts it.
    #[arg(short, long, conflicts_with = "tty")]
    detach: bool,
    #[command(flatten)]
    invocation: Invocation,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    command::within(&options.invocation, async |process| {
        let client = tokio::select! {
            client = Client::connect(&options.attach) => client?,
            signal = process.signals.next() => return Ok(status::of_signal(signal.number())),
        };
        if options.detach {
            return command::leave(&options.invocation, &client, process).await;
        }
        command::run(&options.invocation, &client, process).await
    })
}
