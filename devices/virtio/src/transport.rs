//! The virtio-mmio version 2 register file (VIRTIO 1.2, section 4.2.2).
//!
//! Owns negotiation, the queues' addresses until they go live, the device status and reset. Does
//! not own the device, its queues once they are live, or the place on the bus. How it is saved and
//! restored is in `saved_transport`.
//!
//! # Who calls
//!
//! [`MmioTransport::read`] and [`MmioTransport::write`] come from any vCPU thread, with an offset
//! into the [`spec::MMIO_LEN`] bytes at which the machine placed it. A kick takes no lock here; all
//! else is rare and serialized by one.
//!
//! # Interrupts
//!
//! The interrupt status register is constant: it reads "used ring" always, and "configuration
//! change" besides once the device has failed. A driver's acknowledge therefore changes nothing,
//! and the machine may let an ioeventfd swallow writes to [`spec::INTERRUPT_ACK`], which saves
//! an exit to user space per interrupt. That is sound only while the line is edge triggered and
//! not shared; a level would never fall.
//!
//! # Order
//!
//! The driver has to set the status bits one after another (section 3.1.1). What comes out of
//! order, unaligned, in another width than 4 bytes, read from a write-only register or written to
//! a read-only or unknown one is ignored and reads as zero. Only the kick is taken in any width,
//! because its value says all there is to know.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use virtio_bindings::virtio_mmio as reg;
use vm_memory::GuestMemoryMmap;

use crate::device::{Activation, Interrupt, VirtioDevice};
use crate::queue_config::{QueueConfig, QueueConfigError};
use crate::spec::{
    self, F_EVENT_IDX, F_INDIRECT_DESC, F_VERSION_1, INTERRUPT_CONFIG, INTERRUPT_VRING,
    STATUS_ACKNOWLEDGE, STATUS_DRIVER, STATUS_DRIVER_OK, STATUS_FAILED, STATUS_FEATURES_OK,
    STATUS_NEEDS_RESET,
};

/// The status bits a driver sets, in the order it has to.
pub(crate) const STATUS_ORDER: [u32; 4] = [
    STATUS_ACKNOWLEDGE,
    STATUS_DRIVER,
    STATUS_FEATURES_OK,
    STATUS_DRIVER_OK,
];

/// The vendor the device claims to be from. Drivers do not look at it.
const VENDOR_ID: u32 = u32::from_le_bytes(*b"FBAY");

/// A virtio-mmio register file in front of one device.
pub struct MmioTransport {
    pub(crate) mem: GuestMemoryMmap,
    pub(crate) device: Arc<dyn VirtioDevice>,
    pub(crate) interrupt: Arc<dyn Interrupt>,
    /// Mirrors `STATUS_NEEDS_RESET` for whoever reads without the lock.
    pub(crate) failed: AtomicBool,
    pub(crate) registers: Mutex<Registers>,
}

/// What the driver has written since the last reset.
#[derive(Debug)]
pub(crate) struct Registers {
    pub(crate) status: u32,
    pub(crate) device_features_sel: u32,
    pub(crate) driver_features_sel: u32,
    pub(crate) driver_features: u64,
    pub(crate) queue_sel: u32,
    pub(crate) queues: Vec<QueueConfig>,
}

impl Registers {
    fn new(device: &dyn VirtioDevice) -> Self {
        Self {
            status: 0,
            device_features_sel: 0,
            driver_features_sel: 0,
            driver_features: 0,
            queue_sel: 0,
            queues: device
                .queues()
                .iter()
                .map(|spec| QueueConfig::new(*spec))
                .collect(),
        }
    }

    fn selected(&self) -> Option<&QueueConfig> {
        self.queues.get(self.queue_sel as usize)
    }

    /// The selected queue, if the driver may configure it now.
    fn selected_mut(&mut self) -> Option<&mut QueueConfig> {
        let configuring = self.status & (STATUS_FEATURES_OK | STATUS_DRIVER_OK | STATUS_FAILED)
            == STATUS_FEATURES_OK;
        if configuring {
            self.queues.get_mut(self.queue_sel as usize)
        } else {
            None
        }
    }

    /// Writes one half of an address of the selected queue, unless the queue is in use.
    fn set_address(&mut self, part: fn(&mut QueueConfig) -> &mut u64, half: Half, value: u32) {
        if let Some(queue) = self.selected_mut().filter(|queue| !queue.ready) {
            half.set(part(queue), value);
        }
    }
}

/// Half of a 64-bit register.
#[derive(Clone, Copy)]
enum Half {
    Low,
    High,
}

impl Half {
    fn set(self, target: &mut u64, value: u32) {
        *target = match self {
            Half::Low => *target & !u64::from(u32::MAX) | u64::from(value),
            Half::High => *target & u64::from(u32::MAX) | u64::from(value) << 32,
        };
    }
}

