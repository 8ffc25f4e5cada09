//! A machine: KVM VM, memory, vCPUs, devices and event loop, from start to end.
//!
//! It knows nothing of executions: port 1 belongs to the [`AgentSide`] given to it. [`crate::Vm`] is
//! a machine with the executions' hub as that side.
//!
//! # Order of assembly
//! Memory before the interrupt controller (a slot added later waits milliseconds for the host
//! kernel); vCPUs and devices next; the kernel last, while the probe of this host, made once per
//! process, runs beside it.

mod assembly;
mod pausing;
mod saving;

pub(crate) use assembly::Wiring;
#[cfg(feature = "test-support")]
pub(crate) use saving::take;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_exec::Link as _;
use forebay_virtio_console::{Console, Inspection};
use vmm_sys_util::eventfd::EventFd;

use self::assembly::Assembly;
use crate::agent::{AgentSide, Transmitter};
use crate::boot::{self, BootSource, cmdline::CommandLine};
use crate::boot_report::{BootClock, BootReport, GuestTimes, Moment};
use crate::console_log::ConsoleLog;
use crate::cpu_template::CpuTemplate;
use crate::deadline::{Deadline, Deadlines};
use crate::devices::Devices;
use crate::diagnosis;
use crate::doctor;
use crate::error::{BootFailure, HostError, StartError, UsageError};
use crate::kvm;
use crate::memory::{Backing, GuestRam, MIB, MemoryUsage};
use crate::pause::Hold;
use crate::probe::{self, Probing};
use crate::reaper::{Reaper, Reaping, Remains};
use crate::stop::{Lifecycle, StopReason};
use crate::vcpu::BOOT_VCPU;
use crate::vcpu::look::VcpuView;
use crate::vcpus::Vcpus;

/// A machine to be made; every value has been checked.
pub(crate) struct MachineSpec {
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: Vec<PathBuf>,
    pub(crate) cmdline: CommandLine,
    pub(crate) cpus: u8,
    pub(crate) memory_mib: u32,
    pub(crate) backing: Backing,
    pub(crate) cpu_template: CpuTemplate,
    pub(crate) console: Arc<ConsoleLog>,
    /// When [`Machine::mark_ready`] must have been called; `None` if it never will be.
    pub(crate) boot_limit: Option<Duration>,
}

/// A VM without executions: a kernel, its console, and its end.
///
/// ```text
/// starting ─ running ⇄ paused
///               └─ stopped ─┘
/// ```
///
/// Dropping it stops the vCPUs before it returns and frees everything within a second; see
/// [`close`](Self::close) to wait for that. It may be dropped on any thread (on one of a VM's vCPUs,
/// where a waker may run, the drop does not wait), but not from within a console tap or a call of
/// the gate, which are made with locks held.
pub struct Machine {
    lifecycle: Arc<Lifecycle>,
    clock: Arc<BootClock>,
    deadlines: Arc<Deadlines>,
    log: Arc<ConsoleLog>,
    vcpus: Arc<Vcpus>,
    console: Arc<Console>,
    power_button: EventFd,
    agent: Arc<dyn AgentSide>,
    /// While it stands still.
    hold: Arc<Mutex<Option<Hold>>>,
    /// `None` once they were sent to the reaper.
    remains: Option<(Remains, Reaper)>,
}

impl Machine {
    /// Makes the machine and lets it run. Returns when the vCPUs have been started.
    pub(crate) fn start(spec: MachineSpec, agent: Arc<dyn AgentSide>) -> Result<Self, StartError> {
        Self::start_probed(spec, agent, probe::start())
    }

