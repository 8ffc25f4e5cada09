//! The program itself: started on pipes, copied to the ports, waited for; then the files it left.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay_rig::order::{Ending, Order, Report, Sent, port};
use rustix::process::{Pid, WaitOptions};

use crate::ports;
use crate::witness::Witness;

/// How long after the program's end what it left behind may keep its output open.
const OUTPUT_GRACE: Duration = Duration::from_secs(5);
/// Where the archive of files is put together.
const ARCHIVE: &str = "/run/rig-files.tar";

/// The ports of the program's streams and files.
pub(crate) struct Streams {
    stdin: Option<File>,
    stdout: File,
    stderr: File,
    files: File,
}

impl Streams {
    /// Opens them; standard input only if the order connects it.
    pub(crate) fn open(order: &Order) -> Result<Self> {
        Ok(Self {
            stdin: order.stdin.then(|| ports::open(port::STDIN)).transpose()?,
            stdout: ports::open(port::STDOUT)?,
            stderr: ports::open(port::STDERR)?,
            files: ports::open(port::FILES)?,
        })
    }
}

/// Runs the program to its end, sends its output and its files, and returns the last report.
pub(crate) fn run(order: &Order, streams: Streams, witness: Option<&Witness>) -> Result<Report> {
    let Some((program, arguments)) = order.argv.split_first() else {
        bail!("the order names no program");
    };
    let stdin = match streams.stdin {
        Some(_) => Stdio::piped(),
        None => Stdio::null(),
    };
    // Pipes and not the ports themselves: a port can be opened once, so a program that opens
    // /dev/stdout again would fail, and pipes are what programs meet elsewhere.
    let path = order.env.iter().find(|(name, _)| name == "PATH");
    let mut child = Command::new(resolve(program, path.map_or("", |(_, path)| path))?)
        .args(arguments)
        .env_clear()
        .envs(order.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&order.cwd)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {program} in {}", order.cwd))?;
    if let (Some(from_host), Some(to_program)) = (streams.stdin, child.stdin.take()) {
        // Ends with the host's input or with the program; nobody waits for it.
        thread::spawn(move || unblock(from_host, to_program));
    }
    let stdout = child.stdout.take().context("the program's output")?;
    let stderr = child.stderr.take().context("the program's errors")?;
    let stdout = in_background(stdout, streams.stdout);
    let stderr = in_background(stderr, streams.stderr);
    let how = reap_until(&child)?;
    let sent = Sent {
        stdout: result(&stdout, OUTPUT_GRACE),
        stderr: result(&stderr, OUTPUT_GRACE),
        files: send_files(&order.outputs, streams.files)?,
    };
    Ok(Report::Ended {
        how,
        sent,
        mixed_up: witness.map_or(Ok(Vec::new()), Witness::seen)?,
    })
}

/// A program without a slash is looked for in the order's own `PATH`; the standard library would
/// take ours, and we have none.
fn resolve(program: &str, path: &str) -> Result<String> {
    if program.contains('/') {
        return Ok(program.to_owned());
    }
    path.split(':')
        .map(|directory| format!("{directory}/{program}"))
        .find(|candidate| Path::new(candidate).exists())
        .with_context(|| format!("no program {program} on the path {path}"))
}

/// Waits for every child that ends, ours and those left to PID 1, until ours has.
fn reap_until(child: &std::process::Child) -> Result<Ending> {
    let ours = Pid::from_child(child);
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == ours => {
                if let Some(code) = status.exit_status() {
                    return Ok(Ending::Code(code));
                }
                if let Some(signal) = status.terminating_signal() {
                    return Ok(Ending::Signal(signal));
                }
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for the program"),
        }
    }
}

/// Copies on a thread; the receiver gets every step.
fn in_background(from: impl Read + Send + 'static, to: File) -> Receiver<Step> {
    let (progress, steps) = channel();
    thread::spawn(move || {
        copy(from, to, |step| {
            // Fails when nobody counts any more.
            let _ = progress.send(step);
        })
    });
    steps
}

/// The total that a copy has sent: at its end, or when nothing was there to read for a while after
/// the program's own end, since something it left behind may hold the pipe for ever. A host that
/// takes its time is waited for; it has deadlines of its own.
fn result(steps: &Receiver<Step>, grace: Duration) -> u64 {
    let (mut sent, mut holding) = (0, false);
    loop {
        let step = if holding {
            steps.recv().ok()
        } else {
            steps.recv_timeout(grace).ok()
        };
        holding = match step {
            Some(Step::Holding) => true,
            Some(Step::Sent(total)) => {
                sent = total;
                false
            }
            None => return sent,
        };
    }
}

/// Where a copy is.
enum Step {
    /// It has read something and not yet written it.
    Holding,
    /// It has written so much in all, and reads.
    Sent(u64),
}

/// Copies the blocks of the host's input to the program, up to the empty one, and closes it.
fn unblock(mut from: File, mut to: impl Write) -> io::Result<()> {
    loop {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length == 0 {
            return Ok(());
        }
        let mut block = (&mut from).take(u64::from(length));
        let mut bytes = Vec::new();
        block.read_to_end(&mut bytes)?;
        to.write_all(&bytes)?;
    }
}

/// Copies until either side ends and calls `progress` before and after every write. By read and
/// write and not by `io::copy`, which splices: a port takes spliced pages in another way, with
/// limits of its own.
fn copy(mut from: impl Read, mut to: impl Write, mut progress: impl FnMut(Step)) {
    let mut block = vec![0; 32 * 1024];
    let mut sent = 0;
    loop {
        match from.read(&mut block) {
            Ok(0) => return,
            Ok(n) => {
                progress(Step::Holding);
                if to.write_all(&block[..n]).is_err() {
                    return;
                }
                sent += n as u64;
                progress(Step::Sent(sent));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Sends an archive of those files that exist, after its length, and returns the length.
fn send_files(outputs: &[String], mut port: File) -> Result<u64> {
    let existing: Vec<_> = outputs
        .iter()
        .filter(|path| Path::new(path).exists())
        .map(|path| path.trim_start_matches('/'))
        .collect();
    if existing.is_empty() {
        port.write_all(&0_u64.to_le_bytes())?;
        return Ok(0);
    }
    let status = Command::new("/usr/bin/busybox")
        .args(["tar", "-c", "-f", ARCHIVE, "-C", "/"])
        .args(&existing)
        .status()
        .context("run tar")?;
    if !status.success() {
        bail!("tar of {} failed: {status}", existing.join(", "));
    }
    let archive = File::open(ARCHIVE).context("open the archive of files")?;
    let length = archive.metadata()?.len();
    port.write_all(&length.to_le_bytes())?;
    let mut copied = 0;
    copy(archive, port, |step| {
        if let Step::Sent(total) = step {
            copied = total;
        }
    });
    if copied != length {
        bail!("the archive of files could not be sent whole");
    }
    Ok(length)
}

#[cfg(test)]
#[path = "program_test.rs"]
mod tests;
