//! How a VM ends, and everybody's way of learning it.
//!
//! [`StopReason`] is what callers see. [`Lifecycle`] is the one place where an end begins (the first
//! reason wins), where the vCPUs are told, and where it is announced when they have stopped. It owns
//! no thread: vCPU threads, the event loop and callers meet here.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use vmm_sys_util::eventfd::EventFd;

use crate::error::HostError;
use crate::guest_text::Escaped;
use crate::pause::Standstill;
use crate::vcpu::kick::KickTarget;
use crate::vcpu::registers::Registers;

/// Why a VM is no more. What the guest did is told apart by what it did to its hardware; texts
/// from its console are its own word.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum StopReason {
    /// The host program asked for it.
    Requested,
    /// The host program asked the guest to switch itself off, and it did not: it was killed. What it
    /// had not written to its disks by then is lost.
    Forced {
        /// How long it was given, in milliseconds.
        after_ms: u64,
    },
    /// The host program dropped the VM.
    Dropped,
    /// The guest switched itself off (ACPI S5).
    PowerOff,
    /// The guest reset itself, by the ACPI reset register or the keyboard controller's line.
    Reboot,
    /// The guest's kernel reported a panic.
    Panic {
        /// The kernel's last words on the console, if they were seen there: the guest's text, cut to
        /// a readable length and otherwise as it was printed.
        message: Option<String>,
    },
    /// A vCPU shut down: an exception while delivering an exception.
    TripleFault {
        /// The vCPU.
        vcpu: u8,
        /// Its registers; `None` where the processor resets them before anybody can look (AMD).
        registers: Option<Box<Registers>>,
    },
    /// KVM gave up on a vCPU.
    KvmError {
        /// The vCPU.
        vcpu: u8,
        /// What KVM said.
        exit: String,
        /// The vCPU's registers.
        registers: Option<Box<Registers>>,
    },
    /// The agent in the guest fell silent or broke the protocol, by the rule stated in the text.
    AgentLost {
        /// What was waited for.
        why: String,
    },
    /// The agent was not ready in time.
    BootDeadline {
        /// The limit, in milliseconds.
        limit_ms: u64,
        /// All vCPUs were halted with interrupts off: the guest had stopped by itself.
        halted: bool,
    },
    /// The host could not provide some of the guest's memory: it has none left, or the snapshot's file
    /// that it is mapped from was cut short or cannot be read.
    MemoryLost,
    /// A system call of the host failed while the VM ran.
    Host {
        /// Call and answer.
        error: String,
    },
    /// A thread of this library panicked. A defect of ours.
    Internal {
        /// The thread.
        thread: String,
        /// What it panicked with.
        message: String,
    },
}

impl StopReason {
    /// Whether the host program wanted this end.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        matches!(self, Self::Requested | Self::Forced { .. } | Self::Dropped)
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registers =
            |f: &mut fmt::Formatter<'_>, registers: &Option<Box<Registers>>| match registers {
                Some(registers) => write!(f, " [{registers}]"),
                None => Ok(()),
            };
        match self {
            Self::Requested => f.write_str("the VM was stopped as asked"),
            Self::Forced { after_ms } => write!(
                f,
                "the guest was asked to switch itself off, had not done so after {} s, and was \
                 killed; allow it more time if it needs it",
                *after_ms as f64 / 1000.0
            ),
            Self::Dropped => f.write_str("the VM was dropped"),
            Self::PowerOff => f.write_str("the guest switched itself off"),
            Self::Reboot => f.write_str(
                "the guest rebooted; a VM is not restarted in place: start a new one if that was \
                 wanted",
            ),
            Self::Panic { message } => {
                f.write_str("the guest's kernel panicked")?;
                match message {
                    Some(message) => write!(f, ": {}", Escaped(message)),
                    None => f.write_str("; add `loglevel=7` to the command line to see why"),
                }
            }
            Self::TripleFault {
                vcpu,
                registers: seen,
            } => {
                write!(
                    f,
                    "the guest crashed hard (triple fault on vCPU {vcpu}); boot with \
                     `earlyprintk=serial loglevel=7` to see how far it came"
                )?;
                registers(f, seen)
            }
            Self::KvmError {
                vcpu,
                exit,
                registers: seen,
            } => {
                write!(
                    f,
                    "KVM gave up on vCPU {vcpu}: {exit}; `forebay doctor` tells whether this host \
                     runs guests at all"
                )?;
                registers(f, seen)
            }
            Self::AgentLost { why } => {
                write!(f, "the agent in the guest was lost: {}", Escaped(why))
            }
            Self::BootDeadline { limit_ms, halted } => {
                write!(
                    f,
                    "the agent was not ready within {} s",
                    *limit_ms as f64 / 1000.0
                )?;
                if *halted {
                    f.write_str("; the guest had halted itself")
                } else {
                    f.write_str("; the guest was still running: allow more time if it is slow")
                }
            }
            Self::MemoryLost => f.write_str(
                "the host could not provide some of the guest's memory: it has none left to give, or, \
                 of a VM that runs from a snapshot, the memory file was cut short or cannot be read; \
                 leave a snapshot's files alone while VMs run from it",
            ),
            Self::Host { error } => write!(f, "the host failed: {error}"),
            Self::Internal { thread, message } => write!(
                f,
                "internal error: thread `{thread}` panicked: {message}; please report this"
            ),
        }
    }
}

thread_local! {
    /// This thread is a vCPU of some VM.
    static ON_VCPU: Cell<bool> = const { Cell::new(false) };
}

