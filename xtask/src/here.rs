//! Running a program on this machine with a deadline: what passes it is killed with its process
//! group, which is all that it started and that did not leave the group. When this task ends first,
//! the program alone is killed.

use std::io::Read;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay_rig::{Event, Status, ends_with_us};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::place::{HELPER_VARIABLE, IMAGE_VARIABLE};
use crate::setup::Guest;
use crate::workspace;

/// Runs a program that boots guests, its output given to `watch`; its standard error is ours.
pub(crate) fn run(
    program: &Path,
    arguments: &[String],
    guest: &Guest,
    deadline: Duration,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Status> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(workspace::root())
        .env(IMAGE_VARIABLE, guest.image.directory())
        .env(HELPER_VARIABLE, &guest.helper_layer)
        .envs(guest.named.iter().map(|(variable, path)| (variable, path)));
    within(command, deadline, watch)
}

/// Runs a command to its end in a process group of its own, which is killed at the deadline.
fn within(
    mut command: Command,
    deadline: Duration,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Status> {
    ends_with_us(&mut command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("run {}", workspace::shown(&command)))?;
    let group = Pid::from_child(&child);
    let stdout = child.stdout.take().context("its output is piped")?;
    let (over, told) = channel::<()>();
    let late = thread::spawn(move || {
        let late = told.recv_timeout(deadline) == Err(RecvTimeoutError::Timeout);
        if late {
            kill(group);
        }
        late
    });
    let passed = pass_on(stdout, watch);
    if passed.is_err() {
        kill(group);
    }
    // Its end is looked at before it is taken: until then nobody else can get the group's number.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(Errno::INTR) = waitid(WaitId::Pid(group), ended) {}
    drop(over);
    let late = late.join().unwrap_or_default();
    // What it left behind, which nothing waits for.
    kill(group);
    let status = child.wait().context("wait for it")?;
    if late {
        bail!(
            "{} was still running after {} s, its deadline: killed, with its process group",
            workspace::shown(&command),
            deadline.as_secs()
        );
    }
    passed?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Status::Code(code),
        (None, signal) => Status::Signal(signal.unwrap_or_default()),
    })
}

fn kill(group: Pid) {
    // Refused only when there is nobody left.
    let _ = kill_process_group(group, Signal::KILL);
}

/// Passes output on until its end.
fn pass_on(mut from: impl Read, watch: &mut dyn FnMut(Event<'_>)) -> Result<()> {
    let mut block = [0; 8192];
    loop {
        let n = from.read(&mut block).context("read its output")?;
        if n == 0 {
            return Ok(());
        }
        watch(Event::Stdout(&block[..n]));
    }
}

#[cfg(test)]
#[path = "here_test.rs"]
mod tests;
