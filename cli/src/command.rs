//! One command in a guest, as this process: streams, terminal, signals, exit code. The same for a
//! guest that was booted for it and for one of another program's.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io::{self, Write as _};
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay::{
    Client, ControlError, ExecControl, ExecError, ExecExit, ExecHandle, ExecId, ExecParts,
    ExecSink, ExitStatus, Signal, Stdin, TerminalSize,
};
use rustix::io::Errno;
use rustix::termios::isatty;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::detach_keys::Watch;
use crate::invocation::Invocation;
use crate::relay::{self, Relayed};
use crate::signals::Signals;
use crate::status::{self, complain};
use crate::terminal::{Raw, Terminal};

/// What the command has, after a signal to us was passed on to it, before it is ended.
const GRACE: Duration = Duration::from_secs(5);

/// What the last of its output has to get out, when the command is left, before that is said.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Said when the command was left.
const LEFT: &str = "detached: the command runs on without a terminal, and what it writes is \
    discarded. This program stays until it ends: ^Z and bg give the prompt back, closing the \
    window does no harm, ^C ends the command";

/// What this process gives to a command.
pub(crate) struct Process {
    pub(crate) signals: Signals,
    runtime: Handle,
    terminal: Option<Terminal>,
}

impl Process {
    /// The size of the terminal that is for the command, if one is.
    pub(crate) fn terminal_size(&self) -> Option<TerminalSize> {
        self.terminal.as_ref().map(Terminal::size)
    }
}

/// How the wait for a command ended.
enum Ended {
    /// By the command's end, as far as it is known.
    Command(Result<ExitStatus, ExecError>),
    /// Its output could not be written any more.
    Output(io::Error),
    /// By a signal to us: the second one, or one that the command did not heed.
    Signal(Signal),
}

/// Does all of a run within a runtime: one thread, beside those of the streams.
pub(crate) fn within(
    invocation: &Invocation,
    run: impl AsyncFnOnce(&mut Process) -> Result<u8>,
) -> Result<ExitCode> {
    seated(invocation.wants_terminal(), run)
}

/// The same, with this terminal for the command if it is to be at one.
pub(crate) fn seated(
    at_terminal: bool,
    run: impl AsyncFnOnce(&mut Process) -> Result<u8>,
) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let handle = runtime.handle().clone();
    let code = runtime.block_on(async {
        let mut process = Process {
            signals: Signals::listen().context("cannot listen for signals")?,
            runtime: handle,
            terminal: at_terminal.then(Terminal::of_stdin).transpose()?,
        };
        run(&mut process).await
    });
    // A thread that reads our stdin may be blocked in it for ever.
    runtime.shutdown_background();
    code.map(ExitCode::from)
}

/// Runs the command and gives the exit code; messages about it are printed here.
pub(crate) async fn run(
    invocation: &Invocation,
    client: &Client,
    process: &mut Process,
) -> Result<u8> {
    let exec = invocation.request(client, process.terminal_size())?;
    let spawned = tokio::select! {
        spawned = exec.spawn() => spawned,
        signal = process.signals.next() => return Ok(status::of_signal(signal.number())),
    };
    match spawned {
        Ok(command) => go_on(command, invocation.detach_keys(), process).await,
        Err(error) => report(Ended::Command(Err(error))),
    }
}

/// Starts the command and leaves it to whoever adopts it by the id that is printed here. Nothing of
/// our stdin is passed on, so it has none, unless it is to get one from whoever adopts it.
pub(crate) async fn leave(
    invocation: &Invocation,
    client: &Client,
    process: &mut Process,
) -> Result<u8> {
    let mut exec = invocation.request(client, None)?;
    if !invocation.is_interactive() {
        exec = exec.stdin(Stdin::null());
    }
    let left = async { Ok::<_, ExecError>(exec.spawn().await?.leave().await) };
    let left = tokio::select! {
        left = left => left,
        signal = process.signals.next() => return Ok(status::of_signal(signal.number())),
    };
    match left {
        Ok(Ok(id)) => {
            writeln!(io::stdout(), "{id}").with_context(|| unprinted(id))?;
            Ok(0)
        }
        // It was too short to be left: this is its output, and its exit code.
        Ok(Err(error)) => go_on(error.into_handle(), invocation.detach_keys(), process).await,
        Err(error) => report(Ended::Command(Err(error))),
    }
}

