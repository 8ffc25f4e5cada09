//! A virtual processor: made, set up, and run on a thread of its own until the VM stops.
//!
//! | module | owns |
//! |---|---|
//! | [`cpuid`] | what the guest's `cpuid` answers |
//! | [`registers`] | the state a kernel is entered with, and what is shown of a dead vCPU |
//! | [`state`], [`msrs`], [`tsc`] | all of a vCPU's state, saved and restored |
//! | [`kick`] | getting the thread out of guest mode |
//! | [`errand`] | having something done by the thread, outside the guest |
//! | [`look`] | what it is doing |
//!
//! A vCPU thread knows the [`Bus`] and the [`Lifecycle`], nothing of devices behind them. Every exit
//! that means an end becomes a [`StopReason`] for the whole VM.

pub(crate) mod cpuid;
pub(crate) mod errand;
pub(crate) mod kick;
pub(crate) mod look;
pub(crate) mod msrs;
pub(crate) mod registers;
mod run_page;
pub(crate) mod state;
pub(crate) mod tsc;

use std::sync::Arc;
use std::thread::JoinHandle;

use kvm_bindings::{
    CpuId, KVM_INTERNAL_ERROR_DELIVERY_EV, KVM_INTERNAL_ERROR_EMULATION,
    KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES, KVM_INTERNAL_ERROR_SIMUL_EX,
    KVM_MAX_CPUID_ENTRIES, KVM_SYSTEM_EVENT_CRASH, KVM_SYSTEM_EVENT_RESET,
    KVM_SYSTEM_EVENT_SHUTDOWN,
};
use kvm_ioctls::{VcpuExit, VcpuFd, VmFd};

use crate::boot::Entry;
use crate::boot_report::{BootClock, Moment};
use crate::bus::Bus;
use crate::error::HostError;
use crate::stop::{Lifecycle, StopReason};
use crate::threads;
use errand::Errand;
use kick::KickTarget;
use registers::Registers;

/// The vCPU that starts the kernel; the others wait for it to start them.
pub(crate) const BOOT_VCPU: u8 = 0;

/// A vCPU that is not yet running.
#[derive(Debug)]
pub(crate) struct Vcpu {
    fd: VcpuFd,
    id: u8,
    kick: Arc<KickTarget>,
    errand: Arc<Errand>,
}

impl Vcpu {
    /// Creates vCPU `id`, of no particular kind.
    pub(crate) fn new(vm: &VmFd, id: u8) -> Result<Self, HostError> {
        let fd = vm
            .create_vcpu(id.into())
            .map_err(|e| HostError::on("KVM_CREATE_VCPU", id, e))?;
        Ok(Self {
            fd,
            id,
            kick: Arc::default(),
            errand: Arc::default(),
        })
    }

    /// Makes it one of `cpus`, as after a reset.
    pub(crate) fn set_up(&self, supported: &CpuId, cpus: u8) -> Result<(), HostError> {
        self.set_cpuid(supported, cpus)?;
        registers::set_msrs(&self.fd)
    }

    /// What it would be told of its processor if it were set up as one of `cpus`: what KVM makes of
    /// what it supports.
    pub(crate) fn offered(&self, supported: &CpuId, cpus: u8) -> Result<CpuId, HostError> {
        self.set_cpuid(supported, cpus)?;
        self.fd
            .get_cpuid2(KVM_MAX_CPUID_ENTRIES)
            .map_err(|e| HostError::on("KVM_GET_CPUID2", self.id, e))
    }

    fn set_cpuid(&self, supported: &CpuId, cpus: u8) -> Result<(), HostError> {
        self.fd
            .set_cpuid2(&cpuid::for_vcpu(supported, self.id, cpus)?)
            .map_err(|e| HostError::on("KVM_SET_CPUID2", self.id, e))
    }

    /// KVM's end, for restoring it.
    pub(crate) fn fd(&self) -> &VcpuFd {
        &self.fd
    }

