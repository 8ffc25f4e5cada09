//! The devices of a VM, wired to KVM: which event goes by which descriptor.
//!
//! | event | how |
//! |---|---|
//! | console device → guest | irqfd, edge |
//! | guest acknowledges an interrupt | ioeventfd that nobody reads: the status register is constant |
//! | guest posted buffers for port 1 (queue 4) | ioeventfd → event loop |
//! | other kicks | exit → vCPU thread, inline |
//! | console device → event loop ("drain me") | eventfd |
//! | serial device → guest | irqfd, edge |
//! | power button → guest | irqfd, edge |

use std::sync::Arc;

use forebay_virtio::{Activation, Doorbell, Interrupt, MmioTransport, QueueSpec, VirtioDevice};
use forebay_virtio_console::{Console, QueueIndex};
use kvm_ioctls::{IoEventAddress, NoDatamatch, VmFd};
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use crate::agent::{AgentSide, Threshold};
use crate::boot_report::{BootClock, Moment};
use crate::bus::{Bus, SerialInterrupt};
use crate::console_log::ConsoleLog;
use crate::deadline::Deadlines;
use crate::error::HostError;
use crate::layout::{GSI_POWER_BUTTON, GSI_SERIAL, GSI_VIRTIO, VIRTIO_MMIO};
use crate::power::Power;
use crate::stop::eventfd;

/// virtio-mmio register: kick a queue, whose number is the value written.
const QUEUE_NOTIFY: u64 = 0x50;
/// virtio-mmio register: acknowledge an interrupt.
const INTERRUPT_ACK: u64 = 0x64;

/// The devices, and what the event loop serves of them.
pub(crate) struct Devices {
    pub(crate) bus: Arc<Bus>,
    pub(crate) console: Arc<Console>,
    /// The console device wants the event loop.
    pub(crate) drain: EventFd,
    /// The guest posted buffers for port 1.
    pub(crate) refill: EventFd,
    /// Takes the guest's acknowledgements and is never read.
    pub(crate) acknowledge: EventFd,
    /// Presses the power button.
    pub(crate) power_button: EventFd,
}

impl Devices {
    pub(crate) fn new(
        vm: &VmFd,
        memory: &GuestMemoryMmap,
        agent: Arc<dyn AgentSide>,
        log: Arc<ConsoleLog>,
        power: Power,
        clock: Arc<BootClock>,
        deadlines: Arc<Deadlines>,
    ) -> Result<Self, HostError> {
        let line = Arc::new(Line(irqfd(vm, GSI_VIRTIO)?));
        let drain = eventfd()?;
        let bell = Arc::new(Bell(duplicate(&drain)?));
        let gate = Arc::new(Threshold::new(agent, Arc::clone(&clock), deadlines));
        let console = Console::new(gate, Arc::clone(&log) as _, Arc::clone(&line) as _, bell);
        let observed = Arc::new(Observed {
            console: Arc::clone(&console),
            clock,
        });
        let transport = MmioTransport::new(memory.clone(), observed, line);

        let refill = eventfd()?;
        let queue: u32 = QueueIndex::AgentToGuest.index().into();
        ioeventfd(vm, &refill, QUEUE_NOTIFY, queue)?;
        let acknowledge = eventfd()?;
        ioeventfd(vm, &acknowledge, INTERRUPT_ACK, NoDatamatch)?;

        let serial = SerialInterrupt(irqfd(vm, GSI_SERIAL)?);
        Ok(Self {
            bus: Arc::new(Bus::new(serial, log, power, transport)),
            console,
            drain,
            refill,
            acknowledge,
            power_button: irqfd(vm, GSI_POWER_BUTTON)?,
        })
    }
}

/// An eventfd that raises an interrupt line of `vm`.
fn irqfd(vm: &VmFd, gsi: u32) -> Result<EventFd, HostError> {
    let fd = eventfd()?;
    vm.register_irqfd(&fd, gsi)
        .map_err(|e| HostError::on("KVM_IRQFD", gsi, e))?;
    Ok(fd)
}

/// Lets a store to a register of the console device write `fd` instead of leaving the guest.
fn ioeventfd<T: Into<u64>>(
    vm: &VmFd,
    fd: &EventFd,
    register: u64,
    value: T,
) -> Result<(), HostError> {
    vm.register_ioevent(fd, &IoEventAddress::Mmio(VIRTIO_MMIO + register), value)
        .map_err(|e| HostError::on("KVM_IOEVENTFD", format!("{register:#x}"), e))
}

fn duplicate(fd: &EventFd) -> Result<EventFd, HostError> {
    fd.try_clone().map_err(|e| HostError::new("dup", e))
}

/// The console device's interrupt line.
struct Line(EventFd);

impl Interrupt for Line {
    fn signal_queue(&self) {
        // Fails only when the counter is full, and then the line is being raised anyway.
        let _ = self.0.write(1);
    }
}

/// The way from the console device to the event loop.
struct Bell(EventFd);

impl Doorbell for Bell {
    fn ring(&self) {
        // As above: a full counter is a ring already.
        let _ = self.0.write(1);
    }
}

/// The console device; notes when the guest's drivers find and take it.
struct Observed {
    console: Arc<Console>,
    clock: Arc<BootClock>,
}

impl VirtioDevice for Observed {
    fn device_type(&self) -> u32 {
        self.console.device_type()
    }

    fn features(&self) -> u64 {
        self.console.features()
    }

    fn queues(&self) -> &[QueueSpec] {
        self.console.queues()
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        self.console.read_config(offset, data);
    }

    fn activate(&self, activation: Activation) {
        self.clock.note(Moment::DriverFound);
        self.console.activate(activation);
    }

    fn notify(&self, queue: u16) {
        self.console.notify(queue);
    }

    fn reset(&self) {
        // The first thing that a driver does with a device.
        self.clock.note(Moment::DeviceFound);
        self.console.reset();
    }
}
