//! What a transfer costs beside its time: processor time, and frames.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use forebay::Vm;
use rustix::time::{ClockId, clock_gettime};

use crate::bench::flow::MIB;

/// How the names of threads begin in which guests run.
const VCPU: &str = "forebay-vcpu";

/// Processor time of this process so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cpu {
    /// Of the threads that run guests: the guests' own time and their exits.
    vcpus: Duration,
    /// Of all others.
    host: Duration,
}

/// What one VM's port has carried so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frames {
    from_guest: u64,
    to_guest: u64,
}

/// The price of one transfer, each per MiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Price {
    /// Milliseconds of the threads that run guests.
    pub(crate) vcpus: f64,
    /// Milliseconds of all others.
    pub(crate) host: f64,
    /// Frames from the guest: output chunks, or acknowledgements of stdin.
    pub(crate) from_guest: f64,
    /// Frames to the guest: stdin chunks, or acknowledgements of output.
    pub(crate) to_guest: f64,
}

impl Cpu {
    /// Until now.
    pub(crate) fn now() -> Result<Self> {
        let mut vcpus = 0;
        for task in fs::read_dir("/proc/self/task").context("list threads")? {
            let task = task.context("list threads")?.path();
            // A thread may end at any moment; what it used is then in the sum of all alone.
            let Ok(name) = fs::read_to_string(task.join("comm")) else {
                continue;
            };
            if name.starts_with(VCPU) {
                let Ok(times) = fs::read_to_string(task.join("schedstat")) else {
                    continue;
                };
                let first = times.split(' ').next().and_then(|time| time.parse().ok());
                vcpus += first.unwrap_or(0);
            }
        }
        let vcpus = Duration::from_nanos(vcpus);
        let all = clock_gettime(ClockId::ProcessCPUTime);
        let all = Duration::new(
            u64::try_from(all.tv_sec).unwrap_or(0),
            u32::try_from(all.tv_nsec).unwrap_or(0),
        );
        Ok(Self {
            vcpus,
            host: all.saturating_sub(vcpus),
        })
    }
}

impl Frames {
    /// Until now; of a machine without executions it is not asked.
    pub(crate) fn of(vm: &Vm) -> Self {
        let port = vm.inspect().machine.device.agent;
        Self {
            from_guest: port.frames_from_guest,
            to_guest: port.frames_to_guest,
        }
    }
}

impl Price {
    /// Of `bytes` between two moments.
    pub(crate) fn between(
        bytes: u64,
        (cpu, frames): (Cpu, Frames),
        (cpu_then, frames_then): (Cpu, Frames),
    ) -> Self {
        let mib = bytes as f64 / MIB as f64;
        let spent = |before: Duration, after: Duration| {
            after.saturating_sub(before).as_secs_f64() * 1e3 / mib
        };
        let carried = |before: u64, after: u64| after.saturating_sub(before) as f64 / mib;
        Self {
            vcpus: spent(cpu.vcpus, cpu_then.vcpus),
            host: spent(cpu.host, cpu_then.host),
            from_guest: carried(frames.from_guest, frames_then.from_guest),
            to_guest: carried(frames.to_guest, frames_then.to_guest),
        }
    }
}

#[cfg(test)]
#[path = "price_test.rs"]
mod tests;
