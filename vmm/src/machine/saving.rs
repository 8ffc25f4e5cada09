//! Saving a machine that stands still, and making one of what was saved.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::Machine;
use super::assembly::{Assembly, Wiring};
use crate::agent::{AgentSide, NoAgent};
use crate::boot::acpi;
use crate::boot_report::BootClock;
use crate::builder::CPUS_MAX;
use crate::console_log::ConsoleLog;
use crate::deadline::Deadline;
use crate::devices::Devices;
use crate::error::HostError;
use crate::kvm;
use crate::layout::GSI_GENERATION_ID;
use crate::memory::{GuestRam, MemoryImage};
use crate::pause::{Hold, PATIENCE, Paused};
use crate::snapshot::devices::SavedDevices;
use crate::snapshot::file::{self, Records, Shape};
use crate::snapshot::kvm::{Judged, RECORD, VmV1};
use crate::snapshot::{RestoreError, SnapshotError, form};
use crate::stop::StopReason;
use crate::vcpu::cpuid;
use crate::vcpu::state::{self, Extent};

/// The memory's file in a snapshot's directory.
pub(crate) const MEMORY: &str = "memory";
const VERSION: u32 = 1;

/// A machine's state but for its memory. Whoever stands at the agent's port adds a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineState {
    pub(crate) shape: Shape,
    pub(crate) records: Records,
}

impl MachineState {
    /// Writes it into a snapshot's directory, where the memory is already.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), SnapshotError> {
        file::write(directory, &self.shape, &self.records).map(drop)
    }

    /// Reads it from there.
    pub(crate) fn read(directory: &Path) -> Result<Self, RestoreError> {
        let (shape, records) = file::read(directory)?;
        Ok(Self { shape, records })
    }
}

impl Paused<'_> {
    /// Writes the machine into `directory`, which exists: its memory as `memory`, a sparse file,
    /// then all else as `state`. The directory holds a snapshot if and only if `state` is there;
    /// files of these names are replaced. The machine may go on afterwards, or be paused for
    /// another.
    ///
    /// What stands behind the agent's port is not in it: for a machine whose port nobody serves. One
    /// that was not asked to prepare itself is not safe to be restored twice: its copies would draw
    /// the same random numbers until they take notice of their new generation id.
    ///
    /// # Errors
    /// As [`SnapshotError`] says; the directory then holds no snapshot.
    pub fn snapshot(&self, directory: &Path) -> Result<(), SnapshotError> {
        let state = self.save()?;
        self.write_memory(directory)?;
        state.write(directory)
    }

    /// All of the machine's state but its memory. It stays paused.
    pub(crate) fn save(&self) -> Result<MachineState, SnapshotError> {
        self.machine().save()
    }

    /// Writes the memory's file. An older state file goes first: it is of another memory.
    pub(crate) fn write_memory(&self, directory: &Path) -> Result<(), SnapshotError> {
        file::remove(directory)?;
        let path = directory.join(MEMORY);
        let failed = |call| {
            let path = path.display();
            move |e| HostError::on(call, path, e)
        };
        // Never into the old one, which VMs may run from.
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("unlink")(e).into());
            }
            _ => {}
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let to = options.open(&path).map_err(failed("create"))?;
        let memory = self.machine().memory()?;
        memory.write_to(&to, &mut |_, _| ())?;
        to.sync_all().map_err(failed("fsync"))?;
        self.machine().still_there()
    }
}

impl Machine {
    /// Makes a machine of the snapshot in `directory`, which was
    /// [taken](Paused::snapshot) of a machine whose port nobody served, and lets it run. What it
    /// prints goes to `console`.
    ///
    /// Its memory is mapped from the snapshot's file, which stays as it is and must be left alone
    /// while the machine runs.
    ///
    /// # Errors
    /// As [`RestoreError`] says. No vCPU has run then, and nothing is left.
    pub fn restore(directory: &Path, console: Arc<ConsoleLog>) -> Result<Self, RestoreError> {
        let state = MachineState::read(directory)?;
        let image = MemoryImage::open(&directory.join(MEMORY), state.shape.memory)?;
        let memory = GuestRam::from_image(&image)?;
        let generation = acpi::new_generation_id()?;
        let machine = Self::restore_paused(state, memory, &generation, console, Arc::new(NoAgent))?;
        Paused::new(&machine).resume();
        Ok(machine)
    }

    /// Makes a machine of `state` and `memory` that stands still: whoever calls decides on what it
    /// is to go on with, and then [resumes](Self::resume) it. The guest finds `generation` as its
    /// generation id, and is told so by an interrupt.
    pub(crate) fn restore_paused(
        state: MachineState,
        memory: GuestRam,
        generation: &[u8; 16],
        console: Arc<ConsoleLog>,
        agent: Arc<dyn AgentSide>,
    ) -> Result<Self, RestoreError> {
        let clock = BootClock::start();
        let MachineState { shape, mut records } = state;
        // All that the file says is read before anything is made of it.
        let vm: VmV1 = form::decode(RECORD, &records.take(RECORD, VERSION)?)?;
        let saved = SavedDevices::take(&mut records)?;
        records.finish()?;
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
        let judged = Judged::new(&vm, &assembly.vcpus, kvm::supported_cpuid(&kvm)?)?;
        judged.apply(&kvm, &assembly.vm, &assembly.vcpus)?;
        // Everything that may raise a line comes behind the interrupt controllers, which would
        // forget it.
        let wiring = Wiring::new(clock, console, agent)?;
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
            since,
            clock: judged.clock(),
            device,
        };
        Ok(assembly.launch(wiring, devices, Some(hold), None, Vec::new())?)
    }

    fn save(&self) -> Result<MachineState, SnapshotError> {
        let (remains, _) = self.remains.as_ref().ok_or_else(gone)?;
        self.still_there()?;
        let kvm = kvm::open()?;
        let extent = Extent::of(&kvm, &remains.vm)?;
        let supported = kvm::supported_cpuid(&kvm)?.as_slice();
        let hold = self.hold();
        let hold = hold.as_ref().ok_or_else(gone)?;
        let mut records = Records::default();
        // Devices before KVM: what one of them raises last must be in KVM's state.
        Devices::save(&remains.bus, &hold.device).put(&mut records);
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
        Ok(MachineState {
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

/// Whoever is being taken apart cannot be asked.
fn gone() -> SnapshotError {
    SnapshotError::Ended {
        reason: StopReason::Dropped,
    }
}

#[cfg(test)]
#[path = "saving_test.rs"]
mod tests;