/// What is said if nobody gets the id of a command that was left.
fn unprinted(id: ExecId) -> String {
    format!("cannot write the id of the command, which was left: {id}, for forebay adopt")
}

/// Gives the terminal of a command that was adopted the size of ours.
///
/// # Errors
/// It has none. It was left again.
pub(crate) async fn fit(command: ExecHandle, size: TerminalSize) -> Result<ExecHandle> {
    match command.resize(size).await {
        Err(ControlError::NoTerminal) => match command.leave().await {
            Ok(id) => bail!("command {id} has no terminal; adopt it without -t"),
            // It has ended, and there is nothing to be typed.
            Err(ended) => Ok(ended.into_handle()),
        },
        // That it has ended is told in its place.
        _ => Ok(command),
    }
}

/// Is the command, which runs, until its end; gives the exit code.
pub(crate) async fn go_on(command: ExecHandle, keys: Watch, process: &mut Process) -> Result<u8> {
    let ended = attend(command, keys, process).await?;
    // The terminal is as it was, so that this is readable.
    report(ended)
}

/// From the command's start to its end. The terminal is the command's only in here.
async fn attend(command: ExecHandle, keys: Watch, process: &mut Process) -> Result<Ended> {
    let ExecParts {
        stdin,
        stdout,
        stderr,
        mut exit,
        ..
    } = command.split();
    // Without a way to it for the keys, they are better ours.
    let terminal = process.terminal.take().filter(|_| stdin.is_some());
    let raw = terminal.map(Terminal::raw).transpose();
    let raw = raw.context("cannot make the terminal raw")?;
    let at_terminal = raw.is_some();
    let control = exit.control();
    let (leave, left) = watch::channel(false);
    let runtime = &process.runtime;
    let started = || "cannot start a thread for the standard streams";
    // Asked now: a terminal that is gone is none.
    let stdout_hangs_up = at_terminal && isatty(io::stdout());
    let stderr_hangs_up = at_terminal && isatty(io::stderr());
    let stdout = relay::stdout(stdout, left.clone(), runtime.clone()).with_context(started)?;
    let stderr = relay::stderr(stderr, left, runtime.clone()).with_context(started)?;
    let typed = match stdin {
        Some(sink) => {
            let keys = at_terminal.then_some(keys);
            Some(relay::stdin(sink, keys, runtime.clone()).with_context(started)?)
        }
        None => None,
    };
    let terminal = async {
        match (raw, typed) {
            (Some(raw), Some(typed)) => attend_terminal(raw, typed, &control, &leave).await,
            _ => pending().await,
        }
    };
    let stdout = written(stdout, stdout_hangs_up);
    let stderr = written(stderr, stderr_hangs_up);
    let session = pin!(async {
        tokio::select! {
            ended = end(&mut exit, stdout, stderr) => ended,
            never = terminal => match never {},
        }
    });
    Ok(heed(session, &control, &mut process.signals, &leave).await)
}

/// Keeps the command's terminal as large as ours until the keys for it are typed; then gives ours
/// back and lets the command run on.
async fn attend_terminal(
    mut raw: Raw,
    keys: oneshot::Receiver<ExecSink>,
    control: &ExecControl,
    leave: &watch::Sender<bool>,
) -> Infallible {
    let left = async {
        match keys.await {
            Ok(stdin) => stdin,
            // Stdin has ended without them.
            Err(_) => pending().await,
        }
    };
    let stdin = tokio::select! {
        stdin = left => stdin,
        never = raw.follow(control) => match never {},
    };
    drop(raw);
    leave.send_replace(true);
    // Both relays end by that, so that nothing of the command's comes behind what is said here. One
    // may be waiting for somebody who does not read.
    let _ = timeout(LAST_OUTPUT, leave.closed()).await;
    // Whoever looks at the terminal may have stopped it, and signals are to be heeded meanwhile.
    let told = spawn_blocking(|| {
        // The cursor is where the command left it.
        let _ = writeln!(io::stderr());
        complain(LEFT);
    });
    let _ = told.await;
    // Kept, since dropping it would type the end of input.
    let _stdin = stdin;
    pending().await
}