    /// Makes this the vCPU that enters the kernel at `entry`.
    pub(crate) fn boot_at(&self, entry: Entry) -> Result<(), HostError> {
        match entry {
            Entry::Pvh(address) => registers::enter_pvh(&self.fd, address),
            Entry::Linux64(address) => registers::enter_linux64(&self.fd, address),
        }
    }

    /// Where to ask something of this vCPU's thread.
    pub(crate) fn errand(&self) -> Arc<Errand> {
        Arc::clone(&self.errand)
    }

    /// Starts the thread. However it ends, the VM ends with it.
    pub(crate) fn start(
        self,
        bus: Arc<Bus>,
        lifecycle: Arc<Lifecycle>,
        clock: Arc<BootClock>,
    ) -> Result<JoinHandle<()>, HostError> {
        let name = format!("forebay-vcpu{}", self.id);
        lifecycle.vcpu_starts(Arc::clone(&self.kick));
        let started = threads::spawn(name.clone(), {
            let (name, lifecycle) = (name.clone(), Arc::clone(&lifecycle));
            move || {
                let (id, errand) = (self.id, Arc::clone(&self.errand));
                lifecycle.vcpu_runs_here();
                match threads::catch(|| self.run(&bus, &lifecycle, &clock)) {
                    Ok(Some(reason)) => bus.power().ended_by_vcpu(reason),
                    Ok(None) => {}
                    Err(message) => lifecycle.stop(StopReason::Internal {
                        thread: name,
                        message,
                    }),
                }
                errand.close();
                tracing::trace!(vcpu = id, "vCPU stopped");
                lifecycle.vcpu_ended();
            }
        });
        started.map_err(|e| {
            lifecycle.vcpu_ended();
            HostError::on("start thread", name, e)
        })
    }

    /// Runs the guest until the VM stops; `Some` if this vCPU is why.
    fn run(mut self, bus: &Bus, lifecycle: &Lifecycle, clock: &BootClock) -> Option<StopReason> {
        let kick = Arc::clone(&self.kick);
        let _registered = match kick.enter(&self.fd) {
            Ok(registered) => registered,
            Err(e) => {
                return Some(StopReason::Host {
                    error: HostError::on("KVM_SET_SIGNAL_MASK", self.id, e).to_string(),
                });
            }
        };
        // Asked before the thread could be kicked.
        self.errand.run(&self.fd);
        self.rest(lifecycle);
        if self.id == BOOT_VCPU && !lifecycle.is_stopping() {
            clock.note(Moment::Entered);
        }
        while !lifecycle.is_stopping() {
            match self.step(bus) {
                Step::Served => {}
                Step::Interrupted => {
                    kick::drain();
                    self.errand.run(&self.fd);
                    // Here and nowhere else: KVM finishes the access that the guest came out for last
                    // before it looks for signals, so now none is pending. One that is pending in a
                    // saved state would be made once more by every copy.
                    self.rest(lifecycle);
                }
                Step::End(end) => return Some(self.explain(end)),
            }
        }
        None
    }

    /// Enters the guest, and serves what it comes out for.
    fn step(&mut self, bus: &Bus) -> Step {
        match self.fd.run() {
            Ok(VcpuExit::IoOut(port, data)) => bus.write_port(port, data),
            Ok(VcpuExit::IoIn(port, data)) => bus.read_port(port, data),
            Ok(VcpuExit::MmioWrite(address, data)) => bus.write_memory(address, data),
            Ok(VcpuExit::MmioRead(address, data)) => bus.read_memory(address, data),
            Ok(exit) => return Step::End(End::from(exit)),
            Err(e) if e.errno() == libc::EINTR => return Step::Interrupted,
            // A secondary vCPU that was just started, or a transient shortage.
            Err(e) if e.errno() == libc::EAGAIN => {}
            // The host has no page for where the guest wanted to go.
            Err(e) if e.errno() == libc::EFAULT => return Step::End(End::MemoryLost),
            Err(e) => return Step::End(End::Kvm(format!("KVM_RUN: {e}"))),
        }
        Step::Served
    }

