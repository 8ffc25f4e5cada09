//! A VM that runs commands: a [`Machine`] with the executions' hub at the agent's port.

mod standstill;

pub use standstill::{Paused, Quiesced};

use std::ffi::OsStr;
use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay_exec::{
    Adopted, AttachError, AttachServer, AttachSocket, Client, Exec, ExecId, Hub, Link, Ready,
};

#[cfg(doc)]
use crate::ExecHandle;
use crate::boot_report::{BootReport, GuestTimes};
use crate::builder::{OriginV1, VmBuilder};
use crate::console_log::ConsoleLog;
use crate::error::{HostError, StartError};
use crate::guest_text;
use crate::hub_side::HubSide;
use crate::inspect::VmView;
use crate::machine::Machine;
use crate::memory::MemoryUsage;
use crate::restore::Restore;
#[cfg(doc)]
use crate::restore::Survivors;
use crate::stop::{Lifecycle, StopReason};
#[cfg(doc)]
use crate::template::Template;
use crate::threads;

/// Beyond the grace given to its processes, what a guest gets to switch itself off: the agent waits
/// two seconds for processes that it has killed, then writes everything to disk.
const POWER_OFF_MARGIN: Duration = Duration::from_secs(10);
/// The grace that the agent gives its processes when it is not told one: the power button says no
/// number.
const BUTTON_GRACE: Duration = Duration::from_secs(5);

/// A running VM.
///
/// Dropping it kills the guest at once: when the drop returns no vCPU runs any more, and within a
/// second no thread, descriptor or memory is left. [`close`](Self::close) waits for that;
/// [`stop`](Self::stop) gives the guest time first. It may be dropped on any thread, also by a waker
/// on one of the VM's own, but not from within a [console tap](VmBuilder::console_tap), for which the
/// guest stands still.
///
/// Works on any runtime and needs none of its own: what must go on goes on when nothing is polled.
pub struct Vm {
    // In the order of dropping: the machine's end must reach the hub's waiters and clients.
    machine: Machine,
    attach: Option<Attach>,
    hub: Arc<Hub>,
    client: Client,
    /// What it was booted from.
    origin: OriginV1,
    /// The hub holds it weakly.
    _link: Arc<dyn Link>,
    agent: Ready,
}

impl Vm {
    /// A VM to be started.
    pub fn builder() -> VmBuilder {
        VmBuilder::default()
    }

    /// Starts what `builder` describes and waits until the agent in the guest is ready.
    pub(crate) async fn start(mut builder: VmBuilder) -> Result<Self, StartError> {
        // What is wrong with it shows before anything is made, a thread included.
        let hub = builder.hub()?;
        let socket = builder.bind()?;
        let side = Arc::new(HubSide::new(Arc::clone(&hub)));
        let start = move || builder.start_with(side);
        let (machine, origin) = threads::run("forebay-start", start).await??;
        let wired = Wired::new(machine, hub);
        match wait_for_agent(&wired.machine, &wired.hub).await {
            Ok(agent) => {
                wired.machine.mark_ready(GuestTimes {
                    pid1: agent.pid1_us.map(Duration::from_micros),
                    ready: agent.ready_us.map(Duration::from_micros),
                });
                Ok(wired.into_vm(agent, origin, socket)?)
            }
            Err(reason) => {
                let failure = wired.machine.boot_failure(reason);
                wired.machine.close().await;
                Err(StartError::Boot(Box::new(failure)))
            }
        }
    }

