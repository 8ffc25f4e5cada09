//! `forebay-demo`: the main job from end to end, for somebody who sees it for the first time.
//!
//! Boots one guest and runs commands in it, printing for each step what is done, what came of it
//! and a figure. Every step is a check; the exit code is 0 only if all of them held.
//!
//! The guest is the default image, or the one that `FOREBAY_IMAGE` names, with the layer of
//! `FOREBAY_HELPER_LAYER` on top: the generator of pseudo-random bytes lies there.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use forebay::{ExecEvent, ExecParts, Stdin, StopReason, Survivors, Vm};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{
    COUNT, HELPER, HostUse, Within, builder, counted, resident_beyond_guests, scaled, sha256,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const MIB: usize = 1024 * 1024;
const SEED: u64 = 20_260_101;
/// Streamed out of the guest.
const STREAMED: usize = 64 * MIB;
/// Sent through `cat`.
const ECHOED: usize = 8 * MIB;
/// Commands at once.
const CROWD: usize = 16;
/// How long the reader stands still.
const STANDSTILL: Duration = Duration::from_secs(10);
/// What the host's memory may grow by meanwhile: the command's allowance of 1 MiB and the noise of
/// an allocator.
const GROWTH: u64 = 4 * MIB as u64;
/// For a step that hangs, on hardware.
const STEP: Duration = Duration::from_secs(60);
const STEPS: u32 = 9;
/// Copies of the VM.
const COPIES: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    println!("forebay: run commands in a Linux microVM of this very process");
    let mut steps = Steps {
        number: 0,
        failed: 0,
    };
    let before = HostUse::now();
    steps.begin("boot a microVM with 1 CPU and 256 MiB");
    let vm = match builder().start().within(STEP).await {
        Ok(vm) => vm,
        Err(error) => {
            println!("      FAILED: {error}");
            return ExitCode::FAILURE;
        }
    };
    print_lines(&vm.boot_report().to_string());
    steps.end(Ok(format!("ready in {}", seconds(vm.boot_report().ready))));

    steps.begin("uname -a in the guest");
    steps.end(uname(&vm).within(STEP).await);
    steps.begin("a command that writes to both streams and exits with 3");
    steps.end(both_streams(&vm).within(STEP).await);
    steps.begin("64 MiB of pseudo-random bytes, streamed out of the guest");
    steps.end(stream_out(&vm).within(STEP).await);
    steps.begin("8 MiB through `cat`, in and out at the same time");
    steps.end(full_duplex(&vm).within(STEP).await);
    steps.begin("16 commands at once");
    steps.end(crowd(&vm).within(STEP).await);
    steps.begin("a reader that stands still for 10 s while the command writes without end");
    steps.end(stalled_reader(&vm).within(STEP).await);
    steps.begin("3 copies of the running VM, in each of which a command streams on");
    steps.end(copies(&vm).within(STEP).await);
    steps.begin("stop: the guest powers itself off, and nothing of it stays");
    steps.end(clean_stop(vm, &before).within(STEP).await);
    steps.conclude()
}

/// Numbers the steps and counts those that failed.
struct Steps {
    number: u32,
    failed: u32,
}

impl Steps {
    fn begin(&mut self, what: &str) {
        self.number += 1;
        println!("\n[{}/{STEPS}] {what}", self.number);
    }

    fn end(&mut self, outcome: Result<String>) {
        match outcome {
            Ok(figure) => println!("      ok: {figure}"),
            Err(error) => {
                self.failed += 1;
                println!("      FAILED: {error:#}");
            }
        }
    }

    fn conclude(self) -> ExitCode {
        match self.failed {
            0 => {
                println!("\nall {} steps as they should be", self.number);
                ExitCode::SUCCESS
            }
            failed => {
                println!("\n{failed} of {} steps FAILED", self.number);
                ExitCode::FAILURE
            }
        }
    }
}

async fn uname(vm: &Vm) -> Result<String> {
    let out = vm.exec("uname", ["-a"]).await?;
    ensure!(out.status().success(), "uname ended with {}", out.status());
    let line = out.stdout_str()?.trim_end().to_owned();
    ensure!(line.starts_with("Linux "), "it said {line:?}");
    Ok(line)
}

async fn both_streams(vm: &Vm) -> Result<String> {
    let out = vm
        .exec("sh", ["-c", "echo hello; echo oops >&2; exit 3"])
        .await?;
    ensure!(out.stdout() == b"hello\n", "stdout was {:?}", out.stdout());
    ensure!(out.stderr() == b"oops\n", "stderr was {:?}", out.stderr());
    ensure!(
        out.status().code() == Some(3),
        "it ended with {}",
        out.status()
    );
    Ok(format!(
        "stdout \"hello\", stderr \"oops\", {}",
        out.status()
    ))
}

