//! The hub: one VM's protocol connection, shared by the VM's threads and the application's tasks.
//!
//! ```text
//!  application tasks                    hub                       the VM's threads
//!  Client, handles ── step() ──► Mutex<Conn + wakers> ◄── opened, judge, deliver, closed,
//!                  ◄─ wakers ──          │                next_to_guest, then settle()
//!                                        └──► Link::transmit
//! ```
//!
//! It owns the connection and the wakers and nothing else: no thread, no task, no queue. What
//! must go on when the application does not poll happens inside the calls of the VM's threads:
//! routing, acknowledgements, discards, fixed-bytes stdin.
//!
//! # Wakers and the link
//!
//! A waker is the application's code: cloning it, waking it, or dropping it, may drop a task, a
//! handle, the whole VM. So is the owner of a buffer given to a command's stdin, and a tracing
//! subscriber. They run under no lock, neither the hub's nor the device's. An application's
//! change is one `Hub::step`: find out whom to wake and whether the channel has something to
//! send, release the lock, kick the channel, wake. The device calls with its own locks held;
//! its calls only note whom they concern, and [`Hub::settle`] wakes them when it has let go.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::{fmt, mem};

use bytes::Bytes;
use forebay_exec_proto::frame::ToGuest;
use forebay_exec_proto::host::{
    Config, ConfigError, Conn, Frame, Notice, Start, Verdict, View, what,
};
use forebay_exec_proto::{ExecId, HEADER_LEN, Header, Limits, Ready};
use tokio::sync::Notify;

use crate::error::ExecError;
use crate::waiting::{Half, SinkState, Waiting};

/// The channel towards the guest, implemented by the VMM.
pub trait Link: Send + Sync {
    /// There is something to send: pull [`Hub::next_to_guest`] until it gives `None` or the
    /// channel is full. If it is full, pull again when it has room.
    ///
    /// Called on whichever thread caused it: an application's, or one of the VM's that is inside
    /// [`Hub::settle`] or asked for something itself, such as a ping. Never inside
    /// [`Hub::opened`], [`Hub::judge`], [`Hub::deliver`], [`Hub::closed`] or `next_to_guest`, so
    /// those may be called with the locks held that pulling takes; whoever calls them pulls
    /// afterwards without being told. Never with the hub's lock held either. It must not block
    /// beyond the locks of the queue towards the guest.
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
    /// Wakes every caller that waits for control room; each then tries for itself.
    pub(crate) control_room: Notify,
    /// Dropped with the hub: what ends with its last user.
    kept: OnceLock<Box<dyn Any + Send + Sync>>,
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
    /// The link was told to transmit, or pulls of its own accord, and has not come to the end
    /// since.
    kicked: bool,
    /// Whom the changes concern of which nobody was told yet. Holds each registered waker once
    /// at most: a task registers anew only in a step, which takes all that is here.
    wakes: Wakes,
    /// Keeps the buffer of the stdin frame that the device was given last.
    lent: Option<Bytes>,
    /// Buffers that were lent and came back, to be dropped outside the lock.
    returned: Vec<Bytes>,
}

impl Hub {
    /// A hub that waits for the guest to open its port.
    ///
    /// # Errors
    /// The limits of `config` cannot work, or what it gives every execution does not fit the
    /// connection's first message; the error names the value and its bounds.
    pub fn new(config: Config) -> Result<Arc<Self>, ConfigError> {
        config.validate()?;
        Ok(Self::around(Conn::new(config)))
    }

