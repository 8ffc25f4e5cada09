//! Having a VM stand still, and making something that lasts of what it is then.

use std::path::Path;
use std::time::Duration;

use forebay_exec::{QUIESCE, QuiesceError, QuiesceTicket, RenewError, Renewal, SavedConn};

use super::Vm;
use crate::pause::{PauseError, PausedMachine};
use crate::snapshot::SnapshotError;
use crate::snapshot::directory::{self, SnapshotReport, State};
use crate::template::{self, Parts, Template};

/// What the agent has, for a [`Vm::snapshot`] or [`Vm::template`], to freeze what runs.
const QUIESCE_WITHIN: Duration = Duration::from_secs(10);

impl Vm {
    /// Has the agent freeze all that executions run, until the value is dropped. `limit` is how long
    /// it may try; what waits in the kernel for a device that does not answer cannot be frozen.
    ///
    /// A copy of a VM that was paused in here is *clone-safe*: nothing in it runs before it has got
    /// entropy, a clock and a name of its own. While it lasts nothing new starts: an execution that is
    /// asked for is admitted, its deadline runs, and it starts afterwards. Kills kill. Signals and
    /// stdin are taken and have their effect afterwards; output that was written can be read.
    ///
    /// Dropping the future undoes it.
    ///
    /// # Errors
    /// As [`QuiesceError`] says; nothing is frozen then.
    pub async fn quiesce(&self, limit: Duration) -> Result<Quiesced<'_>, QuiesceError> {
        let ticket = self.hub.quiesce(limit).await?;
        Ok(Quiesced { vm: self, ticket })
    }

    /// Gives the guest fresh entropy, this host's time, a new generation id in `/run/generation` and,
    /// if asked for, a hostname. A VM that is restored or forked gets this by itself; one that runs
    /// may get it whenever its host has reason to, such as a long sleep. What was
    /// [quiesced](Self::quiesce) goes on by it.
    ///
    /// `limit` is how long to wait for the guest. Dropping the future does not take it back.
    ///
    /// # Errors
    /// See [`RenewError`].
    pub async fn renew(&self, renewal: Renewal, limit: Duration) -> Result<(), RenewError> {
        self.hub.renew(renewal, limit).await
    }

    /// Makes the guest stand still, at any moment, until the value is dropped. Blocks this thread for
    /// milliseconds; see [`Machine::pause`](crate::Machine::pause), and for the clocks too.
    ///
    /// What runs in the guest does not notice, and no deadline of an execution comes nearer. Output
    /// that has arrived can be read, and executions may be started, within their limits: what is
    /// meant for the guest gets there afterwards. A [`stop`](Self::stop) waits likewise; a
    /// [`kill`](Self::kill) does not.
    ///
    /// The guest's wall clock is behind afterwards, by the length of the pause: [`renew`](Self::renew)
    /// sets it, and so does the end of a [quiesce](Self::quiesce). A snapshot of a VM that was not
    /// quiesced before is not clone-safe.
    ///
    /// # Errors
    /// As [`PauseError`] says; the guest goes on then, if it has not ended.
    pub fn pause(&self) -> Result<Paused<'_>, PauseError> {
        Ok(Paused {
            machine: self.machine.pause()?,
            vm: self,
        })
    }

    /// Writes a clone-safe snapshot of the running VM into `directory`, as [`Template::save`] does,
    /// and lets it go on as soon as its memory is frozen: the writing comes afterwards.
    ///
    /// # Errors
    /// As [`SnapshotError`] says. The VM goes on, if it has not ended, and nothing is left in the
    /// directory.
    pub async fn snapshot(
        &self,
        directory: impl AsRef<Path>,
    ) -> Result<SnapshotReport, SnapshotError> {
        // Before the guest is disturbed.
        directory::check_vacant(directory.as_ref())?;
        self.template().await?.save(directory).await
    }

    /// A clone-safe template of the running VM, which goes on when it is made. Blocks this thread
    /// while the VM is paused: see [`Paused::template`] for how long.
    ///
    /// Dropping the future leaves no template, and the VM goes on.
    ///
    /// # Errors
    /// As [`SnapshotError`] says. The VM goes on, if it has not ended.
    pub async fn template(&self) -> Result<Template, SnapshotError> {
        let quiesced = self.quiesce(QUIESCE_WITHIN).await?;
        let template = quiesced.pause()?.template()?;
        drop(quiesced);
        // So that the guest is as it was for whoever comes next.
        self.hub.thawed().await;
        // Another task may have renewed the guest in between.
        if template.is_clone_safe() {
            Ok(template)
        } else {
            Err(SnapshotError::Thawed)
        }
    }
}

