//! A guest that serves its port directly, seen from the host: what can be asked of it, and how fast
//! it did it. Who carries the bytes is behind [`Port`].
//!
//! The other half is the guest program's command `port-server`; its description has the commands.

use std::time::Instant;

use anyhow::Result;

use crate::bench::commands::rate;

/// Bytes of a command.
pub(crate) const COMMAND: usize = 32;
/// Bytes of the server's hello and answers.
pub(crate) const RECORD: u64 = 16;

/// The host's end of a guest's port.
pub(crate) trait Port {
    /// Sends bytes to the guest; they are on their way when this returns.
    fn send(&mut self, bytes: &[u8]) -> Result<()>;

    /// Waits until the guest has sent `bytes` more than were waited for before, and takes them. The
    /// error says what became of the guest.
    fn take(&mut self, bytes: u64) -> Result<()>;
}

/// The child whose pipe the server copies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Writer {
    /// A child like any.
    Free,
    /// In control groups like those of a command, which account for the memory of its pipe. That is
    /// the price of containing it, not of its output's flow control.
    Contained,
}

/// What the server is to do.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Write,
    Copy(Writer),
    Read,
    Echo,
}

fn command(operation: Operation, size: u32, amount: u64) -> [u8; COMMAND] {
    let mut bytes = [0; COMMAND];
    bytes[0] = match operation {
        Operation::Write => b'w',
        Operation::Copy(Writer::Free) => b'c',
        Operation::Copy(Writer::Contained) => b'k',
        Operation::Read => b'r',
        Operation::Echo => b'e',
    };
    bytes[4..8].copy_from_slice(&size.to_le_bytes());
    bytes[8..16].copy_from_slice(&amount.to_le_bytes());
    bytes
}

/// Has the guest write `amount` bytes in writes of `size`; the rate in MiB/s, from the command to
/// the last byte.
pub(crate) fn write_rate(port: &mut dyn Port, size: u32, amount: u64) -> Result<f64> {
    let started = Instant::now();
    port.send(&command(Operation::Write, size, amount))?;
    port.take(amount)?;
    Ok(rate(amount, started))
}

/// The command that has the guest copy `amount` bytes from a child's pipe into writes of at most
/// `size`. How many writes that makes depends on the pipe, so only a port that tells payload from
/// headers can wait for it.
pub(crate) fn copy_command(writer: Writer, size: u32, amount: u64) -> [u8; COMMAND] {
    command(Operation::Copy(writer), size, amount)
}

/// Sends the guest `amount` bytes, which it reads 64 KiB at a time; the rate in MiB/s until it says
/// that it has all.
pub(crate) fn read_rate(port: &mut dyn Port, amount: u64) -> Result<f64> {
    const BLOCK: u32 = 64 << 10;
    let block = vec![0x5a; BLOCK as usize];
    port.send(&command(Operation::Read, BLOCK, amount))?;
    let started = Instant::now();
    let mut left = amount;
    while left > 0 {
        let n = left.min(u64::from(BLOCK));
        port.send(&block[..n as usize])?;
        left -= n;
    }
    port.take(RECORD)?;
    Ok(rate(amount, started))
}

/// Sends one byte and waits for it, `count` times; each in milliseconds.
pub(crate) fn echo_times(port: &mut dyn Port, count: usize) -> Result<Vec<f64>> {
    port.send(&command(Operation::Echo, 1, count as u64))?;
    (0..count)
        .map(|_| {
            let started = Instant::now();
            port.send(b".")?;
            port.take(1)?;
            Ok(started.elapsed().as_secs_f64() * 1e3)
        })
        .collect()
}

#[cfg(test)]
#[path = "port_test.rs"]
mod tests;
