//! Putting a machine together, for one that boots and one that is restored alike.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use kvm_ioctls::{Kvm, VmFd};

use super::Machine;
use crate::agent::AgentSide;
use crate::boot_report::BootClock;
use crate::console_log::ConsoleLog;
use crate::deadline::Deadlines;
use crate::devices::Devices;
use crate::error::HostError;
use crate::event_loop::{self, Loop};
use crate::kvm::{self, KvmError};
use crate::layout::KVM_TSS;
use crate::memory::GuestRam;
use crate::pause::Hold;
use crate::power::Power;
use crate::reaper::{self, Reaper, Remains};
use crate::stop::{Lifecycle, StopReason, eventfd};
use crate::vcpu::Vcpu;
use crate::vcpus::Vcpus;

/// What the parts of one VM have in common.
pub(crate) struct Wiring {
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) clock: Arc<BootClock>,
    pub(crate) deadlines: Arc<Deadlines>,
    pub(crate) log: Arc<ConsoleLog>,
    pub(crate) agent: Arc<dyn AgentSide>,
}

impl Wiring {
    pub(super) fn new(
        clock: BootClock,
        log: Arc<ConsoleLog>,
        agent: Arc<dyn AgentSide>,
    ) -> Result<Self, HostError> {
        Ok(Self {
            lifecycle: Arc::new(Lifecycle::new(eventfd()?)),
            clock: Arc::new(clock),
            deadlines: Arc::new(Deadlines::new()?),
            log,
            agent,
        })
    }

    /// The registers by which the guest ends.
    pub(crate) fn power(&self) -> Power {
        Power::new(
            Arc::clone(&self.lifecycle),
            Arc::clone(&self.deadlines),
            Arc::clone(&self.log),
        )
    }
}

/// What a machine is made of before it has devices, in the order in which it must go: KVM was shown
/// the memory.
pub(super) struct Assembly {
    pub(super) vcpus: Vec<Vcpu>,
    pub(super) vm: VmFd,
    pub(super) memory: GuestRam,
}

impl Assembly {
    /// Creates VM and vCPUs over `memory`. The vCPUs are of no particular kind yet.
    pub(super) fn new(kvm: &Kvm, memory: GuestRam, cpus: u8) -> Result<Self, KvmError> {
        // An error drops them in the opposite order.
        let memory = memory;
        let vm = kvm::create_vm(kvm)?;
        memory.attach(&vm)?;
        vm.set_tss_address(KVM_TSS)
            .map_err(|e| HostError::new("KVM_SET_TSS_ADDR", e))?;
        vm.create_irq_chip()
            .map_err(|e| HostError::new("KVM_CREATE_IRQCHIP", e))?;
        let vcpus = (0..cpus)
            .map(|id| Vcpu::new(&vm, id))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { vcpus, vm, memory })
    }

    /// Starts the threads. With a `hold` they come to rest at once, and go on with the machine's
    /// [`resume`](Machine::resume). On an error nothing is left.
    pub(super) fn launch(
        self,
        wiring: Wiring,
        devices: Devices,
        hold: Option<Hold>,
        boot_limit: Option<Duration>,
        threads: Vec<JoinHandle<()>>,
    ) -> Result<Machine, HostError> {
        let Self { memory, vm, vcpus } = self;
        let Wiring {
            lifecycle,
            clock,
            deadlines,
            log,
            agent,
        } = wiring;
        let Devices {
            bus,
            console,
            drain,
            refill,
            acknowledge,
            power_button,
        } = devices;
        if hold.is_some() {
            // Nobody else knows the machine who could have paused it.
            let _ = lifecycle.standstill().begin();
        }
        let hold = Arc::new(Mutex::new(hold));
        let errands = vcpus.iter().map(Vcpu::errand).collect();
        let asked = Arc::new(Vcpus::new(errands, Arc::clone(&lifecycle)));
        let (outbox, inbox) = reaper::channel();
        let work = Loop {
            lifecycle: Arc::clone(&lifecycle),
            deadlines: Arc::clone(&deadlines),
            vcpus: Arc::clone(&asked),
            bus: Arc::clone(&bus),
            console: Arc::clone(&console),
            agent: Arc::clone(&agent),
            damage: memory.damage().cloned(),
            hold: Arc::clone(&hold),
            drain,
            refill,
            boot_limit,
        };
        let thread = event_loop::start(work, inbox)?;
        let machine = Machine {
            lifecycle,
            clock,
            deadlines,
            log,
            vcpus: asked,
            console: Arc::clone(&console),
            power_button,
            agent,
            hold,
            remains: Some((
                Remains {
                    threads,
                    bus,
                    console,
                    acknowledge,
                    vm,
                    memory,
                },
                Reaper { outbox, thread },
            )),
        };
        start_vcpus(machine, vcpus)
    }
}

/// Lets it run. On an error nothing is left.
fn start_vcpus(mut machine: Machine, vcpus: Vec<Vcpu>) -> Result<Machine, HostError> {
    let mut vcpus = vcpus.into_iter();
    while let Some(vcpu) = vcpus.next() {
        let Some((remains, _)) = &mut machine.remains else {
            break;
        };
        let (bus, lifecycle) = (Arc::clone(&remains.bus), Arc::clone(&machine.lifecycle));
        match vcpu.start(bus, lifecycle, Arc::clone(&machine.clock)) {
            Ok(thread) => remains.threads.push(thread),
            Err(e) => {
                // They hold the VM, which must be gone before its memory is.
                drop(vcpus);
                if let Some(freed) = machine.end(StopReason::Dropped) {
                    freed.wait_blocking();
                }
                return Err(e);
            }
        }
    }
    Ok(machine)
}