    /// A command that runs `program` with `args` in the guest, without a shell. Awaiting it runs it
    /// to its end; see [`Exec`] for the other ways.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let vm = forebay::Vm::builder().start().await?;
    /// let out = vm.exec("sh", ["-c", "echo hello; exit 3"]).await?;
    /// assert_eq!(out.status().code(), Some(3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn exec<I, S>(&self, program: impl AsRef<OsStr>, args: I) -> Exec
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.client.exec(program, args)
    }

    /// The closure form of [`exec`](Self::exec).
    ///
    /// ```no_run
    /// # async fn example(vm: &forebay::Vm) -> Result<(), forebay::ExecError> {
    /// let out = vm.exec_with("env", |e| e.env("A", "1").current_dir("/tmp")).await?;
    /// assert!(out.stdout_str().unwrap_or_default().contains("A=1\n"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn exec_with(&self, program: impl AsRef<OsStr>, build: impl FnOnce(Exec) -> Exec) -> Exec {
        self.client.exec_with(program, build)
    }

    /// A command line for the guest's `sh`: see [`Client::shell`].
    ///
    /// ```no_run
    /// # async fn example(vm: &forebay::Vm) -> Result<(), forebay::ExecError> {
    /// let out = vm.shell("printf '%s\\n' b a | sort").await?;
    /// assert_eq!(out.stdout(), b"a\nb\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn shell(&self, line: impl AsRef<OsStr>) -> Exec {
        self.client.shell(line)
    }

    /// The door to this VM's executions, to be cloned and handed around. It does not keep the VM
    /// alive.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where other processes attach, as it was given to the builder.
    #[must_use]
    pub fn attach_socket(&self) -> Option<&Path> {
        self.attach
            .as_ref()?
            .server
            .as_ref()
            .map(AttachServer::path)
    }

    /// A VM to be started from the snapshot in `directory`: see [`Template::open`], whose errors come
    /// with [`Restore::start`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let vm = forebay::Vm::builder().start().await?;
    /// vm.exec("sh", ["-c", "echo warm > /tmp/state"]).await?;
    /// vm.snapshot("/var/lib/app/warm").await?;
    ///
    /// let copy = forebay::Vm::restore("/var/lib/app/warm").start().await?;
    /// assert_eq!(copy.exec("cat", ["/tmp/state"]).await?.stdout(), b"warm\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn restore(directory: impl Into<PathBuf>) -> Restore {
        Restore::from_directory(directory.into())
    }

    /// The executions that nobody holds and somebody may, in the order of their ids: those that were
    /// alive in the template or snapshot that this VM came of, or had ended unread, as far as nobody
    /// has decided on them (see [`Survivors::Adopt`]), and those that were
    /// [left](ExecHandle::leave) since.
    #[must_use]
    pub fn survivors(&self) -> Vec<ExecId> {
        self.hub.adoptable()
    }

    /// Takes over one of the [`survivors`](Self::survivors), with the bytes of its streams at which
    /// it was saved or left: whoever goes on there misses nothing and has nothing twice. `None` if it is
    /// none of them; [`Client::adopt`] says why.
    ///
    /// ```no_run
    /// # async fn example(template: forebay::Template) -> Result<(), Box<dyn std::error::Error>> {
    /// let copy = template.fork().survivors(forebay::Survivors::Adopt).start().await?;
    /// for id in copy.survivors() {
    ///     if let Some(forebay::Adopted { handle, progress, .. }) = copy.adopt(id) {
    ///         println!("{id}: stdout from byte {} on", progress.stdout_consumed);
    ///         handle.collect().await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn adopt(&self, id: ExecId) -> Option<Adopted> {
        self.hub.adopt(id)
    }

    /// Lets all [`survivors`](Self::survivors) that nobody has adopted run on with nobody at their
    /// streams, as [`Survivors::Discard`] does; also those that were [left](ExecHandle::leave).
    pub fn discard_survivors(&self) {
        self.hub.discard_rest();
    }

    /// What the agent said of itself when it became ready.
    #[must_use]
    pub fn agent(&self) -> &Ready {
        &self.agent
    }

    /// Waits for the VM's end and says how it came about. Any number may wait, also afterwards.
    /// Every other waiting call on this VM learns of the end at the same time.
    pub async fn wait(&self) -> StopReason {
        self.machine.wait().await
    }

    /// How the VM ended, if it has.
    #[must_use]
    pub fn stopped(&self) -> Option<StopReason> {
        self.machine.stopped()
    }

    /// Asks the guest to end and waits until it has: SIGTERM to every process, SIGKILL after
    /// `grace` to those that are left, file systems written, power off. A guest that has not obeyed
    /// ten seconds after the grace is killed, whether or not this future is still polled.
    ///
    /// While the agent is not connected its power button is pressed as well, which means a grace of
    /// five seconds to the guest, and should it connect it is told at once.
    ///
    /// The reason is [`StopReason::Requested`] if it obeyed and [`StopReason::Forced`] if it had to be
    /// killed, unless it had ended otherwise before.
    pub async fn stop(&self, grace: Duration) -> StopReason {
        let connected = ["greeting", "ready"].contains(&self.hub.inspect().state);
        let patience = if connected {
            grace
        } else {
            grace.max(BUTTON_GRACE)
        };
        self.machine
            .expect_power_off(patience.saturating_add(POWER_OFF_MARGIN));
        let grace_ms = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX);
        self.hub.power_off(false, grace_ms);
        if !connected {
            self.machine.press_power_button();
        }
        self.machine.wait().await
    }

    /// Kills the guest at once, as pulling the plug does. Does not wait; [`wait`](Self::wait) does.
    pub fn kill(&self) {
        self.machine.stop();
    }

    /// Kills the guest if it runs, and waits until every thread, descriptor and mapping of the VM is
    /// gone. Says how the VM ended.
    pub async fn close(self) -> StopReason {
        let Self {
            machine,
            attach,
            hub,
            client,
            origin: _,
            _link,
            agent: _,
        } = self;
        drop((_link, client, hub));
        let reason = machine.close().await;
        // Behind the end, so that clients are told of it.
        drop(attach);
        reason
    }

    /// What the guest printed on its console.
    #[must_use]
    pub fn console(&self) -> &Arc<ConsoleLog> {
        self.machine.console_log()
    }

    /// When each point of the boot was reached.
    #[must_use]
    pub fn boot_report(&self) -> BootReport {
        self.machine.boot_report()
    }

    /// How much of the guest's memory there is on the host, and whose it is: see
    /// [`Machine::memory_usage`].
    ///
    /// # Errors
    /// As [`Machine::memory_usage`].
    pub fn memory_usage(&self) -> Result<MemoryUsage, HostError> {
        self.machine.memory_usage()
    }

    /// The state of everything in the VM, by name, for people and logs. Costs each vCPU an exit.
    #[must_use]
    pub fn inspect(&self) -> VmView {
        VmView {
            machine: self.machine.inspect(),
            executions: self.hub.inspect().into(),
        }
    }
}

