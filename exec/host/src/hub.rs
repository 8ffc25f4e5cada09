//! The hub: one VM's protocol connection, shared by the VM's threads and the application's tasks.
//!
//! ```text
//!  application tasks                    hub                       the VM's threads
//!  Client, handles ── step() ──► Mutex<Conn + wakers> ◄── opened, judge, deliver, closed
//!                  ◄─ wakers ──                       ──► Link::transmit ► next_to_guest
//! ```
//!
//! It owns the connection and the wakers and nothing else: no thread, no task, no queue. What
//! must go on when the application does not poll happens inside the calls of the VM's threads:
//! routing, acknowledgements, discards, fixed-bytes stdin.
//!
//! Every change is one `Hub::step`, which ends the same way each time: find out whom to wake and
//! whether the channel has something to send, release the lock, wake, kick the channel. So no
//! waker and no link ever runs under the hub's lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::{fmt, mem};

use forebay_exec_proto::host::{Config, Conn, Frame, Notice, Stdin, Verdict, View, what};
use forebay_exec_proto::{ExecId, HEADER_LEN, LimitError, Limits, Ready, Request};
use tokio::sync::{Notify, Semaphore};

use crate::error::ExecError;
use crate::waiting::{Half, SinkState, Waiting};

/// The channel towards the guest, implemented by the VMM.
pub trait Link: Send + Sync {
    /// There is something to send: pull [`Hub::next_to_guest`] until it gives `None` or the
    /// channel is full. If it is full, pull again when it has room.
    ///
    /// Called on whichever thread caused it: an application's, or the VM's own that is inside
    /// [`Hub::opened`], [`Hub::judge`], [`Hub::deliver`] or [`Hub::closed`]. Never inside
    /// `next_to_guest`, and never with the hub's lock held. It must not block beyond the locks of
    /// the queue towards the guest. A VM that calls the hub with locks held which pulling takes
    /// as well returns at once then, and pulls when it has let go of them.
    ///
    /// Once called, it is not called again until `next_to_guest` has given `None` or the
    /// connection ended: a call that is ignored for good stops the channel.
    fn transmit(&self);
}

/// One VM's executions: the only place where they are admitted, routed and counted.
///
/// The VMM drives it from its device; applications use a [`Client`](crate::Client) on top. It
/// may be called from any thread.
pub struct Hub {
    inner: Mutex<Inner>,
    link: OnceLock<Weak<dyn Link>>,
    /// Wakes whoever waits for the agent's Ready.
    ready: Notify,
    /// Wakes the caller whose turn it is to wait for control room.
    pub(crate) control_room: Notify,
    /// Whose turn that is: callers in the order in which they came.
    pub(crate) control_turn: Semaphore,
}

/// What the hub's lock guards.
pub(crate) struct Inner {
    pub(crate) conn: Conn,
    /// One entry per execution that has a handle.
    waiting: HashMap<ExecId, Waiting>,
    /// The agent's Ready of this connection.
    ready: Option<Ready>,
    /// Why there is no connection, if there was one.
    closed: Option<String>,
    /// The VM is gone for good: no connection will come.
    gone: bool,
    last_pong: Option<u64>,
    /// The link was told to transmit and has not pulled everything since.
    kicked: bool,
    /// Wakers that were replaced in this step. Dropping one can drop a task, which can drop a
    /// handle, which comes back here, so it is done outside the lock.
    stale: Vec<Waker>,
}

impl Hub {
    /// A hub that waits for the guest to open its port.
    ///
    /// # Errors
    /// The limits of `config` cannot work; the error names the field and its bounds.
    pub fn new(config: Config) -> Result<Arc<Self>, LimitError> {
        config.limits.validate()?;
        Ok(Arc::new(Self {
            inner: Mutex::new(Inner {
                conn: Conn::new(config),
                waiting: HashMap::new(),
                ready: None,
                closed: None,
                gone: false,
                last_pong: None,
                kicked: false,
                stale: Vec::new(),
            }),
            link: OnceLock::new(),
            ready: Notify::new(),
            control_room: Notify::new(),
            control_turn: Semaphore::new(1),
        }))
    }

    /// Connects the channel, once; a second call is ignored. Kicks it if something waits.
    pub fn set_link(&self, link: Weak<dyn Link>) {
        if self.link.set(link).is_ok() {
            self.step(|_| ());
        }
    }

    /// The guest opened its port: a connection begins. Ignored once the VM is gone.
    pub fn opened(&self) {
        self.step(|inner| {
            if !inner.gone {
                inner.closed = None;
                inner.kicked = false;
                inner.conn.handle_opened();
            }
        });
    }

