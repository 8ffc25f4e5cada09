//! Where the time of a boot went.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The moments of a boot, taken where they happen.
#[derive(Debug)]
pub(crate) struct BootClock {
    started: Instant,
    setup_done: OnceLock<Instant>,
    loaded: OnceLock<Instant>,
    entered: OnceLock<Instant>,
    device_found: OnceLock<Instant>,
    driver_found: OnceLock<Instant>,
    port_opened: OnceLock<Instant>,
    ready: OnceLock<Instant>,
    guest: OnceLock<GuestTimes>,
}

/// The guest's own times, counted from where its kernel began to keep time. Its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GuestTimes {
    /// To the first instruction of PID 1.
    pub(crate) pid1: Option<Duration>,
    /// To the agent's report that it is ready.
    pub(crate) ready: Option<Duration>,
}

/// A moment after the start; each is noted once, later ones are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// KVM, memory, vCPUs and devices are set up.
    SetUp,
    /// Kernel, initramfs and tables lie in memory.
    Loaded,
    /// The boot vCPU enters the guest for the first time.
    Entered,
    /// The guest's kernel has looked at the console device: it can drive virtio-mmio.
    DeviceFound,
    /// The guest's kernel has taken the console device.
    DriverFound,
    /// The agent in the guest has opened its port.
    PortOpened,
    /// The agent is ready for commands.
    Ready,
}

impl BootClock {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            setup_done: OnceLock::new(),
            loaded: OnceLock::new(),
            entered: OnceLock::new(),
            device_found: OnceLock::new(),
            driver_found: OnceLock::new(),
            port_opened: OnceLock::new(),
            ready: OnceLock::new(),
            guest: OnceLock::new(),
        }
    }

    fn slot(&self, moment: Moment) -> &OnceLock<Instant> {
        match moment {
            Moment::SetUp => &self.setup_done,
            Moment::Loaded => &self.loaded,
            Moment::Entered => &self.entered,
            Moment::DeviceFound => &self.device_found,
            Moment::DriverFound => &self.driver_found,
            Moment::PortOpened => &self.port_opened,
            Moment::Ready => &self.ready,
        }
    }

    pub(crate) fn note(&self, moment: Moment) {
        self.slot(moment).get_or_init(Instant::now);
    }

    pub(crate) fn note_guest(&self, times: GuestTimes) {
        self.guest.get_or_init(|| times);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn report(&self) -> BootReport {
        let since_start = |moment| {
            self.slot(moment)
                .get()
                .map(|at| at.duration_since(self.started))
        };
        BootReport {
            set_up: since_start(Moment::SetUp),
            loaded: since_start(Moment::Loaded),
            first_instruction: since_start(Moment::Entered),
            device_found: since_start(Moment::DeviceFound),
            driver_found: since_start(Moment::DriverFound),
            port_opened: since_start(Moment::PortOpened),
            ready: since_start(Moment::Ready),
            guest_pid1: self.guest.get().and_then(|times| times.pid1),
            guest_ready: self.guest.get().and_then(|times| times.ready),
        }
    }
}

/// When each point of a boot was reached, counted from the call that started the VM. `None`: not
/// yet, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct BootReport {
    /// KVM, guest memory, vCPUs and devices are there; of a copy, with the state that was saved.
    pub set_up: Option<Duration>,
    /// Kernel, initramfs and tables are in guest memory.
    pub loaded: Option<Duration>,
    /// The guest executes its first instruction.
    pub first_instruction: Option<Duration>,
    /// The guest's kernel has found the console device, by its driver for virtio-mmio.
    pub device_found: Option<Duration>,
    /// The guest's kernel has taken the console device, by its driver for virtio consoles: shortly before it starts PID 1.
    pub driver_found: Option<Duration>,
    /// The agent, PID 1 of the guest, has opened its port.
    pub port_opened: Option<Duration>,
    /// The agent takes commands.
    pub ready: Option<Duration>,
    /// From the start of the kernel's clock to PID 1, as the guest measured it. That clock starts a
    /// little after the first instruction.
    pub guest_pid1: Option<Duration>,
    /// From the start of the kernel's clock to the agent being ready, as the guest measured it.
    pub guest_ready: Option<Duration>,
}

impl fmt::Display for BootReport {
    /// One line per point reached: when, how long since the one before, what.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = Duration::ZERO;
        for (at, what) in [
            (self.set_up, "VM set up"),
            (self.loaded, "kernel loaded"),
            (self.first_instruction, "first instruction"),
            (self.device_found, "kernel found the console device"),
            (self.driver_found, "kernel took the console device"),
            (self.port_opened, "agent opened its port"),
            (self.ready, "agent ready"),
        ] {
            if let Some(at) = at {
                let step = at.saturating_sub(before);
                before = at;
                writeln!(
                    f,
                    "{:9.2} ms  (+{:.2} ms)  {what}",
                    at.as_secs_f64() * 1e3,
                    step.as_secs_f64() * 1e3,
                )?;
            }
        }
        for (at, what) in [
            (self.guest_pid1, "PID 1"),
            (self.guest_ready, "agent ready"),
        ] {
            if let Some(at) = at {
                writeln!(
                    f,
                    "{:9.2} ms  by the guest's clock: {what}",
                    at.as_secs_f64() * 1e3
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "boot_report_test.rs"]
mod tests;