/// Waits for the end of a session, and passes on the signals to us.
async fn heed(
    mut session: Pin<&mut impl Future<Output = Ended>>,
    control: &ExecControl,
    signals: &mut Signals,
    leave: &watch::Sender<bool>,
) -> Ended {
    let asked = tokio::select! {
        ended = &mut session => return ended,
        signal = asked_to_end(control, signals, leave) => signal,
    };
    let patience = async {
        let deadline = Instant::now() + GRACE;
        // Refused only when the command has ended, and then its end comes.
        let _ = timeout_at(deadline, control.signal(asked)).await;
        sleep_until(deadline).await;
    };
    tokio::select! {
        ended = session => ended,
        again = asked_to_end(control, signals, leave) => Ended::Signal(again),
        () = patience => Ended::Signal(asked),
    }
}

/// The next signal that asks for an end: that of a terminal that was left does not. Messages to the
/// command are passed on meanwhile; one that waits for a guest that does not read makes room for the
/// next signal.
async fn asked_to_end(
    control: &ExecControl,
    signals: &mut Signals,
    leave: &watch::Sender<bool>,
) -> Signal {
    let mut signal = signals.next().await;
    loop {
        if Signals::is_a_message(signal) {
            tokio::select! {
                biased;
                // Refused only when the command has ended.
                _ = control.signal(signal) => {}
                next = signals.next() => {
                    signal = next;
                    continue;
                }
            }
        } else if signal != Signal::HUP || !*leave.borrow() {
            return signal;
        }
        signal = signals.next().await;
    }
}

/// Waits until everything was written and the command has ended.
async fn end(
    exit: &mut ExecExit,
    stdout: impl Future<Output = Result<(), Ended>>,
    stderr: impl Future<Output = Result<(), Ended>>,
) -> Ended {
    let exited = async {
        match exit.wait().await {
            // Its streams may stay open as long as it does.
            Err(error @ ExecError::Unconfirmed { .. }) => Err(Ended::Command(Err(error))),
            known => Ok(known),
        }
    };
    match tokio::try_join!(stdout, stderr, exited) {
        Ok(((), (), known)) => Ended::Command(known),
        Err(ended) => ended,
    }
}

/// Waits until one output was written; `hangs_up`: to a terminal, of which the command has the like.
async fn written(relayed: Relayed, hangs_up: bool) -> Result<(), Ended> {
    let written = relayed
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the thread that wrote it died")));
    match written {
        // The terminal is gone. SIGHUP comes with that, and the command has its time to heed it;
        // where SIGHUP is ignored, the command is to go on.
        Err(error) if hangs_up && Errno::from_io_error(&error) == Some(Errno::IO) => Ok(()),
        written => written.map_err(Ended::Output),
    }
}

fn report(ended: Ended) -> Result<u8> {
    match ended {
        Ended::Command(Ok(ended)) => {
            if ended.signal() == Some(Signal::KILL) && ended.oom_killed() == Some(true) {
                complain("the guest's kernel killed the command for lack of memory");
            }
            Ok(status::of_command(&ended))
        }
        Ended::Command(Err(error)) => {
            complain(&error.to_string());
            Ok(status::of_error(&error))
        }
        // As quiet as a program that SIGPIPE ends.
        Ended::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(status::BROKEN_PIPE)
        }
        Ended::Output(error) => Err(error).context("cannot write the command's output"),
        Ended::Signal(signal) => Ok(status::of_signal(signal.number())),
    }
}

#[cfg(test)]
#[path = "command_test.rs"]
mod tests;