/// The end of one VM, from the first reason to the last thread.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    state: Mutex<State>,
    /// Signalled when a vCPU thread ends and when the end is announced.
    changed: Condvar,
    /// Fast path for the vCPU threads: a reason is there.
    stopping: AtomicBool,
    /// Wakes the event loop.
    wake_loop: EventFd,
    announced: watch::Sender<Option<StopReason>>,
    standstill: Standstill,
}

#[derive(Debug, Default)]
struct State {
    reason: Option<StopReason>,
    /// vCPU threads that may still enter the guest.
    running: usize,
    /// The host program asked the guest to switch off, within this time, so that its power-off is no
    /// surprise.
    power_off_within: Option<Duration>,
    kicks: Vec<Arc<KickTarget>>,
}

impl Lifecycle {
    /// `wake_loop` is written when the event loop has to look here.
    pub(crate) fn new(wake_loop: EventFd) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            wake_loop,
            announced: watch::Sender::new(None),
            standstill: Standstill::default(),
        }
    }

    /// Where the VM's threads rest while it is paused. Its end lets them go.
    pub(crate) fn standstill(&self) -> &Standstill {
        &self.standstill
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a vCPU thread that is about to be started. It must end with
    /// [`vcpu_ended`](Self::vcpu_ended).
    pub(crate) fn vcpu_starts(&self, kick: Arc<KickTarget>) {
        let mut state = self.lock();
        state.running += 1;
        state.kicks.push(kick);
    }

    /// Called on a vCPU thread before anything else.
    pub(crate) fn vcpu_runs_here(&self) {
        ON_VCPU.set(true);
    }

    /// A vCPU thread will not enter the guest any more.
    pub(crate) fn vcpu_ended(&self) {
        let mut state = self.lock();
        state.running = state.running.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
        self.wake_loop();
    }

    /// The host program has asked the guest to switch off, and will wait this long.
    pub(crate) fn want_power_off(&self, within: Duration) {
        self.lock().power_off_within = Some(within);
    }

    /// The guest that was asked to switch off has not done so in its time.
    pub(crate) fn power_off_overdue(&self) {
        let within = self.lock().power_off_within.unwrap_or_default();
        self.stop(StopReason::Forced {
            after_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        });
    }

    /// Begins the end, if it has not begun: the first reason is the reason. Callable from any
    /// thread; does not wait.
    pub(crate) fn stop(&self, reason: StopReason) {
        let mut state = self.lock();
        let reason = match reason {
            StopReason::PowerOff if state.power_off_within.is_some() => StopReason::Requested,
            reason => reason,
        };
        let first = state.reason.is_none();
        if first {
            state.reason = Some(reason.clone());
        }
        self.stopping.store(true, Ordering::Release);
        for kick in &state.kicks {
            kick.kick();
        }
        drop(state);
        self.standstill.end();
        self.wake_loop();
        if first {
            // Without the lock: the program's subscriber may do anything, also look at this VM.
            tracing::debug!(%reason, "VM stops");
        }
    }

    /// Whether the end has begun.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Why the end has begun, if it has.
    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.lock().reason.clone()
    }

    /// Kicks all vCPUs, to make them look at what they are asked for.
    pub(crate) fn kick_all(&self) {
        for kick in &self.lock().kicks {
            kick.kick();
        }
    }

    /// Wakes the event loop, to make it look whether it is to rest.
    pub(crate) fn wake_loop(&self) {
        // It can only fail when the counter is full, and then the loop has a wake-up to come.
        let _ = self.wake_loop.write(1);
    }

    /// Clears the wake-up, called by the loop before it looks.
    pub(crate) fn take_wake(&self) -> io::Result<()> {
        match self.wake_loop.read() {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(()),
        }
    }

    /// The descriptor for the loop to watch.
    pub(crate) fn wake_fd(&self) -> &EventFd {
        &self.wake_loop
    }

    /// Waits until no vCPU is in the guest or can enter it. Call after [`stop`](Self::stop).
    ///
    /// On a vCPU thread, where a waker may drop a VM, it returns at once: that vCPU is out of the
    /// guest, and one that waited for others could be what they wait for.
    pub(crate) fn wait_vcpus(&self) {
        if ON_VCPU.get() {
            return;
        }
        let mut state = self.lock();
        while state.running > 0 {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tells every waiter. Called once the vCPUs have stopped and their last output was taken.
    pub(crate) fn announce(&self) {
        let state = self.lock();
        if let Some(reason) = state.reason.clone() {
            self.announced.send_if_modified(|announced| {
                let first = announced.is_none();
                announced.get_or_insert(reason);
                first
            });
            self.changed.notify_all();
        }
    }

    /// The announced end, if there is one.
    pub(crate) fn stopped(&self) -> Option<StopReason> {
        self.announced.borrow().clone()
    }

    /// Waits for the announcement. Needs no particular runtime.
    pub(crate) async fn wait(&self) -> StopReason {
        let mut announced = self.announced.subscribe();
        match announced.wait_for(Option::is_some).await.map(|r| r.clone()) {
            Ok(Some(reason)) => reason,
            // The sender lives in `self`, so this is out of reach.
            _ => StopReason::Dropped,
        }
    }

    /// Waits for the announcement on this thread, for `limit` at most.
    pub(crate) fn wait_blocking(&self, limit: Option<Duration>) -> Option<StopReason> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut state = self.lock();
        loop {
            if let Some(reason) = self.stopped() {
                return Some(reason);
            }
            // Announced under this lock, so no wake-up is missed.
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            if left.is_zero() {
                return None;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// An eventfd as all of ours are: non-blocking and close-on-exec.
pub(crate) fn eventfd() -> Result<EventFd, HostError> {
    EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC).map_err(|e| HostError::new("eventfd", e))
}

#[cfg(test)]
#[path = "stop_test.rs"]
mod tests;
