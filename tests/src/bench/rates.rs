//! How fast bytes move, in turn with whoever they are compared with.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use forebay::{Client, Limits, Stdin, Vm};
use tokio::runtime::Runtime;

use crate::bench::bare::Bare;
use crate::bench::commands::{rate, stdout_rate};
use crate::bench::guest::{Guests, HELPER, MEMORY_MIB};
use crate::bench::peer::Peer;
use crate::bench::port::{Port, Writer, copy_command, read_rate, write_rate};
use crate::bench::report::{Aim, Figure};
use crate::bench::statistics::Samples;
use crate::bench::{Plan, within};

const UNIT: &str = "MiB/s";
/// The largest write that the guest's driver takes as one.
pub(crate) const WRITE: u32 = 32 << 10;
/// What a writer of medium chunks uses.
const SMALL_WRITE: u32 = 16 << 10;
/// What commands write at a time, and what is given to a stdin at a time.
pub(crate) const BLOCK: usize = 64 << 10;
/// Stdin under way per command, in the VM that shows what the usual 64 KiB costs.
const WIDE_INPUT: u32 = 256 << 10;

/// One transfer of each kind.
#[derive(Default)]
struct Columns {
    raw: Vec<f64>,
    peer_raw: Vec<f64>,
    raw_small: Vec<f64>,
    peer_raw_small: Vec<f64>,
    stdout: Vec<f64>,
    bare_copy: Vec<f64>,
    contained_copy: Vec<f64>,
    raw_to_guest: Vec<f64>,
    peer_to_guest: Vec<f64>,
    stdin: Vec<f64>,
    wide_stdin: Vec<f64>,
}

/// `raw_port_rate`, `raw_port_rate_16k`, `raw_port_rate_to_guest`, `stdout_rate`,
/// `contained_copy_rate`, `stdin_rate`, `stdin_rate_wide`.
pub(crate) fn figures(plan: &Plan, guests: &Guests, runtime: &Runtime) -> Result<Vec<Figure>> {
    let limits = Limits::default();
    let vm = runtime.block_on(start(guests, limits))?;
    let wide = Limits {
        input_limit: WIDE_INPUT,
        ..limits
    };
    let wide = runtime.block_on(start(guests, wide))?;
    let mut bare = Bare::boot(&guests.bare)?;
    let mut peer = Peer::boot(&guests.bare)?;
    let bytes = plan.bytes;
    let mut c = Columns::default();
    // One transfer more: the first touches guest memory that the host has not given yet.
    for transfer in 0..=plan.transfers {
        c.raw.push(write_rate(&mut bare, WRITE, bytes)?);
        c.peer_raw.push(write_rate(&mut peer, WRITE, bytes)?);
        c.raw_small.push(write_rate(&mut bare, SMALL_WRITE, bytes)?);
        c.peer_raw_small
            .push(write_rate(&mut peer, SMALL_WRITE, bytes)?);
        c.stdout
            .push(runtime.block_on(within(&vm, stdout_rate(vm.client(), bytes, BLOCK)))?);
        c.bare_copy.push(copy(&mut bare, Writer::Free, bytes)?);
        c.contained_copy
            .push(copy(&mut bare, Writer::Contained, bytes)?);
        c.raw_to_guest.push(read_rate(&mut bare, bytes)?);
        c.peer_to_guest.push(read_rate(&mut peer, bytes)?);
        c.stdin
            .push(runtime.block_on(within(&vm, stdin(vm.client(), bytes, BLOCK)))?);
        c.wide_stdin
            .push(runtime.block_on(within(&wide, stdin(wide.client(), bytes, BLOCK)))?);
        if transfer == 0 {
            c = Columns::default();
        }
    }
    runtime.block_on(vm.close());
    runtime.block_on(wide.close());
    runtime.block_on(bare.close());
    c.figures()
}