    /// The same, with the answer to whether this host runs guests on its way.
    pub(crate) fn start_probed(
        spec: MachineSpec,
        agent: Arc<dyn AgentSide>,
        probing: Probing,
    ) -> Result<Self, StartError> {
        let clock = BootClock::start();
        let ready_by = spec
            .boot_limit
            .and_then(|limit| Instant::now().checked_add(limit));
        let kvm = kvm::open()?;
        let most = kvm.get_max_vcpus();
        if usize::from(spec.cpus) > most {
            let bound = format!("this host's KVM allows at most {most}");
            return Err(UsageError::new("cpus", spec.cpus, bound).into());
        }
        // Refused before anything is created.
        let shown = spec.cpu_template.apply(kvm::supported_cpuid(&kvm)?)?;
        doctor::warn_of_memory(spec.memory_mib);
        let memory = GuestRam::new(u64::from(spec.memory_mib) * MIB, spec.backing)?;
        let assembly = Assembly::new(&kvm, memory, spec.cpus)?;
        kvm::mask_legacy_pics(&assembly.vm)?;
        for vcpu in &assembly.vcpus {
            vcpu.set_up(&shown, spec.cpus)?;
        }
        let wiring = Wiring::new(clock, spec.console, agent)?;
        let devices = Devices::new(&assembly.vm, assembly.memory.guest(), &wiring)?;
        wiring.clock.note(Moment::SetUp);

        let source = BootSource {
            kernel: spec.kernel,
            initramfs: spec.initramfs,
            cmdline: spec.cmdline,
            cpus: spec.cpus,
        };
        let entry = boot::load(&source, assembly.memory.guest(), assembly.memory.len())?;
        if let Some(boot_vcpu) = assembly.vcpus.get(usize::from(BOOT_VCPU)) {
            boot_vcpu.boot_at(entry)?;
        }
        wiring.clock.note(Moment::Loaded);
        let threads = Vec::from_iter(probing.result()?);
        wiring
            .deadlines
            .set(Deadline::Boot, ready_by)
            .map_err(|e| HostError::new("timerfd_settime", e))?;
        Ok(assembly.launch(wiring, devices, None, spec.boot_limit, threads)?)
    }

    /// Begins the end and the clearing away; `None` if that was done before.
    fn end(&mut self, reason: StopReason) -> Option<Reaping> {
        let (remains, reaper) = self.remains.take()?;
        self.lifecycle.stop(reason);
        Some(reaper.reap(remains))
    }

    /// Stops the machine at once, as pulling the plug does, for the reason
    /// [`StopReason::Requested`]. Returns immediately; [`wait`](Self::wait) tells when it has stopped.
    pub fn stop(&self) {
        self.lifecycle.stop(StopReason::Requested);
    }