/// What comes is kept in memory that was touched before, and hashed when the clock has stopped, so
/// that the rate is the channel's and not the hash's.
async fn stream_out(vm: &Vm) -> Result<String> {
    let arguments = ["random".to_owned(), SEED.to_string(), STREAMED.to_string()];
    let mut received = vec![0xff; STREAMED];
    let mut len = 0;
    let started = Instant::now();
    let mut command = vm.exec(HELPER, arguments).spawn().await?;
    let status = loop {
        match command
            .recv()
            .await
            .context("the events ended without an exit")?
        {
            ExecEvent::Stdout(chunk) => {
                let room = received.get_mut(len..len + chunk.len());
                room.context("more came than was asked for")?
                    .copy_from_slice(&chunk);
                len += chunk.len();
            }
            ExecEvent::Exited(status) => break status,
            ExecEvent::Failed(failure) => anyhow::bail!("{failure}"),
            _ => {}
        }
    };
    let took = started.elapsed();
    ensure!(status.success(), "the generator ended with {status}");
    ensure!(len == STREAMED, "{len} bytes came, not {STREAMED}");
    let seen = sha256(&received);
    let expected = sha256(&Pattern::new(SEED).take(STREAMED));
    ensure!(seen == expected, "SHA-256 is {seen}, not {expected}");
    let start = seen.get(..16).unwrap_or_default();
    Ok(format!(
        "SHA-256 {start}... as it should be, {}",
        rate(STREAMED, took)
    ))
}

async fn full_duplex(vm: &Vm) -> Result<String> {
    let data = Pattern::new(SEED + 1).take(ECHOED);
    let started = Instant::now();
    let command = vm
        .exec("cat", [""; 0])
        .stdin(Stdin::piped())
        .spawn()
        .await?;
    let ExecParts {
        stdin,
        mut stdout,
        stderr,
        mut exit,
        ..
    } = command.split();
    drop(stderr);
    let mut stdin = stdin.context("no stdin")?;
    let write = async {
        stdin.write_all(&data).await?;
        stdin.shutdown().await
    };
    let mut back = Vec::with_capacity(data.len());
    let (written, read) = tokio::join!(write, stdout.read_to_end(&mut back));
    written.context("writing to cat")?;
    read.context("reading from cat")?;
    let status = exit.wait().await?;
    let took = started.elapsed();
    ensure!(status.success(), "cat ended with {status}");
    ensure!(
        back == data,
        "{} bytes came back, or other ones",
        back.len()
    );
    Ok(format!(
        "all {} MiB came back equal, {} each way",
        ECHOED / MIB,
        rate(ECHOED, took)
    ))
}

async fn crowd(vm: &Vm) -> Result<String> {
    let started = Instant::now();
    let mut running = Vec::new();
    for number in 0..CROWD {
        // Each says its own number 1000 times on stdout, and once in words on stderr.
        let script = format!(
            "i=0; while [ $i -lt 1000 ]; do echo {number}; i=$((i+1)); done; echo I am {number} >&2; \
             exit {number}"
        );
        running.push(tokio::spawn(vm.shell(script).output()));
    }
    let active = vm.client().active();
    for (number, command) in running.into_iter().enumerate() {
        let out = command.await??;
        ensure!(
            out.status().code() == i32::try_from(number).ok(),
            "{number}: {}",
            out.status()
        );
        let expected = format!("{number}\n").repeat(1000);
        ensure!(
            out.stdout() == expected.as_bytes(),
            "stdout of {number} is not its own"
        );
        let words = format!("I am {number}\n");
        ensure!(
            out.stderr() == words.as_bytes(),
            "stderr of {number} is not its own"
        );
    }
    let left = vm.client().active();
    ensure!(
        left == 0,
        "{left} executions still hold a slot (there were {active})"
    );
    Ok(format!(
        "none mixed up, all done in {}",
        seconds(Some(started.elapsed()))
    ))
}

