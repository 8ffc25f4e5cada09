//! The devices: the console device's two records are its own, the rest is small.

use forebay_virtio::SavedTransport;
use forebay_virtio_console::SavedConsole;
use minicbor::{Decode, Encode};
use vm_superio::SerialState;

use super::error::RestoreError;
use super::file::Records;
use super::form;

const TRANSPORT: &str = "transport";
const CONSOLE: &str = "console";
const PLATFORM: &str = "platform";
const VERSION: u32 = 1;

/// Bytes that the serial device holds for the guest at most.
const SERIAL_FIFO: usize = 64;

/// What the devices of one VM are saved as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedDevices {
    pub(crate) transport: SavedTransport,
    pub(crate) console: SavedConsole,
    pub(crate) serial: SerialState,
    /// The guest has reported a panic and not ended since.
    pub(crate) panicked: bool,
}

/// What has no record of its own.
#[derive(Debug, PartialEq, Eq, Encode, Decode)]
struct PlatformV1 {
    /// Divisor low and high, interrupt enable and identification, line control and status, modem
    /// control and status, scratch.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    serial: [u8; 9],
    /// What the serial device holds for the guest.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    serial_fifo: Vec<u8>,
    #[n(2)]
    panicked: bool,
}

impl SavedDevices {
    pub(crate) fn put(&self, records: &mut Records) {
        let serial = &self.serial;
        let platform = PlatformV1 {
            serial: [
                serial.baud_divisor_low,
                serial.baud_divisor_high,
                serial.interrupt_enable,
                serial.interrupt_identification,
                serial.line_control,
                serial.line_status,
                serial.modem_control,
                serial.modem_status,
                serial.scratch,
            ],
            serial_fifo: serial.in_buffer.clone(),
            panicked: self.panicked,
        };
        records.put(TRANSPORT, VERSION, self.transport.encode());
        records.put(CONSOLE, VERSION, self.console.encode());
        records.put(PLATFORM, VERSION, form::encode(&platform));
    }

    /// The way back. What the console device's records say is judged by the device.
    pub(crate) fn take(records: &mut Records) -> Result<Self, RestoreError> {
        let transport = SavedTransport::decode(&records.take(TRANSPORT, VERSION)?)?;
        let console = SavedConsole::decode(&records.take(CONSOLE, VERSION)?)?;
        let platform: PlatformV1 = form::decode(PLATFORM, &records.take(PLATFORM, VERSION)?)?;
        if platform.serial_fifo.len() > SERIAL_FIFO {
            return Err(RestoreError::rule(
                PLATFORM,
                "the serial device holds more than it has room for",
            ));
        }
        let [
            baud_divisor_low,
            baud_divisor_high,
            interrupt_enable,
            interrupt_identification,
            line_control,
            line_status,
            modem_control,
            modem_status,
            scratch,
        ] = platform.serial;
        Ok(Self {
            transport,
            console,
            serial: SerialState {
                baud_divisor_low,
                baud_divisor_high,
                interrupt_enable,
                interrupt_identification,
                line_control,
                line_status,
                modem_control,
                modem_status,
                scratch,
                in_buffer: platform.serial_fifo,
            },
            panicked: platform.panicked,
        })
    }
}

#[cfg(test)]
#[path = "devices_test.rs"]
mod tests;
