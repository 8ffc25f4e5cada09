//! The registers by which a guest ends: sleep, reset, panic.
//!
//! | port | written | means |
//! |---|---|---|
//! | sleep control | `SLP_EN` with type 5 | power-off |
//! | reset register | 1 | reboot, or the end of a panic if one was reported |
//! | pvpanic | bit 0 | the kernel panicked; a reset usually follows |
//! | i8042 command | `0xfe` | reboot by the keyboard controller's line |
//!
//! Any vCPU may write them; each is about the whole VM. The write is the end: nothing after it is
//! waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::console_log::ConsoleLog;
use crate::deadline::{Deadline, Deadlines};
use crate::guest_text;
use crate::layout::{
    PORT_I8042, PORT_PVPANIC, PORT_RESET, PORT_SLEEP_CONTROL, PORT_SLEEP_STATUS, RESET_VALUE,
    SLEEP_TYPE_SOFT_OFF,
};
use crate::stop::{Lifecycle, StopReason};

/// Sleep control: "sleep now".
const SLEEP_ENABLE: u8 = 1 << 5;
/// Where the sleep type lies in sleep control.
const SLEEP_TYPE_SHIFT: u8 = 2;
const SLEEP_TYPE_MASK: u8 = 0b111;
/// pvpanic: the one event there is, for reading (what is understood) and writing.
const PANICKED: u8 = 1;
/// i8042: pulse the reset line.
const I8042_RESET: u8 = 0xfe;
/// i8042: nothing to read and ready for a command, so that nobody waits for it.
const I8042_IDLE: u8 = 0;
/// A guest told to stay after a panic never resets itself. What it still wants to print it prints
/// within this.
const PANIC_GRACE: Duration = Duration::from_secs(1);

/// The text before the cause of a panic.
const PANIC_TEXT: &str = "Kernel panic - not syncing: ";
/// The kernel repeats that text in a line that begins like this.
const PANIC_END: &str = "---[ end";

/// The registers of one VM.
#[derive(Debug)]
pub(crate) struct Power {
    lifecycle: Arc<Lifecycle>,
    deadlines: Arc<Deadlines>,
    console: Arc<ConsoleLog>,
    panicked: AtomicBool,
}

impl Power {
    pub(crate) fn new(
        lifecycle: Arc<Lifecycle>,
        deadlines: Arc<Deadlines>,
        console: Arc<ConsoleLog>,
    ) -> Self {
        Self {
            lifecycle,
            deadlines,
            console,
            panicked: AtomicBool::new(false),
        }
    }

    /// What the port reads; `None` if it is none of these.
    pub(crate) fn read(&self, port: u16) -> Option<u8> {
        match port {
            PORT_SLEEP_CONTROL | PORT_SLEEP_STATUS | PORT_RESET => Some(0),
            PORT_PVPANIC => Some(PANICKED),
            PORT_I8042 => Some(I8042_IDLE),
            _ => None,
        }
    }

    /// Takes a write to the port; false if it is none of these.
    pub(crate) fn write(&self, port: u16, value: u8) -> bool {
        match (port, value) {
            (PORT_SLEEP_CONTROL, value) => {
                let sleep_type = value >> SLEEP_TYPE_SHIFT & SLEEP_TYPE_MASK;
                if value & SLEEP_ENABLE != 0 && sleep_type == SLEEP_TYPE_SOFT_OFF {
                    self.lifecycle.stop(StopReason::PowerOff);
                }
            }
            (PORT_RESET, RESET_VALUE) | (PORT_I8042, I8042_RESET) => self.reset(StopReason::Reboot),
            (PORT_PVPANIC, value) if value & PANICKED != 0 => self.panic(),
            (PORT_SLEEP_STATUS | PORT_RESET | PORT_PVPANIC | PORT_I8042, _) => {}
            _ => return false,
        }
        true
    }

    /// Ends the VM for `reason`, or for the panic that was reported before.
    fn reset(&self, reason: StopReason) {
        if self.panicked.load(Ordering::Acquire) {
            self.stop_for_panic();
        } else {
            self.lifecycle.stop(reason);
        }
    }

    /// A vCPU came to an end by itself. After a reported panic that is how some kernels reset.
    pub(crate) fn ended_by_vcpu(&self, reason: StopReason) {
        match reason {
            StopReason::TripleFault { .. } | StopReason::Reboot => self.reset(reason),
            StopReason::Panic { .. } => self.stop_for_panic(),
            reason => self.lifecycle.stop(reason),
        }
    }

    /// The guest reported a panic.
    pub(crate) fn panic(&self) {
        self.panicked.store(true, Ordering::Release);
        let at = Instant::now() + PANIC_GRACE;
        if self.deadlines.set(Deadline::Panic, Some(at)).is_err() {
            self.stop_for_panic();
        }
    }

    /// Whether the guest reported a panic.
    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Acquire)
    }

    /// Ends the VM for a panic.
    pub(crate) fn stop_for_panic(&self) {
        let message = panic_message(&self.console.text());
        self.lifecycle.stop(StopReason::Panic { message });
    }
}

/// The cause in the kernel's last panic line.
fn panic_message(console: &str) -> Option<String> {
    let message = console
        .lines()
        .rev()
        .filter(|line| !line.contains(PANIC_END))
        .find_map(|line| line.split_once(PANIC_TEXT))?
        .1
        .trim();
    (!message.is_empty()).then(|| guest_text::line(message))
}

#[cfg(test)]
#[path = "power_test.rs"]
mod tests;