    /// A hub whose other end is a relay, in the program that has the VM.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn facing_relay(config: Config) -> Result<Arc<Self>, ConfigError> {
        config.validate()?;
        Ok(Self::around(Conn::facing_relay(config)))
    }

    fn around(conn: Conn) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                conn,
                waiting: HashMap::new(),
                ready: None,
                closed: None,
                gone: false,
                last_pong: None,
                kicked: false,
                wakes: Wakes::default(),
                lent: None,
                returned: Vec::new(),
            }),
            link: OnceLock::new(),
            ready: Notify::new(),
            control_room: Notify::new(),
            kept: OnceLock::new(),
        })
    }

    /// Drops `kept` when the last handle and client that use this hub are gone. Once; a second
    /// call drops it at once.
    pub(crate) fn keep(&self, kept: Box<dyn Any + Send + Sync>) {
        drop(self.kept.set(kept));
    }

    /// Connects the channel, once; a second call is ignored. Kicks it if something waits.
    pub fn set_link(&self, link: Weak<dyn Link>) {
        if self.link.set(link).is_ok() {
            self.step(|_| ());
        }
    }

    /// The guest opened its port: a connection begins. Ignored once the VM is gone. Pull
    /// afterwards, then [`settle`](Self::settle).
    pub fn opened(&self) {
        self.note(|inner| {
            inner.take_back();
            if !inner.gone {
                inner.kicked = false;
                inner.conn.handle_opened();
                // A port that opens while it is open ends the old connection first, and that
                // end must not be taken for the new one's.
                inner.collect();
                inner.closed = None;
            }
        });
    }

    /// The connection ended: every execution that has not ended is lost, with `reason`, and
    /// whoever waits for one learns it at [`settle`](Self::settle). The guest may open its port
    /// again.
    pub fn closed(&self, reason: &str) {
        self.note(|inner| {
            inner.take_back();
            inner.kicked = false;
            inner.conn.handle_closed(reason);
        });
    }

    /// The VM is gone: as [`closed`](Self::closed), and no connection will follow. Call it on
    /// every way a VM ends, with no lock held: it wakes by itself. The first reason stays.
    pub fn vm_gone(&self, reason: &str) {
        let first = self.step(|inner| {
            inner.take_back();
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
    /// chain, before a byte of its payload is copied. When the chain, or several, are done
    /// with: pull, then [`settle`](Self::settle).
    pub fn judge(&self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        self.note(|inner| inner.conn.judge(head, rest))
    }

    /// Takes the payload of the frame that was accepted last. The allocation is retained until
    /// the application consumed it, so it should have exactly the payload's size. Followed up
    /// as [`judge`](Self::judge) is.
    ///
    /// # Errors
    /// The connection cannot go on: end it, and report that by [`closed`](Self::closed).
    pub fn deliver(&self, payload: Vec<u8>) -> Result<(), &'static str> {
        self.note(|inner| inner.conn.deliver(payload))
    }

    /// The next frame for the guest, `None` when there is nothing to send. Once given, it
    /// counts as sent. See [`Link::transmit`] for when to call it; when done pulling,
    /// [`settle`](Self::settle).
    ///
    /// Drop the frame before asking for the next, and before [`opened`](Self::opened) or
    /// [`closed`](Self::closed): until then the hub keeps the buffer that its body is a piece
    /// of, so that the owner of that buffer, the application's code, never ends in the device.
    pub fn next_to_guest(&self) -> Option<Frame> {
        self.note(|inner| {
            inner.take_back();
            let frame = inner.conn.poll_transmit();
            inner.lent = frame.as_ref().and_then(stdin_of);
            // Whoever was given one comes for the next, and is told again only after the last.
            inner.kicked = frame.is_some();
            frame
        })
    }

    /// Wakes everybody whom the calls of the device since the last time concern: call it when
    /// they are over and no lock is held that a waker, or the drop of one, might want. A waker
    /// may drop handles or the VM, and what it causes may call [`Link::transmit`] on this thread.
    pub fn settle(&self) {
        let due = self.lock().take_due();
        self.wake(due);
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
    /// asked them to terminate. Needs no room in any queue. Without a connection it waits for one.
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
        inner.collect();
        let due = inner.take_due();
        let link = inner.due_kick(&self.link);
        drop(inner);
        // The link first: it is marked as told, and must be, whatever a waker does.
        if let Some(link) = link.and_then(Weak::upgrade) {
            link.transmit();
        }
        self.wake(due);
        outcome
    }

    /// Does one thing under the lock for the device, which holds locks of its own: whom it
    /// concerns is woken at [`settle`](Self::settle), and the device pulls by itself.
    fn note<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let outcome = change(&mut inner);
        inner.collect();
        outcome
    }

    /// A poisoned lock means that a thread panicked inside the protocol core. That thread's
    /// owner ends the VM; until then the others see a state between two operations at worst.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes, and drops what runs the application's code when dropped. Call with no lock held.
    fn wake(&self, due: Due) {
        let Due { wakes, dropped } = due;
        // A subscriber is the application's code as much as a waker is.
        if let Some(reason) = wakes.ended {
            tracing::debug!(reason, "the agent's connection ended");
        }
        if let Some(version) = wakes.agent {
            tracing::debug!(agent = version, "the agent is ready");
        }
        if wakes.ready {
            contained(|| self.ready.notify_waiters());
        }
        if wakes.control {
            contained(|| self.control_room.notify_waiters());
        }
        for waker in wakes.tasks {
            contained(|| waker.wake());
        }
        for buffer in dropped {
            contained(|| drop(buffer));
        }
    }
}