impl MmioTransport {
    /// Puts a register file in front of `device`. `mem` is where the driver's queues have to lie;
    /// `interrupt` is raised by the transport itself only to tell of a failed activation.
    #[must_use]
    pub fn new(
        mem: GuestMemoryMmap,
        device: Arc<dyn VirtioDevice>,
        interrupt: Arc<dyn Interrupt>,
    ) -> Self {
        let registers = Mutex::new(Registers::new(&*device));
        Self {
            mem,
            device,
            interrupt,
            failed: AtomicBool::new(false),
            registers,
        }
    }

    /// Serves a load of `data.len()` bytes at `offset`.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if offset >= spec::CONFIG {
            self.device.read_config(offset - spec::CONFIG, data);
            return;
        }
        let Ok(word) = <&mut [u8; 4]>::try_from(data) else {
            return;
        };
        *word = self.read_register(offset).to_le_bytes();
    }

    /// Serves a store of `data` at `offset`.
    pub fn write(&self, offset: u64, data: &[u8]) {
        if offset == spec::QUEUE_NOTIFY {
            self.notify(data);
            return;
        }
        // The configuration space of no device here has a field that a driver may write.
        if offset >= spec::CONFIG {
            return;
        }
        if let Ok(word) = <[u8; 4]>::try_from(data) {
            self.write_register(offset, u32::from_le_bytes(word));
        }
    }

    /// The driver's status bits and the device's own, as the status register reads.
    #[must_use]
    pub fn status(&self) -> u32 {
        self.registers().status
    }

    pub(crate) fn registers(&self) -> MutexGuard<'_, Registers> {
        // Every update leaves the registers valid, so a panic elsewhere does not spoil them.
        self.registers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a kick on. Takes no lock: the device decides whether the queue is alive.
    fn notify(&self, data: &[u8]) {
        let mut word = [0; 8];
        let Some(low) = word.get_mut(..data.len()) else {
            return;
        };
        low.copy_from_slice(data);
        // Without NOTIFICATION_DATA the register holds the queue's index and nothing else.
        let Ok(queue) = u16::try_from(u64::from_le_bytes(word)) else {
            return;
        };
        if usize::from(queue) < self.device.queues().len() {
            self.device.notify(queue);
        }
    }

    fn read_register(&self, offset: u64) -> u32 {
        let Ok(register) = u32::try_from(offset) else {
            return 0;
        };
        match register {
            reg::VIRTIO_MMIO_MAGIC_VALUE => spec::MMIO_MAGIC,
            reg::VIRTIO_MMIO_VERSION => spec::MMIO_VERSION,
            reg::VIRTIO_MMIO_DEVICE_ID => self.device.device_type(),
            reg::VIRTIO_MMIO_VENDOR_ID => VENDOR_ID,
            reg::VIRTIO_MMIO_DEVICE_FEATURES => {
                half(self.device.features(), self.registers().device_features_sel)
            }
            reg::VIRTIO_MMIO_QUEUE_NUM_MAX => {
                let selected = self.registers().queue_sel as usize;
                let spec = self.device.queues().get(selected);
                spec.map_or(0, |spec| u32::from(spec.max_size))
            }
            reg::VIRTIO_MMIO_QUEUE_READY => {
                let registers = self.registers();
                registers
                    .selected()
                    .map_or(0, |queue| u32::from(queue.ready))
            }
            reg::VIRTIO_MMIO_INTERRUPT_STATUS => {
                // Read at each interrupt, hence without the lock.
                if self.failed.load(Ordering::Relaxed) {
                    INTERRUPT_VRING | INTERRUPT_CONFIG
                } else {
                    INTERRUPT_VRING
                }
            }
            reg::VIRTIO_MMIO_STATUS => self.registers().status,
            // Section 4.2.2.1: a region that does not exist reads as all ones.
            _ if (spec::SHM_LEN_LOW..=spec::SHM_BASE_HIGH).contains(&offset)
                && offset.is_multiple_of(4) =>
            {
                u32::MAX
            }
            // The configuration never changes, so its generation reads as zero like all the rest.
            _ => 0,
        }
    }

    fn write_register(&self, offset: u64, value: u32) {
        let Ok(register) = u32::try_from(offset) else {
            return;
        };
        let mut registers = self.registers();
        match register {
            reg::VIRTIO_MMIO_DEVICE_FEATURES_SEL => registers.device_features_sel = value,
            reg::VIRTIO_MMIO_DRIVER_FEATURES_SEL => registers.driver_features_sel = value,
            reg::VIRTIO_MMIO_DRIVER_FEATURES => {
                let negotiating = registers.status & (STATUS_DRIVER | STATUS_FEATURES_OK);
                if negotiating == STATUS_DRIVER {
                    let sel = registers.driver_features_sel;
                    let features = &mut registers.driver_features;
                    match sel {
                        0 => Half::Low.set(features, value),
                        1 => Half::High.set(features, value),
                        // Bits above 63 do not exist here; accepting one breaks FEATURES_OK only
                        // if it is set, and a set one cannot be told from here, so it is dropped.
                        _ => {}
                    }
                }
            }
            reg::VIRTIO_MMIO_QUEUE_SEL => registers.queue_sel = value,
            reg::VIRTIO_MMIO_QUEUE_NUM => {
                if let Some(queue) = registers.selected_mut().filter(|queue| !queue.ready) {
                    queue.size = value;
                }
            }
            reg::VIRTIO_MMIO_QUEUE_READY => {
                if let Some(queue) = registers.selected_mut() {
                    queue.ready = value & 1 == 1;
                }
            }
            reg::VIRTIO_MMIO_QUEUE_DESC_LOW => {
                registers.set_address(|queue| &mut queue.descriptors, Half::Low, value);
            }
            reg::VIRTIO_MMIO_QUEUE_DESC_HIGH => {
                registers.set_address(|queue| &mut queue.descriptors, Half::High, value);
            }
            reg::VIRTIO_MMIO_QUEUE_AVAIL_LOW => {
                registers.set_address(|queue| &mut queue.available, Half::Low, value);
            }
            reg::VIRTIO_MMIO_QUEUE_AVAIL_HIGH => {
                registers.set_address(|queue| &mut queue.available, Half::High, value);
            }
            reg::VIRTIO_MMIO_QUEUE_USED_LOW => {
                registers.set_address(|queue| &mut queue.used, Half::Low, value);
            }
            reg::VIRTIO_MMIO_QUEUE_USED_HIGH => {
                registers.set_address(|queue| &mut queue.used, Half::High, value);
            }
            reg::VIRTIO_MMIO_STATUS => self.write_status(&mut registers, value),
            // Nothing to acknowledge: the interrupt status is constant.
            reg::VIRTIO_MMIO_INTERRUPT_ACK => {}
            _ => tracing::trace!(offset, value, "write to a register that is not there"),
        }
    }

    fn write_status(&self, registers: &mut Registers, value: u32) {
        if value == 0 {
            self.device.reset();
            self.failed.store(false, Ordering::Relaxed);
            *registers = Registers::new(&*self.device);
            return;
        }
        // Section 2.1.1: the driver must not clear a bit. The device's own bit is not its to write.
        let kept = registers.status & !STATUS_NEEDS_RESET;
        if kept & !value != 0 {
            tracing::debug!(
                from = registers.status,
                to = value,
                "status bits cleared: ignored"
            );
            return;
        }
        if registers.status & (STATUS_NEEDS_RESET | STATUS_FAILED) == 0 {
            for (position, bit) in STATUS_ORDER.into_iter().enumerate() {
                let before: u32 = STATUS_ORDER.iter().take(position).sum();
                if value & bit == 0 || registers.status & bit != 0 {
                    continue;
                }
                if registers.status & before != before {
                    tracing::debug!(bit, "status bit out of order: ignored");
                    break;
                }
                self.set_status_bit(registers, bit);
            }
        }
        registers.status |= value & STATUS_FAILED;
    }

    fn set_status_bit(&self, registers: &mut Registers, bit: u32) {
        match bit {
            STATUS_FEATURES_OK => {
                let features = registers.driver_features;
                let acceptable =
                    features & !self.device.features() == 0 && features & F_VERSION_1 != 0;
                if !acceptable {
                    // Section 3.1.1: the driver reads the bit back and sees that it did not stick.
                    tracing::debug!(features, "driver's features refused");
                    return;
                }
                registers.status |= bit;
            }
            STATUS_DRIVER_OK => {
                registers.status |= bit;
                match self.build_queues(registers) {
                    Ok(queues) => self.device.activate(Activation {
                        features: registers.driver_features,
                        queues,
                    }),
                    Err((queue, error)) => {
                        tracing::debug!(queue, %error, "virtio device stays dead until it is reset");
                        registers.status |= STATUS_NEEDS_RESET;
                        self.failed.store(true, Ordering::Relaxed);
                        // Section 2.1.2: a device that needs reset after DRIVER_OK says so.
                        self.interrupt.signal_queue();
                    }
                }
            }
            _ => registers.status |= bit,
        }
    }

    #[allow(clippy::type_complexity)] // Two callers, and the parts have no name of their own.
    pub(crate) fn build_queues(
        &self,
        registers: &Registers,
    ) -> Result<Vec<Option<crate::Virtqueue>>, (usize, QueueConfigError)> {
        let event_idx = registers.driver_features & F_EVENT_IDX != 0;
        let indirect = registers.driver_features & F_INDIRECT_DESC != 0;
        self.device
            .queues()
            .iter()
            .zip(&registers.queues)
            .enumerate()
            .map(|(index, (spec, config))| {
                if !config.ready {
                    return Ok(None);
                }
                config
                    .build(*spec, &self.mem, event_idx, indirect)
                    .map(Some)
                    .map_err(|error| (index, error))
            })
            .collect()
    }
}

impl std::fmt::Debug for MmioTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MmioTransport")
            .field("device_type", &self.device.device_type())
            .field("registers", &*self.registers())
            .finish_non_exhaustive()
    }
}

/// The 32-bit word of a feature set that `sel` selects.
fn half(features: u64, sel: u32) -> u32 {
    match sel {
        0 => crate::queue_config::low(features),
        1 => crate::queue_config::high(features),
        _ => 0,
    }
}

#[cfg(test)]
#[path = "transport_test.rs"]
mod tests;