    /// Knows why the machine's end has begun, also when the machine is gone.
    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.lifecycle
    }

    /// As [`stop`](Self::stop), for another reason. Has no effect once an end has begun.
    pub(crate) fn stop_for(&self, reason: StopReason) {
        self.lifecycle.stop(reason);
    }

    /// The guest has been asked to switch itself off: its doing so counts as requested, and if it has
    /// not done so after `limit` it is killed.
    pub(crate) fn expect_power_off(&self, limit: Duration) {
        self.lifecycle.want_power_off(limit);
        let at = Instant::now().checked_add(limit);
        if let Err(error) = self.deadlines.set(Deadline::PowerOff, at) {
            // No clock to give the guest time by.
            tracing::warn!(%error, "stopping without grace");
            self.lifecycle.power_off_overdue();
        }
    }

    /// Presses the guest's power button (ACPI), as one does with a machine that listens to nothing
    /// else. What it does then is its own affair: most switch themselves off, and
    /// [`wait`](Self::wait) tells.
    pub fn press_power_button(&self) {
        // Fails only when the counter is full, and then the line is being raised anyway.
        let _ = self.power_button.write(1);
    }

    /// Waits for the machine's end: its vCPUs have stopped, and their last output is in the log.
    /// Works on any runtime; any number may wait, also afterwards.
    pub async fn wait(&self) -> StopReason {
        self.lifecycle.wait().await
    }

    /// As [`wait`](Self::wait), blocking this thread for at most `limit`. `None` if it still runs.
    pub fn wait_blocking(&self, limit: Option<Duration>) -> Option<StopReason> {
        self.lifecycle.wait_blocking(limit)
    }

    /// How it ended, if it has.
    pub fn stopped(&self) -> Option<StopReason> {
        self.lifecycle.stopped()
    }

    /// Stops the machine if it runs, and waits until every thread, descriptor and mapping of it is
    /// gone. Dropping the future leaves that to go on by itself.
    pub async fn close(mut self) -> StopReason {
        let freed = self.end(StopReason::Requested);
        let reason = self.lifecycle.wait().await;
        // Holds the devices too.
        drop(self);
        if let Some(freed) = freed {
            freed.wait().await;
        }
        reason
    }

    /// What the guest printed.
    #[must_use]
    pub fn console_log(&self) -> &Arc<ConsoleLog> {
        &self.log
    }

    /// When each point of the boot was reached, as far as it has come.
    #[must_use]
    pub fn boot_report(&self) -> BootReport {
        self.clock.report()
    }

    /// Time since the start.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.clock.elapsed()
    }

    /// The agent is ready: the boot deadline is off. `guest` is what the agent says of its own boot.
    /// Only the first call counts.
    pub(crate) fn mark_ready(&self, guest: GuestTimes) {
        self.clock.note(Moment::Ready);
        self.clock.note_guest(guest);
        if let Err(error) = self.deadlines.set(Deadline::Boot, None) {
            // It will go off and see that the agent is ready.
            tracing::debug!(%error, "the boot deadline stays armed");
        }
    }

    /// Says why the machine, which ended for `reason`, did not become ready.
    pub(crate) fn boot_failure(&self, reason: StopReason) -> BootFailure {
        diagnosis::boot_failure(self, reason)
    }

    /// Lets out what the gate has for the guest, as far as the guest has room. To be called, from any
    /// thread and with no lock of the gate held, whenever the gate has got something. From within a
    /// call of the gate there is no need and it must not be called, but for its `settle`. A panic of
    /// the gate in here ends the machine for [`StopReason::Internal`].
    pub fn transmit(&self) {
        self.transmitter().transmit();
    }

    /// The same, without the machine.
    pub(crate) fn transmitter(&self) -> Transmitter {
        Transmitter::new(
            Arc::clone(&self.console),
            Arc::clone(&self.lifecycle),
            Arc::clone(&self.deadlines),
        )
    }

    /// How much of the guest's memory there is on the host, and whose it is. Looks at every page, by
    /// the host kernel's tables: milliseconds for a GiB.
    ///
    /// # Errors
    /// The host's, of reading these tables.
    pub fn memory_usage(&self) -> Result<MemoryUsage, HostError> {
        match &self.remains {
            Some((remains, _)) => remains.memory.usage(),
            // Only a value that is being taken apart has none.
            None => Ok(MemoryUsage::default()),
        }
    }

    /// The state of vCPUs and devices, by name. Costs each vCPU an exit.
    #[must_use]
    pub fn inspect(&self) -> MachineView {
        MachineView {
            uptime: self.uptime(),
            stopped: self.stopped(),
            paused: self.lifecycle.standstill().is_wanted(),
            boot: self.boot_report(),
            vcpus: self.vcpus.look(),
            console_bytes: self.log.written(),
            device: self.console.inspect(),
        }
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("stopped", &self.stopped())
            .finish_non_exhaustive()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.end(StopReason::Dropped).is_some() {
            self.lifecycle.wait_vcpus();
        }
    }
}

/// A machine's state at one moment.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct MachineView {
    /// Time since the start.
    pub uptime: Duration,
    /// How it ended, if it has.
    pub stopped: Option<StopReason>,
    /// Whether it stands still.
    pub paused: bool,
    /// How far the boot has come, and when.
    pub boot: BootReport,
    /// What each vCPU was doing; `None` for one that did not answer.
    pub vcpus: Vec<Option<VcpuView>>,
    /// Console output so far, in bytes.
    pub console_bytes: u64,
    /// The console device, with the agent's port.
    pub device: Inspection,
}

#[cfg(test)]
#[path = "machine_test.rs"]
mod tests;