/// Runs a waker, or the end of a buffer, which must not panic. One that does must not keep the
/// others from running, nor end the VM on whose thread it happens to be.
fn contained(foreign: impl FnOnce()) {
    if panic::catch_unwind(AssertUnwindSafe(foreign)).is_err() {
        tracing::error!("a task's waker, or the owner of a stdin buffer, panicked");
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
    /// The version of the agent that became ready, to be logged.
    agent: Option<String>,
    /// Why the connection ended, to be logged.
    ended: Option<String>,
}

/// What is left to do when no lock is held.
struct Due {
    wakes: Wakes,
    /// Buffers of the application that are done with.
    dropped: Vec<Bytes>,
}

impl Inner {
    /// Admits an execution and makes room for those who will wait for it.
    pub(crate) fn start(&mut self, start: Start) -> Result<ExecId, ExecError> {
        if self.gone {
            return Err(ExecError::VmGone {
                reason: self.gone_reason(),
            });
        }
        let id = self.conn.start(start)?;
        self.waiting.insert(id, Waiting::default());
        Ok(id)
    }

    /// The last handle is gone.
    pub(crate) fn release(&mut self, id: ExecId, kill: bool) -> Option<Waiting> {
        if kill {
            // Refused only when it has ended, which is what was wanted.
            let _ = self.conn.kill(id);
        }
        self.conn.forget(id);
        self.waiting.remove(&id)
    }

    /// Wakes `waker` when something of `half` changes. Leaves a waker for the caller to drop.
    pub(crate) fn register(&mut self, id: ExecId, half: Half, waker: &mut Option<Waker>) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.register(half, waker);
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

    /// Takes what has to be done outside the lock.
    fn take_due(&mut self) -> Due {
        let mut dropped = self.conn.take_dropped();
        dropped.append(&mut self.returned);
        Due {
            wakes: mem::take(&mut self.wakes),
            dropped,
        }
    }

    /// The device has let go of the frame that it was given last.
    fn take_back(&mut self) {
        self.returned.extend(self.lent.take());
    }

    /// Drains the connection's notices into `wakes`.
    fn collect(&mut self) {
        let wakes = &mut self.wakes;
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
                    wakes.agent = Some(ready.version.clone());
                    self.ready = Some(ready);
                    wakes.ready = true;
                }
                Notice::Pong(seq) => self.last_pong = Some(seq),
                Notice::Closed(reason) => {
                    wakes.ended = Some(reason.clone());
                    self.ready = None;
                    self.closed = Some(reason);
                    wakes.ready = true;
                    wakes.control = true;
                }
            }
        }
    }
}

/// The body of a stdin frame: a piece of a buffer that the application owns.
fn stdin_of(frame: &Frame) -> Option<Bytes> {
    let stdin = Header::decode(&frame.head).kind == ToGuest::Stdin.to_wire();
    stdin.then(|| frame.body.clone())
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

#[cfg(test)]
#[path = "hub_lock_test.rs"]
mod lock_tests;

#[cfg(test)]
#[path = "hub_property_test.rs"]
mod property_tests;
