//! A VM at one moment, to start any number of VMs from: in memory, or in a directory.
//!
//! ```text
//!  Paused ── template() ──► Template ── save(dir) ──► DIR/memory, then DIR/state
//!                              │  ▲                        │
//!                              │  └──────── open(dir) ─────┘
//!                              └─ fork() ──► Restore ── start() ──► Vm
//! ```
//!
//! Owns what a VM is beside the machine: its executions' record. The other records and the directory
//! are [`crate::snapshot`]'s, the memory is [`crate::memory`]'s, and how a VM comes of it all
//! [`crate::restore`]'s.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use forebay_exec::{ExecId, SavedConn};

use crate::builder::{OriginV1, VmBuilder};
use crate::error::HostError;
use crate::memory::{MemoryImage, Progress};
use crate::restore::Restore;
use crate::snapshot::directory::{self, SnapshotReport, State};
use crate::snapshot::file::Records;
use crate::snapshot::{RestoreError, SnapshotError, form};
use crate::threads;

/// The record of the executions. Its bytes have a version of their own.
const EXEC: &str = "exec";
/// The record of what the VM was booted from.
const VM: &str = "vm";
const VERSION: u32 = 1;

/// A VM at one moment, from which any number of VMs can be [started](Self::fork).
///
/// It is in memory, as [`Paused::template`](crate::Paused::template) makes it, or in a directory that
/// was [opened](Self::open). The guest's memory is mapped and not copied by those VMs: each holds the
/// pages that it writes, and all share the rest. Clones are one template; its memory is freed with the
/// last of them and of the VMs that started from it.
#[derive(Debug, Clone)]
pub struct Template(Arc<Parts>);

/// What a template consists of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) machine: State,
    pub(crate) exec: SavedConn,
    pub(crate) vm: OriginV1,
    pub(crate) memory: MemoryImage,
}