    /// The connection ended: every execution that has not ended is lost, with `reason`, and
    /// whoever waits for one learns it now. The guest may open its port again.
    pub fn closed(&self, reason: &str) {
        self.step(|inner| {
            inner.kicked = false;
            inner.conn.handle_closed(reason);
        });
    }

    /// The VM is gone: as [`closed`](Self::closed), and no connection will follow. Call it on
    /// every way a VM ends; the first reason stays.
    pub fn vm_gone(&self, reason: &str) {
        let first = self.step(|inner| {
            inner.kicked = false;
            inner.conn.handle_closed(reason);
            inner.ready = None;
            let first = !mem::replace(&mut inner.gone, true);
            if first {
                inner.closed = Some(reason.to_owned());
            }
            first
        });
        if first {
            tracing::debug!(reason, "the VM is gone");
            // Whoever waits may have been waiting with no connection to lose.
            self.ready.notify_waiters();
        }
    }

    /// Judges the frame that begins with `head` and is followed by `rest` more bytes of its
    /// chain, before a byte of its payload is copied.
    pub fn judge(&self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        self.step(|inner| inner.conn.judge(head, rest))
    }

    /// Takes the payload of the frame that was accepted last. The allocation is retained until
    /// the application consumed it, so it should have exactly the payload's size.
    ///
    /// # Errors
    /// The connection cannot go on: end it, and report that by [`closed`](Self::closed).
    pub fn deliver(&self, payload: Vec<u8>) -> Result<(), &'static str> {
        self.step(|inner| inner.conn.deliver(payload))
    }

    /// The next frame for the guest, `None` when there is nothing to send. Once given, it
    /// counts as sent. See [`Link::transmit`] for when to call it.
    pub fn next_to_guest(&self) -> Option<Frame> {
        loop {
            let mut inner = self.lock();
            // The caller is pulling and holds its queue's lock, so nothing that happens on this
            // thread before it has `None` may ask it to pull; not even what a waker runs.
            inner.kicked = true;
            let frame = inner.conn.poll_transmit();
            let wakes = inner.collect();
            if frame.is_none() && wakes.is_empty() {
                inner.kicked = false;
                return None;
            }
            drop(inner);
            self.wake(wakes);
            if frame.is_some() {
                return frame;
            }
        }
    }

    /// Waits until the agent has answered the bootstrap and executions may start.
    ///
    /// # Errors
    /// [`ExecError::VmGone`] with the reason when the connection ended first: the agent
    /// disagreed, broke the protocol, or the VM ended.
    pub async fn ready(&self) -> Result<Ready, ExecError> {
        loop {
            // Registered before looking, so that nothing in between is missed.
            let notified = self.ready.notified();
            {
                let inner = self.lock();
                if let Some(ready) = &inner.ready {
                    return Ok(ready.clone());
                }
                if let Some(reason) = &inner.closed {
                    return Err(ExecError::VmGone {
                        reason: reason.clone(),
                    });
                }
            }
            notified.await;
        }
    }

    /// Asks the agent to end every process and the guest, `grace_ms` milliseconds after it has
    /// asked them to terminate. Needs no room in any queue. Without a connection it does nothing.
    pub fn power_off(&self, reboot: bool, grace_ms: u32) {
        self.step(|inner| inner.conn.power_off(reboot, grace_ms));
    }

    /// Asks the agent for a sign of life; its answer shows in [`last_pong`](Self::last_pong).
    /// Gives `false` if it could not be queued: sixteen controls wait already, or there is no
    /// connection.
    pub fn ping(&self, seq: u64) -> bool {
        self.step(|inner| inner.conn.ping(seq)).is_ok()
    }

    /// The number of the ping that was answered last.
    #[must_use]
    pub fn last_pong(&self) -> Option<u64> {
        self.lock().last_pong
    }

    /// Executions that hold a slot of `max_executions`, over all clients.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.lock().conn.active()
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        *self.lock().conn.limits()
    }

    /// The state of the connection and of every execution, by name, for people.
    #[must_use]
    pub fn inspect(&self) -> View {
        self.lock().conn.inspect()
    }

    /// Does one thing under the lock, then wakes and kicks whom it concerns.
    pub(crate) fn step<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let outcome = change(&mut inner);
        let wakes = inner.collect();
        let stale = mem::take(&mut inner.stale);
        let link = inner.due_kick(&self.link);
        drop(inner);
        self.wake(wakes);
        drop(stale);
        if let Some(link) = link.and_then(Weak::upgrade) {
            link.transmit();
        }
        outcome
    }

    /// A poisoned lock means that a thread panicked inside the protocol core. That thread's
    /// owner ends the VM; until then the others see a state between two operations at worst.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, wakes: Wakes) {
        if wakes.ready {
            self.ready.notify_waiters();
        }
        if wakes.control {
            self.control_room.notify_waiters();
        }
        for waker in wakes.tasks {
            waker.wake();
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("active", &self.active())
            .finish_non_exhaustive()
    }
}

