//! The VM's own thread: what must happen however busy or idle the application is.
//!
//! It serves the console device when the device asks for it, keeps the deadlines, rests while the VM
//! is paused, and sees it out: once an end has begun it waits for the vCPUs, takes what the guest sent last, tells the
//! agent side, and only then announces the end to whoever waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use event_manager::{EventManager, EventOps, EventSet, Events, MutEventSubscriber, SubscriberOps};
use forebay_virtio_console::{Budget, Console, Drained};
use vmm_sys_util::eventfd::EventFd;

use crate::agent::{AgentSide, Tick};
use crate::bus::Bus;
use crate::deadline::{Deadline, Deadlines};
use crate::error::HostError;
use crate::memory::Damage;
use crate::pause::Hold;
use crate::reaper::Inbox;
use crate::stop::{Lifecycle, StopReason};
use crate::threads;
use crate::vcpus::Vcpus;

const NAME: &str = "forebay-loop";
/// Descriptors watched; the most events that can be ready at once.
const SOURCES: usize = 5;
/// How long the console device looks at least for the next chain before it asks to be kicked, where
/// there is a second processor to look on. About as long as the kick would cost on hardware.
const LEAST_LOOK: Duration = Duration::from_micros(20);
/// A guest that never stops sending must not keep its VM from ending: turns taken at the end.
const LAST_TURNS: usize = 4;

/// Everything the loop works on.
pub(crate) struct Loop {
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) deadlines: Arc<Deadlines>,
    pub(crate) vcpus: Arc<Vcpus>,
    pub(crate) bus: Arc<Bus>,
    pub(crate) console: Arc<Console>,
    pub(crate) agent: Arc<dyn AgentSide>,
    /// Told if the file behind the guest's memory is cut.
    pub(crate) damage: Option<Arc<Damage>>,
    /// What a pause keeps: it ends with the VM.
    pub(crate) hold: Arc<Mutex<Option<Hold>>>,
    pub(crate) drain: EventFd,
    pub(crate) refill: EventFd,
    pub(crate) boot_limit: Option<Duration>,
}

/// Starts the loop. It ends after the VM has, and then clears away what arrives in `inbox`.
pub(crate) fn start(work: Loop, inbox: Inbox) -> Result<JoinHandle<()>, HostError> {
    let failed = |e| {
        let source = match e {
            event_manager::Error::Epoll(e) => e.into(),
            e => std::io::Error::other(e),
        };
        HostError::on("epoll", NAME, source)
    };
    let mut manager = EventManager::new_with_capacity(SOURCES).map_err(failed)?;
    let lifecycle = Arc::clone(&work.lifecycle);
    let agent = Arc::clone(&work.agent);
    let console = Arc::clone(&work.console);
    let hold = Arc::clone(&work.hold);
    let least_look = match std::thread::available_parallelism() {
        Ok(processors) if processors.get() > 1 => LEAST_LOOK,
        _ => Duration::ZERO,
    };
    manager.add_subscriber(Sources { work, least_look });
    threads::spawn(NAME.into(), move || {
        let outcome = threads::catch(|| {
            // A restored VM begins at rest.
            lifecycle.standstill().rest_loop();
            while !lifecycle.is_stopping() {
                if let Err(e) = manager.run() {
                    lifecycle.stop(StopReason::Host {
                        error: failed(e).to_string(),
                    });
                }
            }
        });
        if let Err(message) = outcome {
            lifecycle.stop(StopReason::Internal {
                thread: NAME.into(),
                message,
            });
        }
        lifecycle.wait_vcpus();
        // A held device would not hand out what the guest had sent before it was paused.
        drop(hold.lock().unwrap_or_else(PoisonError::into_inner).take());
        see_out(&lifecycle, &console, &*agent);
        drop((manager, lifecycle, console, hold, agent));
        inbox.reap();
    })
    .map_err(|e| HostError::on("start thread", NAME, e))
}

/// The guest stands still. What it sent before it did still counts.
fn see_out(lifecycle: &Lifecycle, console: &Console, agent: &dyn AgentSide) {
    let last_turns = || {
        for _ in 0..LAST_TURNS {
            if console.drain_from_guest(Budget::TURN, Duration::ZERO) == Drained::Everything {
                break;
            }
        }
    };
    let farewell = || {
        if let Some(reason) = lifecycle.reason() {
            agent.vm_stopped(&reason);
        }
    };
    // Each by itself: whoever waits must hear of the end also where the device is why it came.
    for outcome in [threads::catch(last_turns), threads::catch(farewell)] {
        if let Err(message) = outcome {
            tracing::error!(message, "panic while a VM was being seen out");
        }
    }
    lifecycle.announce();
}

/// The loop's descriptors, and what to do when one is ready.
struct Sources {
    work: Loop,
    least_look: Duration,
}

