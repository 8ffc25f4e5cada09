//! `forebay adopt`: take over a command that was left in the VM of another program, end as it ends.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use forebay::{Client, ExecId};

use crate::command;
use crate::detach_keys::{DetachKeys, Watch};
use crate::invocation::EXIT_CODES;
use crate::status;

#[derive(Args)]
#[command(after_help = format!("\
Stdin, stdout and stderr are the command's from here on: its output goes on at the byte at which it \
was left, or at which the last one who had it stopped reading. {EXIT_CODES}

What is listed was left by `forebay exec --detach` or the library, or survived a restore that keeps \
what it finds. Signals are passed on as by `forebay exec`, and the end of this program ends the \
command, too."))]
pub(crate) struct Options {
    /// The socket of the VM, as given to `forebay run --attach-socket` or to the library.
    #[arg(long, value_name = "PATH")]
    attach: PathBuf,
    /// Gives the command, which has a terminal, this one.
    #[arg(short, long, requires = "id")]
    tty: bool,
    /// The keys that give the terminal back, as for `forebay exec`.
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    detach_keys: DetachKeys,
    /// The id that was printed when it was left; without one, lists those that can be adopted.
    id: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    command::seated(options.tty, async |process| {
        let size = process.terminal_size();
        let adopting = async {
            let client = Client::connect(&options.attach).await?;
            let Some(id) = options.id else {
                list(&client).await?;
                return Ok(None);
            };
            let Some(id) = ExecId::new(id) else {
                bail!("ids begin with 1");
            };
            let handle = client.adopt(id).await?.handle;
            match size {
                Some(size) => command::fit(handle, size).await.map(Some),
                None => Ok(Some(handle)),
            }
        };
        let adopted = tokio::select! {
            adopted = adopting => adopted?,
            signal = process.signals.next() => return Ok(status::of_signal(signal.number())),
        };
        match adopted {
            Some(handle) => {
                let keys = Watch::new(options.detach_keys.clone());
                command::go_on(handle, keys, process).await
            }
            None => Ok(0),
        }
    })
}

/// One id a line.
async fn list(client: &Client) -> Result<()> {
    let mut stdout = io::stdout();
    for id in client.adoptable().await? {
        writeln!(stdout, "{id}").context("cannot write the list")?;
    }
    Ok(())
}