/// A machine and the executions' hub at its port, before anybody has a VM of them.
pub(crate) struct Wired {
    // In the order of dropping, as in a VM.
    pub(crate) machine: Machine,
    pub(crate) hub: Arc<Hub>,
    link: Arc<dyn Link>,
}

impl Wired {
    /// Lets the hub send to the guest.
    pub(crate) fn new(machine: Machine, hub: Arc<Hub>) -> Self {
        let link: Arc<dyn Link> = Arc::new(machine.transmitter());
        hub.set_link(Arc::downgrade(&link));
        Self { machine, hub, link }
    }

    /// The VM, which other processes can attach to by `socket`.
    pub(crate) fn into_vm(
        self,
        agent: Ready,
        origin: OriginV1,
        socket: Option<AttachSocket>,
    ) -> Result<Vm, AttachError> {
        let Self { machine, hub, link } = self;
        let client = Client::new(Arc::clone(&hub));
        let client = match origin.user() {
            Some(user) => client.with_user(user),
            None => client,
        };
        let attach = socket.map(|socket| Attach::serve(socket, &client, &machine));
        Ok(Vm {
            attach: attach.transpose()?,
            machine,
            client,
            origin,
            hub,
            _link: link,
            agent,
        })
    }
}

/// The attach server. Dropped behind the machine it tells clients how the VM ended, also when the
/// hub has not heard of it yet.
struct Attach {
    server: Option<AttachServer>,
    lifecycle: Arc<Lifecycle>,
}

impl Attach {
    fn serve(
        socket: AttachSocket,
        client: &Client,
        machine: &Machine,
    ) -> Result<Self, AttachError> {
        Ok(Self {
            server: Some(socket.serve(client.clone())?),
            lifecycle: Arc::clone(machine.lifecycle()),
        })
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        if let (Some(server), Some(reason)) = (self.server.take(), self.lifecycle.reason()) {
            server.close(reason.to_string());
        }
    }
}

impl std::fmt::Debug for Vm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vm")
            .field("machine", &self.machine)
            .field("executions", &self.client.active())
            .finish_non_exhaustive()
    }
}

/// Waits for the agent, or for whatever comes instead.
async fn wait_for_agent(machine: &Machine, hub: &Hub) -> Result<Ready, StopReason> {
    let mut ready = pin!(hub.ready());
    let mut stopped = pin!(machine.wait());
    let first = poll_fn(|cx| {
        // The end first: it is also why the hub gives up, and it says more.
        if let Poll::Ready(reason) = stopped.as_mut().poll(cx) {
            return Poll::Ready(Err(Ok(reason)));
        }
        ready
            .as_mut()
            .poll(cx)
            .map(|outcome| outcome.map_err(|refusal| Err(guest_text::line(&refusal.to_string()))))
    })
    .await;
    match first {
        Ok(ready) => Ok(ready),
        Err(Ok(reason)) => Err(reason),
        Err(Err(why)) => {
            // The guest still runs, but host and agent do not understand each other. If the VM
            // ended at the same moment, that reason stands.
            machine.stop_for(StopReason::AgentLost { why });
            Err(machine.wait().await)
        }
    }
}

/// A VM is shared between threads and tasks; losing that would break its users' builds.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Vm>();
};