impl Sources {
    fn each(&self) -> impl Iterator<Item = (i32, Source)> {
        use std::os::fd::AsRawFd as _;
        let damage = self.work.damage.as_ref();
        [
            (self.work.lifecycle.wake_fd().as_raw_fd(), Source::Wake),
            (self.work.deadlines.as_raw_fd(), Source::Timer),
            (self.work.drain.as_raw_fd(), Source::Drain),
            (self.work.refill.as_raw_fd(), Source::Refill),
        ]
        .into_iter()
        .chain(damage.map(|damage| (damage.event().as_raw_fd(), Source::Damage)))
    }

    fn serve(&self, source: Source) -> Result<(), HostError> {
        match source {
            Source::Wake => {
                self.work
                    .lifecycle
                    .take_wake()
                    .map_err(|e| HostError::on("read", "wake eventfd", e))?;
                self.work.lifecycle.standstill().rest_loop();
            }
            Source::Timer => self.deadlines()?,
            Source::Drain => {
                clear(&self.work.drain)?;
                let console = &self.work.console;
                let drained = console.drain_from_guest(Budget::TURN, self.least_look);
                if drained == Drained::More {
                    // Back to the end of the line, behind the other sources.
                    let _ = self.work.drain.write(1);
                }
            }
            Source::Refill => {
                clear(&self.work.refill)?;
                self.work.console.transmit();
            }
            // Not read: the VM ends.
            Source::Damage => self.work.lifecycle.stop(StopReason::MemoryLost),
        }
        Ok(())
    }

    fn deadlines(&self) -> Result<(), HostError> {
        let failed = |e| HostError::new("timerfd_settime", e);
        for due in self.work.deadlines.take_due().map_err(failed)? {
            match due {
                Deadline::Panic => self.work.bus.power().stop_for_panic(),
                Deadline::Boot => self.boot_overdue(),
                Deadline::Agent => self.tick()?,
                Deadline::Executions => self.expire()?,
                Deadline::PowerOff => self.work.lifecycle.power_off_overdue(),
                Deadline::Reset => self.work.agent.reset_stands(),
            }
        }
        Ok(())
    }

    fn tick(&self) -> Result<(), HostError> {
        let again = match self.work.agent.tick() {
            Tick::Again(wait) => wait,
            Tick::Silent(wait) => {
                if self.work.vcpus.are_all_dead() {
                    let why = "the guest has halted itself (all vCPUs are halted and take no \
                               interrupts)";
                    self.work
                        .lifecycle
                        .stop(StopReason::AgentLost { why: why.into() });
                }
                wait
            }
            Tick::Lost(why) => {
                self.work.lifecycle.stop(StopReason::AgentLost { why });
                return Ok(());
            }
            Tick::Never => return Ok(()),
        };
        self.work
            .deadlines
            .set(Deadline::Agent, Instant::now().checked_add(again))
            .map_err(|e| HostError::new("timerfd_settime", e))
    }

    /// The next deadline of an execution is set behind whatever was brought forward meanwhile.
    fn expire(&self) -> Result<(), HostError> {
        match self.work.agent.expire() {
            Some(at) => self
                .work
                .deadlines
                .bring_forward(Deadline::Executions, at)
                .map_err(|e| HostError::new("timerfd_settime", e)),
            None => Ok(()),
        }
    }

    fn boot_overdue(&self) {
        // Ready, and whoever started the VM has not been polled since.
        if self.work.agent.is_ready() {
            return;
        }
        let limit = self.work.boot_limit.unwrap_or_default();
        self.work.lifecycle.stop(StopReason::BootDeadline {
            limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            halted: self.work.vcpus.are_all_dead(),
        });
    }
}

/// What became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Wake,
    Timer,
    Drain,
    Refill,
    Damage,
}

impl MutEventSubscriber for Sources {
    fn process(&mut self, events: Events, _ops: &mut EventOps) {
        let ready = events.fd();
        let Some(source) = self
            .each()
            .find_map(|(fd, source)| (fd == ready).then_some(source))
        else {
            return;
        };
        if let Err(e) = self.serve(source) {
            self.work.lifecycle.stop(StopReason::Host {
                error: e.to_string(),
            });
        }
    }

    fn init(&mut self, ops: &mut EventOps) {
        for (fd, source) in self.each() {
            let wanted = Events::with_data_raw(fd, source as u32, EventSet::IN);
            if let Err(e) = ops.add(wanted) {
                self.work.lifecycle.stop(StopReason::Host {
                    error: format!("epoll: {e}"),
                });
            }
        }
    }
}

/// Takes what an eventfd counted.
fn clear(fd: &EventFd) -> Result<(), HostError> {
    match fd.read() {
        Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => {
            Err(HostError::on("read", "eventfd", e))
        }
        _ => Ok(()),
    }
}