/// Everything that executions run is frozen. Dropping this lets it go on, with the clock set by the
/// host's, unless a [`Vm::renew`] did so before: a later quiesce is not this one's to end.
#[must_use = "what was frozen goes on when this is dropped"]
#[derive(Debug)]
pub struct Quiesced<'a> {
    vm: &'a Vm,
    ticket: QuiesceTicket,
}

impl<'a> Quiesced<'a> {
    /// As [`Vm::pause`].
    ///
    /// # Errors
    /// As [`Vm::pause`].
    pub fn pause(&self) -> Result<Paused<'a>, PauseError> {
        self.vm.pause()
    }

    /// Lets it go on, as dropping this does, and waits until the agent has confirmed that. Until then
    /// the VM cannot be saved.
    pub async fn thaw(self) {
        let vm = self.vm;
        drop(self);
        vm.hub.thawed().await;
    }
}

impl Drop for Quiesced<'_> {
    fn drop(&mut self) {
        self.vm.hub.thaw(self.ticket);
    }
}

/// A VM whose guest stands still. Dropping this lets it go on.
#[must_use = "the guest goes on when this is dropped"]
#[derive(Debug)]
pub struct Paused<'a> {
    machine: PausedMachine<'a>,
    vm: &'a Vm,
}

impl Paused<'_> {
    /// What the VM is at this moment, for other VMs to start from. The VM may go on afterwards; what
    /// it does then does not touch the template.
    ///
    /// How long this blocks depends on what is behind the guest's memory:
    ///
    /// * of a VM that was built [`forkable`](crate::VmBuilder::forkable), the first time: nothing is
    ///   copied;
    /// * of a VM that came of a template or snapshot: the pages that it wrote are copied;
    /// * else every page that is not zero is.
    ///
    /// # Errors
    /// As [`SnapshotError`] says. Where the host fails to map memory anew in the middle, the VM has
    /// lost its own and is ended for [`StopReason::Host`](crate::StopReason::Host).
    pub fn template(&self) -> Result<Template, SnapshotError> {
        let (machine, exec) = self.state()?;
        let frozen = self.machine.freeze()?;
        tracing::debug!(
            copied = frozen.copied,
            scanned = frozen.scanned,
            "the guest's memory is frozen"
        );
        Ok(Template::new(Parts {
            machine,
            exec,
            vm: self.vm.origin.clone(),
            memory: frozen.image,
        }))
    }

    /// Writes a snapshot into `directory`, as [`Template::save`] does, straight from the guest's
    /// memory: it costs no memory, and the guest stands still until all of it is on the disk. Blocks
    /// this thread meanwhile. `progress` is told how many bytes of memory were dealt with, of how
    /// many.
    ///
    /// # Errors
    /// As [`SnapshotError`] says; nothing is left in the directory.
    pub fn snapshot(
        &self,
        directory: impl AsRef<Path>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<SnapshotReport, SnapshotError> {
        let (machine, exec) = self.state()?;
        let vm = &self.vm.origin;
        template::write(directory.as_ref(), machine, &exec, vm, |file| {
            self.machine.write_memory(file, &mut |done, total| {
                progress(done, total);
                Ok(())
            })
        })
    }

    /// All of the VM but its memory.
    fn state(&self) -> Result<(State, SavedConn), SnapshotError> {
        if !self.vm.agent.can(QUIESCE) {
            return Err(SnapshotError::Agent);
        }
        let exec = self.vm.hub.save()?;
        Ok((self.machine.save()?, exec))
    }

    /// Lets the guest go on, as dropping this does.
    pub fn resume(self) {}
}
