//! Commands that are measured: one that does nothing, one that writes.

use std::time::Instant;

use anyhow::{Result, bail};
use forebay::{Client, ExecEvent, Vm};

use crate::measure::milliseconds;
use crate::vm::HELPER;

const MIB: f64 = 1_048_576.0;

/// A command that does nothing, from the request until its result is there; in milliseconds.
///
/// # Errors
/// If the command cannot be run or fails.
pub async fn round_trip(vm: &Vm) -> Result<f64> {
    let started = Instant::now();
    let done = vm.exec(HELPER, ["true"]).output().await?;
    let spent = milliseconds(started);
    if !done.status().success() {
        bail!("the program that does nothing failed: {:?}", done.status());
    }
    Ok(spent)
}

/// A command's output, which it writes `block` bytes at a time, in MiB/s from the request to the
/// last byte.
///
/// # Errors
/// If the command cannot be run, or ends before all of it came.
pub async fn stdout_rate(client: &Client, amount: u64, block: usize) -> Result<f64> {
    let (block, total) = (block.to_string(), amount.to_string());
    let command = ["write", "--chunk", &block, "--total", &total];
    let started = Instant::now();
    let mut command = client.exec(HELPER, command).spawn().await?;
    let mut received = 0;
    while received < amount {
        match command.recv().await {
            Some(ExecEvent::Stdout(data)) => received += data.len() as u64,
            Some(ExecEvent::Started { .. }) => {}
            other => bail!("a writer of {amount} bytes ended after {received}: {other:?}"),
        }
    }
    let rate = rate(amount, started);
    command.wait().await?;
    Ok(rate)
}

/// MiB/s since `started`.
pub fn rate(bytes: u64, started: Instant) -> f64 {
    bytes as f64 / MIB / started.elapsed().as_secs_f64()
}
