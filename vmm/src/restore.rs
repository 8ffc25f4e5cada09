//! A VM from a [`Template`]: what may differ from the one that was saved, and the way to a VM that
//! takes commands.
//!
//! # Order
//! Everything that was saved is judged before a vCPU runs: the executions' state by the hub, the
//! machine's by [`Machine::restore`]. What becomes of the executions is decided next, while the
//! machine stands still. Then it runs, and its agent *renews* it: fresh entropy, this host's clock, a
//! new generation, a new hostname. Only then does what was frozen go on, and only then does anybody
//! get a way to start commands.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_exec::{
    AttachSocket, Hub, QUIESCE, Ready, RenewError, Renewal, RestoreOptions, Secret,
};

use crate::boot_report::{BootClock, GuestTimes};
use crate::builder::{self, OriginV1};
use crate::console_log::{ConsoleLog, Tap};
use crate::error::UsageError;
use crate::exec_spec;
use crate::guest_text;
use crate::hub_side::HubSide;
use crate::machine::Machine;
use crate::memory::GuestRam;
use crate::random;
use crate::snapshot::RestoreError;
use crate::stop::StopReason;
use crate::template::{Parts, Template};
use crate::threads;
use crate::vm::{Vm, Wired};

/// How long the agent may take to renew the guest, unless it is said.
const RENEW_WITHIN: Duration = Duration::from_secs(30);
/// Lines of the console that are told with the end of a guest that was not renewed.
const CONSOLE_LINES: usize = 20;

/// What becomes of the executions that were alive in a snapshot, or had ended unread. Those that nobody
/// held, since they had been detached or discarded, go on as they did, unless all are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Survivors {
    /// They run on with nobody at their streams: output is thrown away, stdin ends. Each gives its
    /// slot back at its end.
    #[default]
    Discard,
    /// They are killed before they run, and so are those that nobody held.
    Kill,
    /// They wait for [`Vm::adopt`], or for a [client](crate::Client::adopt) of the attach socket, each
    /// within its limits: one that nobody adopts stalls as one that nobody reads, and keeps its slot.
    /// [`Vm::discard_survivors`] lets go of the rest.
    Adopt,
}

/// A VM to be started from a [`Template`].
///
/// What the guest is made of (kernel, memory, vCPUs, limits of executions, environment) is as it was
/// saved; no value for it is taken.
///
/// | value | default |
/// |---|---|
/// | [`survivors`](Self::survivors) | discarded |
/// | [`hostname`](Self::hostname) | as it was |
/// | [`attach_socket`](Self::attach_socket) | none |
/// | [`renew_deadline`](Self::renew_deadline) | 30 s |
/// | [`console_capacity`](Self::console_capacity) | 64 KiB |
#[must_use = "nothing is restored until it is started"]
pub struct Restore {
    source: Source,
    survivors: Survivors,
    hostname: Option<String>,
    attach_socket: Option<PathBuf>,
    renew_deadline: Duration,
    console_capacity: usize,
    console_tap: Option<Tap>,
}

/// Where the template comes from.
#[derive(Debug)]
enum Source {
    Template(Template),
    Directory(PathBuf),
}

impl Restore {
    pub(crate) fn from_template(template: Template) -> Self {
        Self::new(Source::Template(template))
    }

