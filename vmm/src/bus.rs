//! Who answers at which port and address: the guest's accesses that KVM does not handle itself.
//!
//! Called inline by vCPU threads, several at once. What nobody answers reads as ones and swallows
//! writes, as on a PC.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_virtio::MmioTransport;
use vm_superio::serial::NoEvents;
use vm_superio::{Serial, SerialState, Trigger};
use vmm_sys_util::eventfd::EventFd;

use crate::console_log::{ConsoleLog, SerialOutput};
use crate::error::HostError;
use crate::layout::{PORT_SERIAL, VIRTIO_MMIO, VIRTIO_MMIO_LEN};
use crate::power::Power;

/// What is read where nothing is.
const NOTHING: u8 = 0xff;
/// Number of ports of the serial device.
const SERIAL_PORTS: u16 = 8;

/// The interrupt line of the serial device, an irqfd.
#[derive(Debug)]
pub(crate) struct SerialInterrupt(pub(crate) EventFd);

impl Trigger for SerialInterrupt {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.write(1)
    }
}

/// The devices of one VM, by address.
pub(crate) struct Bus {
    serial: Mutex<Serial<SerialInterrupt, NoEvents, SerialOutput>>,
    power: Power,
    console: MmioTransport,
}

impl Bus {
    /// The serial device goes on from `serial`, with its interrupt if one is due.
    pub(crate) fn new(
        interrupt: SerialInterrupt,
        serial: &SerialState,
        log: Arc<ConsoleLog>,
        power: Power,
        console: MmioTransport,
    ) -> Result<Self, HostError> {
        let serial = Serial::from_state(serial, interrupt, NoEvents, SerialOutput(log))
            .map_err(|e| HostError::new("set up the serial device", io::Error::other(e)))?;
        Ok(Self {
            serial: Mutex::new(serial),
            power,
            console,
        })
    }

    /// The serial device's registers. No vCPU runs that might write one.
    pub(crate) fn serial(&self) -> SerialState {
        let serial = self.serial.lock().unwrap_or_else(PoisonError::into_inner);
        serial.state()
    }

    /// The console device's registers.
    pub(crate) fn console(&self) -> &MmioTransport {
        &self.console
    }

    pub(crate) fn power(&self) -> &Power {
        &self.power
    }

    /// Serves `in`. Several bytes are several reads of the same port (a string instruction).
    pub(crate) fn read_port(&self, port: u16, data: &mut [u8]) {
        if let Some(offset) = serial_offset(port) {
            let mut serial = self.serial.lock().unwrap_or_else(PoisonError::into_inner);
            for byte in data {
                *byte = serial.read(offset);
            }
        } else {
            data.fill(self.power.read(port).unwrap_or(NOTHING));
        }
    }

    /// Serves `out`. Several bytes are several writes of the same port.
    pub(crate) fn write_port(&self, port: u16, data: &[u8]) {
        if let Some(offset) = serial_offset(port) {
            let mut serial = self.serial.lock().unwrap_or_else(PoisonError::into_inner);
            for byte in data {
                // The log takes everything, and an interrupt that is already pending is one.
                let _ = serial.write(offset, *byte);
            }
        } else {
            for byte in data {
                if !self.power.write(port, *byte) {
                    break;
                }
            }
        }
    }

    /// Serves a load from where there is no RAM.
    pub(crate) fn read_memory(&self, address: u64, data: &mut [u8]) {
        match console_offset(address) {
            Some(offset) => self.console.read(offset, data),
            None => data.fill(NOTHING),
        }
    }

    /// Serves a store to where there is no RAM.
    pub(crate) fn write_memory(&self, address: u64, data: &[u8]) {
        if let Some(offset) = console_offset(address) {
            self.console.write(offset, data);
        }
    }
}

/// The register of the serial device, if the port is one.
fn serial_offset(port: u16) -> Option<u8> {
    let offset = port.checked_sub(PORT_SERIAL)?;
    (offset < SERIAL_PORTS).then_some(offset as u8)
}

/// The register of the console device, if the address is one.
fn console_offset(address: u64) -> Option<u64> {
    let offset = address.checked_sub(VIRTIO_MMIO)?;
    (offset < VIRTIO_MMIO_LEN).then_some(offset)
}

#[cfg(test)]
#[path = "bus_test.rs"]
mod tests;