/// Whom a step concerns.
#[derive(Default)]
struct Wakes {
    tasks: Vec<Waker>,
    ready: bool,
    control: bool,
}

impl Wakes {
    fn is_empty(&self) -> bool {
        self.tasks.is_empty() && !self.ready && !self.control
    }
}

impl Inner {
    /// Admits an execution and makes room for those who will wait for it.
    pub(crate) fn start(&mut self, request: Request, stdin: Stdin) -> Result<ExecId, ExecError> {
        if self.gone {
            return Err(ExecError::VmGone {
                reason: self.gone_reason(),
            });
        }
        let id = self.conn.start(request, stdin)?;
        self.waiting.insert(id, Waiting::default());
        Ok(id)
    }

    /// The last handle is gone.
    pub(crate) fn release(&mut self, id: ExecId, kill: bool) {
        if kill {
            // Refused only when it has ended, which is what was wanted.
            let _ = self.conn.kill(id);
        }
        self.conn.forget(id);
        if let Some(waiting) = self.waiting.remove(&id) {
            self.stale.extend(waiting.into_wakers());
        }
    }

    /// Wakes `waker` when something of `half` changes.
    pub(crate) fn register(&mut self, id: ExecId, half: Half, waker: &Waker) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            self.stale.extend(waiting.register(half, waker));
        }
    }

    /// How far the callers of an execution's sink are. `None` once its last handle is gone.
    pub(crate) fn sink(&mut self, id: ExecId) -> Option<&mut SinkState> {
        Some(&mut self.waiting.get_mut(&id)?.sink)
    }

    /// Why there is no connection.
    pub(crate) fn gone_reason(&self) -> String {
        match &self.closed {
            Some(reason) => reason.clone(),
            None => "the agent's connection is not up".to_owned(),
        }
    }

    /// The link, if it must be kicked now.
    fn due_kick<'a>(&mut self, link: &'a OnceLock<Weak<dyn Link>>) -> Option<&'a Weak<dyn Link>> {
        let link = link.get()?;
        (self.conn.wants_transmit() && !mem::replace(&mut self.kicked, true)).then_some(link)
    }

    /// Drains the connection's notices.
    fn collect(&mut self) -> Wakes {
        let mut wakes = Wakes::default();
        while let Some(notice) = self.conn.poll_notice() {
            match notice {
                Notice::Exec { id, what: bits } => {
                    if let Some(waiting) = self.waiting.get_mut(&id) {
                        // Asked in the step in which it happened: an end or error that follows
                        // must not turn a write that was handed over into one that was not.
                        if bits & what::WRITABLE != 0
                            && self.conn.pending_stdin(id) == 0
                            && handed_over(&self.conn, id)
                        {
                            waiting.sink.handed_over = true;
                        }
                        waiting.collect(bits, &mut wakes.tasks);
                    }
                    // A signal that waits for room may be meant for it.
                    wakes.control |= bits & what::TERMINAL != 0;
                }
                Notice::ControlRoom => wakes.control = true,
                Notice::Ready(ready) => {
                    tracing::debug!(agent = %ready.version, "the agent is ready");
                    self.ready = Some(ready);
                    wakes.ready = true;
                }
                Notice::Pong(seq) => self.last_pong = Some(seq),
                Notice::Closed(reason) => {
                    tracing::debug!(%reason, "the agent's connection ended");
                    self.ready = None;
                    self.closed = Some(reason);
                    wakes.ready = true;
                    wakes.control = true;
                }
            }
        }
        wakes
    }
}

/// Whether a write of which nothing is pending went to the channel. The core drops a pending
/// write only when stdin broke or the execution ended, and says so in its stdin's state.
fn handed_over(conn: &Conn, id: ExecId) -> bool {
    use forebay_exec_proto::host::WriteError;
    matches!(conn.stdin_state(id), Ok(()) | Err(WriteError::Closed))
}

#[cfg(test)]
#[path = "hub_test.rs"]
mod tests;

#[cfg(test)]
#[path = "hub_wake_test.rs"]
mod wake_tests;