    pub(crate) fn from_directory(directory: PathBuf) -> Self {
        Self::new(Source::Directory(directory))
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            survivors: Survivors::default(),
            hostname: None,
            attach_socket: None,
            renew_deadline: RENEW_WITHIN,
            console_capacity: ConsoleLog::DEFAULT_CAPACITY,
            console_tap: None,
        }
    }

    /// What becomes of the executions that were alive, or had ended unread.
    pub fn survivors(mut self, survivors: Survivors) -> Self {
        self.survivors = survivors;
        self
    }

    /// A new hostname for the guest: as [`VmBuilder::hostname`](crate::VmBuilder::hostname).
    pub fn hostname(mut self, name: impl Into<String>) -> Self {
        self.hostname = Some(name.into());
        self
    }

    /// As [`VmBuilder::attach_socket`](crate::VmBuilder::attach_socket). Clients of the VM that was
    /// saved are not among those of this one.
    pub fn attach_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.attach_socket = Some(path.into());
        self
    }

    /// How long the agent may take, from the guest's first instruction on, until the guest is
    /// renewed: more than zero and at most [`BOOT_DEADLINE_MAX`](crate::BOOT_DEADLINE_MAX).
    pub fn renew_deadline(mut self, limit: Duration) -> Self {
        self.renew_deadline = limit;
        self
    }

    /// As [`VmBuilder::console_capacity`](crate::VmBuilder::console_capacity). What the guest had
    /// printed before it was saved is not in the log.
    pub fn console_capacity(mut self, bytes: usize) -> Self {
        self.console_capacity = bytes;
        self
    }

    /// As [`VmBuilder::console_tap`](crate::VmBuilder::console_tap).
    pub fn console_tap(mut self, tap: impl Fn(&[u8]) + Send + Sync + 'static) -> Self {
        self.console_tap = Some(Box::new(tap));
        self
    }

    /// Starts the VM, and waits until its agent has renewed the guest. Dropping the future kills it.
    ///
    /// # Errors
    /// As [`RestoreError`] says; nothing is left behind.
    pub async fn start(mut self) -> Result<Vm, RestoreError> {
        let begun = BootClock::start();
        self.check()?;
        let socket = self.attach_socket.take();
        let socket = socket.as_deref().map(AttachSocket::bind).transpose()?;
        let renewal = Renewal {
            entropy: Secret(random::bytes()?),
            generation: random::bytes()?,
            hostname: self.hostname.clone(),
        };
        let limit = self.renew_deadline;
        let generation = renewal.generation;
        let assemble = move || self.assemble(begun, &generation);
        let (wired, agent, vm) = threads::run("forebay-start", assemble).await??;
        let Wired { machine, hub, .. } = &wired;
        machine.resume();
        match hub.renew(renewal, limit).await {
            Ok(()) => {
                machine.mark_ready(GuestTimes::default());
                Ok(wired.into_vm(agent, vm, socket)?)
            }
            Err(RenewError::VmGone { reason }) => {
                // The connection ended. Where the VM has not, its agent is not the one that was saved
                // any more; an end that has begun stands.
                let why = guest_text::line(&reason);
                machine.stop_for(StopReason::AgentLost { why });
                let reason = machine.wait().await;
                let console = machine.console_log().last_lines(CONSOLE_LINES);
                Err(RestoreError::Ended { reason, console })
            }
            Err(error) => {
                wired.machine.close().await;
                Err(error.into())
            }
        }
    }

    /// The machine, which stands still, with the executions' hub at its port, and what its agent once
    /// said of itself.
    fn assemble(
        self,
        begun: BootClock,
        generation: &[u8; 16],
    ) -> Result<(Wired, Ready, OriginV1), RestoreError> {
        let template = match self.source {
            Source::Template(template) => template,
            Source::Directory(directory) => Template::open(directory)?,
        };
        let Parts {
            machine,
            exec,
            vm,
            memory,
        } = template.parts();
        if !exec.ready().can(QUIESCE) {
            return Err(RestoreError::Agent);
        }
        let hub = Hub::restore(exec.clone(), RestoreOptions::default())?;
        let machine = Machine::restore_paused(
            machine.clone(),
            GuestRam::from_image(memory)?,
            generation,
            begun,
            ConsoleLog::with_tap(self.console_capacity, self.console_tap),
            Arc::new(HubSide::new(Arc::clone(&hub))),
        )?;
        match self.survivors {
            Survivors::Discard => hub.discard_rest(),
            Survivors::Kill => hub.kill_rest(),
            Survivors::Adopt => {}
        }
        let mut origin = vm.clone();
        if let Some(name) = self.hostname {
            origin.rename(name);
        }
        let wired = Wired::new(machine, hub);
        Ok((wired, exec.ready().clone(), origin))
    }

    fn check(&self) -> Result<(), UsageError> {
        builder::check_console(self.console_capacity)?;
        builder::check_deadline("renew_deadline", self.renew_deadline)?;
        if let Some(path) = &self.attach_socket {
            builder::check_socket(path)?;
        }
        if let Some(name) = &self.hostname {
            exec_spec::check_hostname(name)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Restore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restore")
            .field("source", &self.source)
            .field("survivors", &self.survivors)
            .field("hostname", &self.hostname)
            .field("attach_socket", &self.attach_socket)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "restore_test.rs"]
mod tests;
