//! PID 1 of the rig's L1: makes a small system around one program, runs it, reports, powers off.
//!
//! Statically linked and the only program of ours in L1's base. It owns mounts, modules, the VMs
//! held open, and the copying between the program's pipes and the ports; it knows nothing of what it
//! runs. The host reads its reports (`forebay_rig::order`) and, when they are complete, ends the
//! emulator.

#![forbid(unsafe_code)]

mod held;
mod ports;
mod program;
mod system;
mod witness;

use std::fs;
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_rig::order::{HEARTBEAT, ORDER_PATH, Order, Report, port};
use rustix::system::RebootCommand;

use crate::held::Held;
use crate::program::Streams;
use crate::witness::Witness;

/// How long the host may take to end the emulator after the last report.
const HOST_DEADLINE: Duration = Duration::from_secs(120);

fn main() {
    if let Err(error) = serve() {
        // The console is what the host shows when it got no report.
        eprintln!("rig init: {error:#}");
    }
    power_off();
}

fn serve() -> Result<()> {
    system::mount_all()?;
    let mut control = ports::open(port::CONTROL)?;
    let report = match run(&mut control) {
        Ok(report) => report,
        Err(error) => Report::Failed {
            reason: format!("{error:#}"),
        },
    };
    send(&mut control, &report)?;
    thread::sleep(HOST_DEADLINE);
    Ok(())
}

fn run(control: &mut fs::File) -> Result<Report> {
    let text = fs::read(ORDER_PATH).with_context(|| format!("read {ORDER_PATH}"))?;
    let order: Order = serde_json::from_slice(&text).context("understand the order")?;
    system::load_modules(&order.modules)?;
    system::loopback_up();
    let _held = Held::create()?;
    let witness = order.watched.then(Witness::begin).transpose()?;
    let watched = control.try_clone().context("watch the control port")?;
    thread::spawn(move || power_off_without_host(watched));
    // What the host sends to a port that is not open is lost, and it sends once we are ready.
    let ports = Streams::open(&order)?;
    send(control, &Report::Ready)?;
    if order.watched {
        let heart = control.try_clone().context("share the control port")?;
        thread::spawn(move || beat(heart));
    }
    program::run(&order, ports, witness.as_ref())
}

/// Says again and again that L1 is alive, for as long as it is.
fn beat(mut control: fs::File) {
    loop {
        thread::sleep(HEARTBEAT);
        if send(&mut control, &Report::Alive).is_err() {
            return;
        }
    }
}

fn send(control: &mut fs::File, report: &Report) -> Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    control.write_all(&line).context("report to the host")
}

/// The host never writes to the control port: a read returns when the host is gone.
fn power_off_without_host(mut control: fs::File) {
    let mut byte = [0];
    while control.read(&mut byte).is_ok_and(|n| n > 0) {}
    power_off();
}

fn power_off() {
    if let Err(error) = rustix::system::reboot(RebootCommand::PowerOff) {
        eprintln!("rig init: cannot power off: {error}");
    }
}
