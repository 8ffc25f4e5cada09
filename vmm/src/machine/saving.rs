//! Saving a machine that stands still, and making one of what was saved.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::Machine;
use super::assembly::{Assembly, Wiring};
use crate::agent::{AgentSide, NoAgent};
use crate::boot::acpi;
use crate::boot_report::{BootClock, Moment};
use crate::builder::CPUS_MAX;
use crate::console_log::ConsoleLog;
use crate::deadline::Deadline;
use crate::devices::Devices;
use crate::error::HostError;
use crate::kvm;
use crate::layout::GSI_GENERATION_ID;
use crate::memory::{FreezeError, Frozen, GuestRam, Progress};
use crate::pause::{Hold, PATIENCE, PausedMachine};
use crate::random;
use crate::snapshot::devices::SavedDevices;
use crate::snapshot::directory::{self, SnapshotReport, State};
use crate::snapshot::file::{Records, Shape};
use crate::snapshot::kvm::{Judged, RECORD, VmV1};
use crate::snapshot::{RestoreError, SnapshotError, form};
use crate::stop::StopReason;
use crate::vcpu::cpuid;
use crate::vcpu::state::{self, Extent};

const VERSION: u32 = 1;

impl PausedMachine<'_> {
    /// Writes the machine into `directory`, which is made if it is not there: its memory as `memory`,
    /// a sparse file, then all else as `state`. With that it is complete; after an error there is
    /// neither. Only this user can read them. The machine may go on afterwards, or be paused for
    /// another.
    ///
    /// What stands behind the agent's port is not in it: for a machine whose port nobody serves. One
    /// that was not asked to prepare itself is not safe to be restored twice: its copies would draw
    /// the same random numbers until they take notice of their new generation id.
    ///
    /// # Errors
    /// As [`SnapshotError`] says.
    pub fn snapshot(&self, directory: impl AsRef<Path>) -> Result<SnapshotReport, SnapshotError> {
        let state = self.save()?;
        directory::write(directory.as_ref(), state, |file| {
            self.write_memory(file, &mut |_, _| Ok(()))
        })
    }

    /// All of the machine's state but its memory. It stays paused.
    pub(crate) fn save(&self) -> Result<State, SnapshotError> {
        self.machine().save()
    }

    /// Writes its memory into an empty file. It stays paused.
    pub(crate) fn write_memory(
        &self,
        to: &File,
        progress: Progress<'_>,
    ) -> Result<(), SnapshotError> {
        self.machine().memory()?.write_to(to, progress)?;
        self.machine().still_there()
    }

    /// What its memory holds, for other machines to start from. It stays paused, unless that cost it
    /// its memory: then it is ended.
    pub(crate) fn freeze(&self) -> Result<Frozen, SnapshotError> {
        match self.machine().memory()?.freeze() {
            Ok(frozen) => {
                self.machine().still_there()?;
                Ok(frozen)
            }
            Err(FreezeError::Intact(error)) => Err(error.into()),
            Err(lost @ FreezeError::Lost(_)) => {
                let reason = StopReason::Host {
                    error: lost.to_string(),
                };
                self.machine().stop_for(reason.clone());
                Err(SnapshotError::Ended { reason })
            }
        }
    }
}

impl Machine {
    /// Makes a machine of the snapshot in `directory`, which was
    /// [taken](PausedMachine::snapshot) of a machine whose port nobody served, and lets it run. What it
    /// prints goes to `console`.
    ///
    /// Its memory is mapped from the snapshot's file, which stays as it is and must be left alone
    /// while the machine runs.
    ///
    /// # Errors
    /// As [`RestoreError`] says. No vCPU has run then, and nothing is left.
    pub fn restore(
        directory: impl AsRef<Path>,
        console: Arc<ConsoleLog>,
    ) -> Result<Self, RestoreError> {
        let begun = BootClock::start();
        let (state, image) = directory::read(directory.as_ref())?;
        let memory = GuestRam::from_image(&image)?;
        let generation = random::bytes()?;
        let agent = Arc::new(NoAgent);
        let machine = Self::restore_paused(state, memory, &generation, begun, console, agent)?;
        PausedMachine::new(&machine).resume();
        Ok(machine)
    }