impl Template {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.0
    }

    /// Opens a snapshot's directory. Reads the state, not the memory: that is mapped by the VMs that
    /// start from here, so it must stay as it is while one of them lives. A VM of which the memory
    /// file is cut meanwhile ends for [`StopReason::MemoryLost`](crate::StopReason::MemoryLost), and no
    /// other does.
    ///
    /// # Errors
    /// What is wrong with the files, by name. Of the memory file its length is checked, and that it
    /// belongs to the state; that a byte of it was changed is not noticed. What this host cannot
    /// restore shows when a VM is started.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, RestoreError> {
        let (mut machine, memory) = directory::read(directory.as_ref())?;
        let (exec, vm) = take(&mut machine.records)?;
        Ok(Self::new(Parts {
            machine,
            exec,
            vm,
            memory,
        }))
    }

    /// Writes it into `directory`, which is made if it is not there, as the files `memory` and
    /// `state`. With the second it is complete; before there is nothing that [`open`](Self::open)
    /// would take, and after an error neither is left. Only this user can read them: they hold all
    /// that the guest has in memory, keys and passwords included.
    ///
    /// Works on a thread of its own, which dropping the future ends: it stops before the next piece
    /// of memory and then removes what is there, on that thread. Where all of the memory was written
    /// by then the snapshot is completed instead.
    ///
    /// # Errors
    /// The directory holds a snapshot already, or a part of one; the disk is full; other errors of
    /// the host.
    pub async fn save(&self, directory: impl AsRef<Path>) -> Result<SnapshotReport, SnapshotError> {
        self.save_with(directory, |_, _| ()).await
    }

    /// As [`save`](Self::save). `progress` is told how many bytes of memory were dealt with, of how
    /// many, after each piece of at most 64 MiB; pages of zeros need not be among them. It is called
    /// on the thread that writes, which waits for it.
    ///
    /// # Errors
    /// As those of [`save`](Self::save).
    pub async fn save_with(
        &self,
        directory: impl AsRef<Path>,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<SnapshotReport, SnapshotError> {
        let (template, directory) = (self.clone(), directory.as_ref().to_owned());
        while_waited_for(progress, move |progress| {
            let Parts {
                machine,
                exec,
                vm,
                memory,
            } = template.parts();
            write(&directory, machine.clone(), exec, vm, |file| {
                Ok(memory.write_to(file, progress)?)
            })
        })
        .await
    }

    /// A VM to be started from here.
    pub fn fork(&self) -> Restore {
        Restore::from_template(self.clone())
    }

    /// A builder of a VM like the one that was saved, to be booted afresh, without anything that was in
    /// that one's memory: a *disk-only* restore. VMs have no disks yet, so what it begins from is their
    /// image.
    ///
    /// Kernel, initramfs, command line, vCPUs, memory, processor features, hostname, environment,
    /// directory, user, and the resources of each execution are that VM's; the limits of executions are
    /// [today's](crate::Limits::default), console and attach socket are the builder's defaults. What
    /// the caller says replaces them or, where there can be several, is added; only the image stays
    /// that VM's. Where the VM came of a template itself, it is what the first VM of that line was
    /// booted from, but for a hostname that a copy was given.
    ///
    /// # Errors
    /// [`RestoreError::Origin`]: a file of these is not there any more, or was changed since, which its
    /// length and the time of its last change tell, and of an image's files its digest.
    pub fn boot(&self) -> Result<VmBuilder, RestoreError> {
        self.0.vm.builder()
    }

    /// The executions that were alive, or had ended unread, in the order of their ids. A VM that
    /// starts from here can [adopt](crate::Vm::adopt) them.
    #[must_use]
    pub fn executions(&self) -> Vec<ExecId> {
        self.0.exec.executions().collect()
    }

    /// Whether the guest was [quiesced](crate::Vm::quiesce): only then does nothing that executions
    /// run in it go on before the copy has got entropy, a clock and a name of its own.
    #[must_use]
    pub fn is_clone_safe(&self) -> bool {
        self.0.exec.is_frozen()
    }

    /// The guest's memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.0.memory.len()
    }

    /// When it was taken, by the clock of the host that did, to the second.
    #[must_use]
    pub fn taken(&self) -> SystemTime {
        self.0.machine.taken
    }
}

/// Saves on a thread of its own, to which its progress is an error once this future was dropped.
async fn while_waited_for(
    mut progress: impl FnMut(u64, u64) + Send + 'static,
    save: impl FnOnce(Progress<'_>) -> Result<SnapshotReport, SnapshotError> + Send + 'static,
) -> Result<SnapshotReport, SnapshotError> {
    let waiting = Arc::new(());
    let waited_for = Arc::downgrade(&waiting);
    let saved = threads::run("forebay-save", move || {
        save(&mut |done, total| {
            if waited_for.strong_count() == 0 {
                let why = "nobody waits for it any more";
                return Err(HostError::new("save a snapshot", io::Error::other(why)));
            }
            progress(done, total);
            Ok(())
        })
    });
    let saved = saved.await;
    drop(waiting);
    saved?
}

/// The records that are not the machine's.
pub(crate) fn take(records: &mut Records) -> Result<(SavedConn, OriginV1), RestoreError> {
    let exec = SavedConn::decode(&records.take(EXEC, VERSION)?)?;
    let vm = form::decode(VM, &records.take(VM, VERSION)?)?;
    Ok((exec, vm))
}

/// Writes a VM's snapshot; `fill` the memory.
pub(crate) fn write(
    directory: &Path,
    mut machine: State,
    exec: &SavedConn,
    vm: &OriginV1,
    fill: impl FnOnce(&File) -> Result<(), SnapshotError>,
) -> Result<SnapshotReport, SnapshotError> {
    machine.records.put(EXEC, VERSION, exec.encode());
    machine.records.put(VM, VERSION, form::encode(vm));
    directory::write(directory, machine, fill)
}

#[cfg(test)]
#[path = "template_test.rs"]
mod tests;