impl Columns {
    fn figures(self) -> Result<Vec<Figure>> {
        let peer_raw = Samples::new("QEMU port, 32 KiB", self.peer_raw)?;
        let peer_raw_small = Samples::new("QEMU port, 16 KiB", self.peer_raw_small)?;
        let bare_copy = Samples::new("bare copy", self.bare_copy)?;
        let contained_copy = Samples::new("contained_copy_rate", self.contained_copy)?;
        let peer_to_guest = Samples::new("QEMU port to guest", self.peer_to_guest)?;
        Ok(vec![
            Figure::new(
                "raw_port_rate",
                UNIT,
                "a guest without an agent writes 32 KiB at a time to the port; the device copies \
                 each frame once and counts it",
                Samples::new("raw_port_rate", self.raw)?,
                "the guest's system call and copy per write, and one copy on the host",
            )
            .peer("QEMU port, 32 KiB writes", &peer_raw)
            .aim(Aim::RatioAtLeast(2.0)),
            Figure::new(
                "raw_port_rate_16k",
                UNIT,
                "as raw_port_rate with 16 KiB at a time",
                Samples::new("raw_port_rate_16k", self.raw_small)?,
                "as raw_port_rate, twice as often per byte",
            )
            .peer("QEMU port, 16 KiB writes", &peer_raw_small),
            Figure::new(
                "raw_port_rate_to_guest",
                UNIT,
                "64 KiB at a time to a guest without an agent, which reads them from the port; from \
                 the first to the guest's word that it has all",
                Samples::new("raw_port_rate_to_guest", self.raw_to_guest)?,
                "the guest: its driver gives 4 KiB per read",
            )
            .peer("QEMU port, host to guest", &peer_to_guest),
            Figure::new(
                "stdout_rate",
                UNIT,
                "a command writes 64 KiB at a time to its stdout, the application reads it; from \
                 the request to the last byte",
                Samples::new("stdout_rate", self.stdout)?,
                "as its floor, then judging and keeping each chunk and giving it to the reader, on two \
                 processors that three threads share (vCPU, event loop, application)",
            )
            .floor("bare pipe-to-port copy", &bare_copy)
            .aim(Aim::RatioAtLeast(0.8)),
            Figure::new(
                "contained_copy_rate",
                UNIT,
                "a guest without an agent copies a pipe to the port, 32 KiB at a time; the writer is \
                 in control groups as a command is, and nothing keeps its flow",
                contained_copy,
                "the kernel accounts for the memory of the pipe, and schedules by groups",
            )
            .floor("the same without groups", &bare_copy),
            Figure::new(
                "stdin_rate",
                UNIT,
                "the application writes 64 KiB at a time to a command's stdin, which reads it; from \
                 the first write to the command's end",
                Samples::new("stdin_rate", self.stdin)?,
                "64 KiB under way at most (input_limit): the rate is that over one round trip",
            )
            .peer("QEMU port, host to guest", &peer_to_guest)
            .aim(Aim::RatioAtLeast(10.0)),
            Figure::new(
                "stdin_rate_wide",
                UNIT,
                "as stdin_rate in a VM with an input_limit of 256 KiB",
                Samples::new("stdin_rate_wide", self.wide_stdin)?,
                "the guest: its driver gives the agent 4 KiB per read, each goes through a pipe",
            )
            .peer("QEMU port, host to guest", &peer_to_guest),
        ])
    }
}

async fn start(guests: &Guests, limits: Limits) -> Result<Vm> {
    Ok(Vm::builder()
        .image(guests.with_helper.clone())
        .memory_mib(MEMORY_MIB)
        .exec_limits(limits)
        .start()
        .await?)
}

/// The same writer, with nothing between its pipe and the port but read and write.
pub(crate) fn copy(bare: &mut Bare, writer: Writer, amount: u64) -> Result<f64> {
    let started = Instant::now();
    bare.send(&copy_command(writer, WRITE, amount))?;
    bare.take_payload(amount)?;
    Ok(rate(amount, started))
}

/// A command's input, given to it `block` bytes at a time.
pub(crate) async fn stdin(client: &Client, amount: u64, block: usize) -> Result<f64> {
    let mut command = client
        .exec(HELPER, ["drain"])
        .stdin(Stdin::piped())
        .spawn()
        .await?;
    let stdin = command.take_stdin().context("stdin is piped")?;
    let data = bytes::Bytes::from(vec![0x5a; block]);
    let started = Instant::now();
    let mut left = amount;
    while left > 0 {
        let n = usize::try_from(left).map_or(block, |left| left.min(block));
        stdin.write(data.slice(..n)).await?;
        left -= n as u64;
    }
    stdin.close().await?;
    let status = command.wait().await?;
    let rate = rate(amount, started);
    if !status.success() {
        bail!("the reader of {amount} bytes failed: {status:?}");
    }
    Ok(rate)
}