async fn stalled_reader(vm: &Vm) -> Result<String> {
    const WITHOUT_END: u64 = 1 << 50;
    let arguments = [
        "random".to_owned(),
        SEED.to_string(),
        WITHOUT_END.to_string(),
    ];
    let before = resident_beyond_guests();
    let mut writer = vm.exec(HELPER, arguments).spawn().await?;
    let started = Instant::now();
    let (mut answers, mut slowest, mut peak) = (0_u32, Duration::ZERO, before);
    while started.elapsed() < STANDSTILL {
        let asked = Instant::now();
        let out = vm.exec("echo", ["here"]).await?;
        ensure!(
            out.stdout() == b"here\n",
            "the other command said {:?}",
            out.stdout()
        );
        slowest = slowest.max(asked.elapsed());
        answers += 1;
        peak = peak.max(resident_beyond_guests());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let growth = peak.saturating_sub(before);
    println!(
        "      host memory beside the guest's: {:.1} MiB before, {:.1} MiB at most meanwhile",
        mib(before),
        mib(peak)
    );
    println!(
        "      another command answered {answers} times, in {} at most",
        seconds(Some(slowest))
    );
    ensure!(growth < GROWTH, "it grew by {:.1} MiB", mib(growth));
    // The reader goes on: nothing was lost, and more comes.
    let mut pattern = Pattern::new(SEED);
    let mut seen = 0;
    while seen < 4 * MIB {
        match writer.recv().await.context("the writer's events ended")? {
            ExecEvent::Stdout(chunk) => {
                let wrong = pattern.first_difference(&chunk);
                ensure!(wrong.is_none(), "a wrong byte after {seen} good ones");
                seen += chunk.len();
            }
            ExecEvent::Started { .. } => {}
            other => anyhow::bail!("the writer ended: {other:?}"),
        }
    }
    writer.kill();
    let status = writer.wait().await?;
    ensure!(
        status.signal_name().as_deref() == Some("SIGKILL"),
        "it ended with {status}"
    );
    Ok(format!(
        "memory grew by {:.1} MiB; then the reader went on, no byte lost",
        mib(growth)
    ))
}

/// A counter is read for a while, then goes on in source and copies at the byte where it stood.
async fn copies(vm: &Vm) -> Result<String> {
    const READ: usize = 50_000;
    const FURTHER: usize = 200_000;
    let expected = counted(READ..READ + FURTHER);
    let mut source = vm.shell(COUNT).spawn().await?.split();
    let id = source.exit.id();
    let mut read = vec![0; READ];
    source.stdout.read_exact(&mut read).await?;
    let template = vm.template().await?;
    let mut rest = vec![0; FURTHER];
    let mut slowest = Duration::ZERO;
    let mut private = 0;
    let mut running = Vec::new();
    for _ in 0..COPIES {
        let begun = Instant::now();
        let copy = template.fork().survivors(Survivors::Adopt).start().await?;
        slowest = slowest.max(begun.elapsed());
        let adopted = copy.adopt(id).context("the command is not in the copy")?;
        ensure!(
            adopted.progress.stdout_consumed == READ as u64,
            "another byte"
        );
        let mut adopted = adopted.handle.split();
        adopted.stdout.read_exact(&mut rest).await?;
        ensure!(rest == expected, "a copy's bytes are not those that follow");
        private = private.max(copy.memory_usage()?.private);
        running.push((copy, adopted));
    }
    source.stdout.read_exact(&mut rest).await?;
    ensure!(
        rest == expected,
        "the source's bytes are not those that follow"
    );
    for (copy, adopted) in running {
        drop(adopted);
        copy.close().await;
    }
    Ok(format!(
        "every byte once in all of them; started in {slowest:.1?} at most, {:.1} MiB of its own each",
        private as f64 / MIB as f64
    ))
}

async fn clean_stop(vm: Vm, before: &HostUse) -> Result<String> {
    let started = Instant::now();
    let reason = vm.stop(scaled(Duration::from_secs(5))).await;
    let took = started.elapsed();
    vm.close().await;
    ensure!(
        reason == StopReason::Requested,
        "it ended otherwise: {reason}"
    );
    before.is_back().await;
    Ok(format!(
        "{reason}; off in {}; no thread, descriptor or mapping is left",
        seconds(Some(took))
    ))
}

fn print_lines(text: &str) {
    for line in text.lines() {
        println!("      {line}");
    }
}

fn seconds(time: Option<Duration>) -> String {
    match time {
        Some(time) if time < Duration::from_secs(1) => {
            format!("{:.1} ms", time.as_secs_f64() * 1e3)
        }
        Some(time) => format!("{:.2} s", time.as_secs_f64()),
        None => "an unknown time".to_owned(),
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

fn rate(bytes: usize, took: Duration) -> String {
    format!("{:.1} MiB/s", mib(bytes as u64) / took.as_secs_f64())
}
