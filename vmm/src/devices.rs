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
use forebay_virtio_console::{Console, Held, QueueIndex};
use kvm_ioctls::{IoEventAddress, NoDatamatch, VmFd};
use vm_memory::GuestMemoryMmap;
use vm_superio::SerialState;
use vmm_sys_util::eventfd::EventFd;

use crate::agent::Threshold;
use crate::boot_report::{BootClock, Moment};
use crate::bus::{Bus, SerialInterrupt};
use crate::error::HostError;
use crate::layout::{GSI_POWER_BUTTON, GSI_SERIAL, GSI_VIRTIO, VIRTIO_MMIO};
use crate::machine::Wiring;
use crate::snapshot::RestoreError;
use crate::snapshot::devices::SavedDevices;
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
    /// Those of a VM that boots.
    pub(crate) fn new(
        vm: &VmFd,
        memory: &GuestMemoryMmap,
        wiring: &Wiring,
    ) -> Result<Self, HostError> {
        let front = Front::new(vm, wiring)?;
        let (observed, line) = front.ends();
        let transport = MmioTransport::new(memory.clone(), observed, line);
        front.wire(vm, wiring, transport, &SerialState::default())
    }

    /// Those of a VM that was saved, and the console device at rest. The VM's interrupt controllers
    /// are as they were: what raises a line here is not lost.
    pub(crate) fn restore(
        vm: &VmFd,
        memory: &GuestMemoryMmap,
        wiring: &Wiring,
        saved: &SavedDevices,
    ) -> Result<(Self, Held), RestoreError> {
        let front = Front::new(vm, wiring)?;
        let (observed, line) = front.ends();
        let (transport, activation) =
            MmioTransport::restore(&saved.transport, memory.clone(), observed, line)?;
        let held = front.console.restore(&saved.console, activation)?;
        if saved.console.is_connected() {
            front.threshold.keep_an_eye();
        }
        let devices = front.wire(vm, wiring, transport, &saved.serial)?;
        if saved.panicked {
            devices.bus.power().panic();
        }
        Ok((devices, held))
    }

    /// Saves them while the VM is paused.
    pub(crate) fn save(bus: &Bus, console: &Held) -> SavedDevices {
        SavedDevices {
            transport: bus.console().save(),
            console: console.save(),
            serial: bus.serial(),
            panicked: bus.power().has_panicked(),
        }
    }
}

/// The console device with its wires, before its registers are there.
struct Front {
    line: Arc<Line>,
    drain: EventFd,
    threshold: Arc<Threshold>,
    console: Arc<Console>,
    clock: Arc<BootClock>,
}

impl Front {
    fn new(vm: &VmFd, wiring: &Wiring) -> Result<Self, HostError> {
        let clock = Arc::clone(&wiring.clock);
        let line = Arc::new(Line(irqfd(vm, GSI_VIRTIO)?));
        let drain = eventfd()?;
        let bell = Arc::new(Bell(duplicate(&drain)?));
        let threshold = Arc::new(Threshold::new(
            Arc::clone(&wiring.agent),
            Arc::clone(&clock),
            Arc::clone(&wiring.deadlines),
        ));
        let console = Console::new(
            Arc::clone(&threshold) as _,
            Arc::clone(&wiring.log) as _,
            Arc::clone(&line) as _,
            bell,
        );
        Ok(Self {
            line,
            drain,
            threshold,
            console,
            clock,
        })
    }

    /// The device and its line, for its registers.
    fn ends(&self) -> (Arc<Observed>, Arc<Line>) {
        let observed = Arc::new(Observed {
            console: Arc::clone(&self.console),
            clock: Arc::clone(&self.clock),
        });
        (observed, Arc::clone(&self.line))
    }

    /// Lets the guest reach everything.
    fn wire(
        self,
        vm: &VmFd,
        wiring: &Wiring,
        transport: MmioTransport,
        serial: &SerialState,
    ) -> Result<Devices, HostError> {
        let refill = eventfd()?;
        let queue: u32 = QueueIndex::AgentToGuest.index().into();
        ioeventfd(vm, &refill, QUEUE_NOTIFY, queue)?;
        let acknowledge = eventfd()?;
        ioeventfd(vm, &acknowledge, INTERRUPT_ACK, NoDatamatch)?;
        let interrupt = SerialInterrupt(irqfd(vm, GSI_SERIAL)?);
        let log = Arc::clone(&wiring.log);
        Ok(Devices {
            bus: Arc::new(Bus::new(interrupt, serial, log, wiring.power(), transport)?),
            console: self.console,
            drain: self.drain,
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