    /// Rests while the VM stands still. No access may be pending.
    fn rest(&self, lifecycle: &Lifecycle) {
        let rested = lifecycle
            .standstill()
            .rest_vcpu(|| self.errand.run(&self.fd));
        if rested {
            // Tells the guest's watchdogs that it was not their fault. The flag is in no saved
            // state, so it is set behind a restore too. A guest without KVM's clock has no such
            // flag, which is the only error there is.
            let _ = self.fd.kvmclock_ctrl();
        }
    }

    fn explain(&mut self, end: End) -> StopReason {
        let vcpu = self.id;
        match end {
            End::Shutdown => StopReason::TripleFault {
                vcpu,
                registers: Registers::read(&self.fd)
                    .filter(|seen| !seen.is_reset())
                    .map(Box::new),
            },
            End::PowerOff => StopReason::PowerOff,
            End::Reset => StopReason::Reboot,
            End::Crash => StopReason::Panic { message: None },
            End::MemoryLost => StopReason::MemoryLost,
            End::InternalError => {
                let exit = self.internal_error();
                self.kvm_error(exit)
            }
            End::Kvm(exit) => self.kvm_error(exit),
        }
    }

    /// What KVM says about an internal error.
    fn internal_error(&mut self) -> String {
        let (kind, data) = run_page::internal_error(&mut self.fd);
        describe_internal_error(kind, &data)
    }

    fn kvm_error(&self, exit: String) -> StopReason {
        StopReason::KvmError {
            vcpu: self.id,
            exit,
            registers: Registers::read(&self.fd).map(Box::new),
        }
    }
}

fn describe_internal_error(kind: u32, data: &[u64]) -> String {
    match kind {
        KVM_INTERNAL_ERROR_EMULATION => match instruction_bytes(data) {
            Some(bytes) => format!("it met an instruction that it cannot emulate: {bytes}"),
            None => "it met an instruction that it cannot emulate".into(),
        },
        KVM_INTERNAL_ERROR_SIMUL_EX => format!("two exceptions at once (data {data:x?})"),
        KVM_INTERNAL_ERROR_DELIVERY_EV => {
            format!("an exit while it delivered an event (data {data:x?})")
        }
        other => format!("internal error {other} (data {data:x?})"),
    }
}

/// The bytes at the instruction pointer that come with an emulation failure: the data is a word of
/// flags, then a length and that many bytes.
fn instruction_bytes(data: &[u64]) -> Option<String> {
    let (flags, rest) = data.split_first()?;
    let rest: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (len, bytes) = rest.split_first()?;
    if flags & u64::from(KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES) == 0 {
        return None;
    }
    let bytes: Vec<_> = bytes
        .iter()
        .take(usize::from(*len))
        .map(|byte| format!("{byte:02x}"))
        .collect();
    (!bytes.is_empty()).then(|| bytes.join(" "))
}

/// How a stay in the guest ended.
enum Step {
    /// By an access that was served, or by nothing.
    Served,
    /// By a kick, with every access finished that the guest had begun.
    Interrupted,
    End(End),
}

/// An exit that ends the VM, without its borrow of the vCPU.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Shutdown,
    PowerOff,
    Reset,
    Crash,
    MemoryLost,
    InternalError,
    Kvm(String),
}

impl From<VcpuExit<'_>> for End {
    fn from(exit: VcpuExit<'_>) -> Self {
        match exit {
            VcpuExit::Shutdown => Self::Shutdown,
            VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_SHUTDOWN, _) => Self::PowerOff,
            VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_RESET, _) => Self::Reset,
            VcpuExit::SystemEvent(KVM_SYSTEM_EVENT_CRASH, _) => Self::Crash,
            VcpuExit::InternalError => Self::InternalError,
            VcpuExit::FailEntry(reason, cpu) => Self::Kvm(format!(
                "the processor refused to enter the guest (reason {reason:#x} on host CPU {cpu})"
            )),
            other => Self::Kvm(format!("unexpected exit {other:?}")),
        }
    }
}

#[cfg(test)]
#[path = "vcpu_test.rs"]
mod tests;
