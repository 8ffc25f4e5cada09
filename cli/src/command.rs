//! One command in a guest, as this process: streams, signals, exit code. The same for a guest that
//! was booted for it and for one of another program's.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use forebay::{Client, ExecError, ExecExit, ExecHandle, ExecParts, Signal, Stdin};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep_until};

use crate::relay::{self, Relayed};
use crate::status::{self, complain};

/// What the command has, after a signal to us was passed on to it, before it is ended.
const GRACE: Duration = Duration::from_secs(5);

/// What is to be run.
#[derive(Args)]
pub(crate) struct Invocation {
    /// Sets an environment variable of the command; may be repeated.
    #[arg(short, long = "env", value_name = "KEY=VALUE", value_parser = OsStringValueParser::new().try_map(variable))]
    env: Vec<(OsString, OsString)>,
    /// Working directory of the command.
    #[arg(short = 'w', long = "workdir", value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// The command, looked up in the guest, and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl Invocation {
    /// Runs the command and gives the exit code; messages about it are printed here.
    pub(crate) async fn run(
        &self,
        client: &Client,
        runtime: Handle,
        signals: &mut Signals,
    ) -> Result<u8> {
        let Some((program, arguments)) = self.command.split_first() else {
            anyhow::bail!("no command given");
        };
        let mut exec = client
            .exec(program, arguments)
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdin::piped());
        if let Some(directory) = &self.workdir {
            exec = exec.current_dir(directory);
        }
        let spawned = tokio::select! {
            spawned = exec.spawn() => spawned,
            signal = signals.next() => return Ok(status::of_signal(signal.number())),
        };
        match spawned {
            Ok(command) => attend(command, runtime, signals).await,
            Err(error) => Ok(told(&error)),
        }
    }
}

/// The runtime of a command's run: one thread, beside those of the streams.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// From the command's start to its end.
async fn attend(command: ExecHandle, runtime: Handle, signals: &mut Signals) -> Result<u8> {
    let ExecParts {
        stdin,
        stdout,
        stderr,
        mut exit,
        ..
    } = command.split();
    let started = || "cannot start a thread for the standard streams";
    if let Some(sink) = stdin {
        relay::stdin(sink, runtime.clone()).with_context(started)?;
    }
    let control = exit.control();
    let stdout = relay::stdout(stdout, runtime.clone()).with_context(started)?;
    let stderr = relay::stderr(stderr, runtime).with_context(started)?;
    let mut end = std::pin::pin!(end(&mut exit, stdout, stderr));
    // The signal that was passed on, and when to wait no longer.
    let mut asked: Option<(Signal, Instant)> = None;
    loop {
        let patience = async {
            match asked {
                Some((signal, deadline)) => {
                    sleep_until(deadline).await;
                    signal
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            code = &mut end => return code,
            signal = signals.next() => match asked {
                None => {
                    asked = Some((signal, Instant::now() + GRACE));
                    // Refused only when the command has ended, and then its end comes.
                    let _ = control.signal(signal).await;
                }
                Some(_) => return Ok(status::of_signal(signal.number())),
            },
            signal = patience => return Ok(status::of_signal(signal.number())),
        }
    }
}

/// Waits until everything was written and the command has ended.
async fn end(exit: &mut ExecExit, stdout: Relayed, stderr: Relayed) -> Result<u8> {
    let failed = tokio::try_join!(written(stdout), written(stderr)).err();
    match failed {
        None => match exit.wait().await {
            Ok(ended) => Ok(status::of_command(&ended)),
            Err(error) => Ok(told(&error)),
        },
        // As quiet as a program that SIGPIPE ends.
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(status::BROKEN_PIPE),
        Some(error) => Err(error).context("cannot write the command's output"),
    }
}

async fn written(relayed: Relayed) -> io::Result<()> {
    relayed
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the thread that wrote it died")))
}

fn told(error: &ExecError) -> u8 {
    complain(&error.to_string());
    status::of_error(error)
}

/// The signals that ask this program to end.
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
            hang_up: unix::signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}

/// Splits `KEY=VALUE` at the first `=`. Names and values may be any bytes.
fn variable(text: OsString) -> Result<(OsString, OsString), &'static str> {
    let bytes = text.as_bytes();
    let at = bytes
        .iter()
        .position(|byte| *byte == b'=')
        .unwrap_or_default();
    match (bytes.get(..at), bytes.get(at + 1..)) {
        (Some(key), Some(value)) if !key.is_empty() => Ok((
            OsString::from_vec(key.to_vec()),
            OsString::from_vec(value.to_vec()),
        )),
        _ => Err("it is not KEY=VALUE"),
    }
}

#[cfg(test)]
#[path = "command_test.rs"]
mod tests;