    /// Makes a machine of `state` and `memory` that stands still: whoever calls decides on what it
    /// is to go on with, and then [resumes](Self::resume) it. The guest finds `generation` as its
    /// generation id, and is told so by an interrupt.
    pub(crate) fn restore_paused(
        state: State,
        memory: GuestRam,
        generation: &[u8; 16],
        begun: BootClock,
        console: Arc<ConsoleLog>,
        agent: Arc<dyn AgentSide>,
    ) -> Result<Self, RestoreError> {
        let State { shape, records, .. } = state;
        // All that the file says is read before anything is made of it.
        let (vm, saved) = take(records)?;
        let connected = saved.console.is_connected();
        if agent
            .expects_connection()
            .is_some_and(|expected| expected != connected)
        {
            return Err(RestoreError::Machine {
                rule: "the agent's port is open on one side of the device and closed on the other",
            });
        }
        if memory.len() != shape.memory {
            return Err(RestoreError::Machine {
                rule: "its memory has not the length that the state file says",
            });
        }
        let cpus = u8::try_from(shape.cpus).unwrap_or(0);
        if !(1..=CPUS_MAX).contains(&cpus) {
            return Err(RestoreError::Machine {
                rule: "it has no vCPU, or more than any machine has",
            });
        }
        let kvm = kvm::open()?;
        if usize::from(cpus) > kvm.get_max_vcpus() {
            return Err(RestoreError::Machine {
                rule: "it has more vCPUs than this host's KVM allows",
            });
        }
        let assembly = Assembly::new(&kvm, memory, cpus)?;
        let supported = kvm::supported_cpuid(&kvm)?;
        let offered = assembly.vcpus.iter();
        let offered = offered.map(|vcpu| vcpu.offered(supported, cpus));
        let judged = Judged::new(&vm, &offered.collect::<Result<Vec<_>, _>>()?)?;
        judged.apply(&kvm, &assembly.vm, &assembly.vcpus)?;
        // Everything that may raise a line comes behind the interrupt controllers, which would
        // forget it.
        let wiring = Wiring::new(begun, console, agent)?;
        let guest = assembly.memory.guest();
        let (devices, device) = Devices::restore(&assembly.vm, guest, &wiring, &saved)?;
        acpi::write_generation_id(guest, generation)?;
        for level in [true, false] {
            assembly
                .vm
                .set_irq_line(GSI_GENERATION_ID, level)
                .map_err(|e| HostError::on("KVM_IRQ_LINE", GSI_GENERATION_ID, e))?;
        }
        let since = Instant::now();
        let timer = |e| HostError::new("timerfd_settime", e);
        wiring.deadlines.hold(since).map_err(timer)?;
        // The first look at executions' deadlines; they say themselves when the next is due.
        wiring
            .deadlines
            .set(Deadline::Executions, Some(since))
            .map_err(timer)?;
        let hold = Hold {
            clock: judged.clock(),
            device,
        };
        wiring.clock.note(Moment::SetUp);
        Ok(assembly.launch(wiring, devices, Some(hold), None, Vec::new())?)
    }

    fn save(&self) -> Result<State, SnapshotError> {
        let (remains, _) = self.remains.as_ref().ok_or_else(gone)?;
        self.still_there()?;
        let kvm = kvm::open()?;
        let extent = Extent::of(&kvm, &remains.vm)?;
        let supported = kvm::supported_cpuid(&kvm)?.as_slice();
        let hold = self.hold();
        let hold = hold.as_ref().ok_or_else(gone)?;
        let mut records = Records::default();
        // Devices before KVM: what one of them raises last must be in KVM's state.
        let devices = Devices::save(&remains.bus, &hold.device);
        let connected = devices.console.is_connected();
        if self
            .agent
            .expects_connection()
            .is_some_and(|expected| expected != connected)
        {
            return Err(SnapshotError::Resetting);
        }
        devices.put(&mut records);
        let vcpus = self
            .vcpus
            .ask(move |vcpu| state::save(vcpu, &extent), PATIENCE);
        let mut saved = Vec::with_capacity(vcpus.len());
        for (vcpu, answer) in vcpus.into_iter().enumerate() {
            let Some(answer) = answer else {
                self.still_there()?;
                return Err(SnapshotError::Silent { vcpu });
            };
            saved.push(answer?);
        }
        let vm = crate::snapshot::kvm::save(&remains.vm, saved, &hold.clock)?;
        records.put(RECORD, VERSION, form::encode(&vm));
        self.still_there()?;
        Ok(State {
            taken: SystemTime::now(),
            shape: Shape {
                vendor: cpuid::vendor(supported),
                signature: cpuid::signature(supported),
                memory: remains.memory.len(),
                cpus: u32::try_from(self.vcpus.count()).unwrap_or(u32::MAX),
            },
            records,
        })
    }

    /// What a machine held that has ended is of no use: its threads go on to their end.
    fn still_there(&self) -> Result<(), SnapshotError> {
        match self.lifecycle.reason() {
            Some(reason) => Err(SnapshotError::Ended { reason }),
            None => Ok(()),
        }
    }

    /// The guest's memory.
    pub(crate) fn memory(&self) -> Result<&GuestRam, SnapshotError> {
        let remains = self.remains.as_ref();
        remains.map(|(r, _)| &r.memory).ok_or_else(gone)
    }
}

/// The machine's records, of which all were taken by then that are not.
pub(crate) fn take(mut records: Records) -> Result<(VmV1, SavedDevices), RestoreError> {
    let vm = form::decode(RECORD, &records.take(RECORD, VERSION)?)?;
    let devices = SavedDevices::take(&mut records)?;
    records.finish()?;
    Ok((vm, devices))
}

/// Whoever is being taken apart cannot be asked.
fn gone() -> SnapshotError {
    SnapshotError::Ended {
        reason: StopReason::Dropped,
    }
}

#[cfg(test)]
#[path = "saving_test.rs"]
mod tests;
