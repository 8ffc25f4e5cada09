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
//! routing, acknowledgements, discards, fixed-bytes stdin, deadlines.
//!
//! # Wakers and the link
//!
//! A waker is the application's code: cloning it, waking it, or dropping it, may drop a task, a
//! handle, the whole VM. So is the owner of a buffer given to a command's stdin, and a tracing
//! subscriber. They run under no lock, neither the hub's nor the device's. An application's
//! change is one `Hub::step`: find out whom to wake and whether the channel has something to
//! send, release the lock, kick the channel, wake. The device calls with its own locks held;
//! its calls only note whom they concern, and [`Hub::settle`] wakes them when it has let go.

mod quiesce;
mod snapshot;
mod state;
mod wakes;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use forebay_exec_proto::host::{Config, ConfigError, Conn, Frame, Verdict, View};
use forebay_exec_proto::{HEADER_LEN, Limits, Ready};

use crate::chunks::Chunks;
use crate::clock;
use crate::error::ExecError;
use crate::sync::{Mutex, MutexGuard, Notify, Semaphore};

pub use quiesce::QuiesceTicket;
pub use snapshot::Adopted;
pub(crate) use state::Inner;
use wakes::Due;

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

    /// A deadline was set that comes before the others: call [`Hub::expire`] at this time, unless
    /// it will be called earlier already. Calls may overtake each other, so the earliest counts
    /// until `expire` is called.
    ///
    /// Called where [`transmit`](Self::transmit) is, and must not block.
    fn expire_at(&self, at: Instant);
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
    /// Wakes whoever waits for the guest to come to rest, or to be renewed.
    rest: Notify,
    /// Whose look at the relay's VM it is.
    pub(crate) looks: Semaphore,
    /// Wakes whoever waits for the answer to that.
    pub(crate) looked: Notify,
    chunks: Arc<Chunks>,
    /// Dropped with the hub: what ends with its last user.
    kept: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Hub {
    /// A hub that waits for the guest to open its port. Time is measured by the system's
    /// monotonic clock, whatever `config` names.
    ///
    /// # Errors
    /// The limits of `config` cannot work, or what it gives every execution does not fit the
    /// connection's first message; the error names the value and its bounds.
    pub fn new(config: Config) -> Result<Arc<Self>, ConfigError> {
        config.validate()?;
        let chunk = config.limits.output_chunk_size;
        Ok(Self::around(Conn::new(clock::timed(config)), chunk))
    }

    /// A hub whose other end is a relay, in the program that has the VM.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn facing_relay(config: Config) -> Result<Arc<Self>, ConfigError> {
        config.validate()?;
        let chunk = config.limits.output_chunk_size;
        Ok(Self::around(
            Conn::facing_relay(clock::timed(config)),
            chunk,
        ))
    }

    fn around(conn: Conn, chunk: u32) -> Arc<Self> {
        Arc::new(Self {
            chunks: Chunks::new(chunk as usize),
            inner: Mutex::new(Inner::around(conn)),
            link: OnceLock::new(),
            ready: Notify::new(),
            control_room: Notify::new(),
            rest: Notify::new(),
            looks: Semaphore::new(1),
            looked: Notify::new(),
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
        self.note(Inner::opened);
    }

    /// The connection ended: every execution that has not ended is lost, with `reason`, and
    /// whoever waits for one learns it at [`settle`](Self::settle). The guest may open its port
    /// again.
    pub fn closed(&self, reason: &str) {
        self.note(|inner| inner.closed(reason));
    }

    /// The VM is gone: as [`closed`](Self::closed), and no connection will follow. Call it on
    /// every way a VM ends, with no lock held: it wakes by itself. The first reason stays.
    pub fn vm_gone(&self, reason: &str) {
        if self.step(|inner| inner.vm_gone(reason)) {
            tracing::debug!(reason, "the VM is gone");
        }
    }

    /// Why the VM is gone for good, if it is.
    pub(crate) fn gone(&self) -> Option<String> {
        self.lock().gone()
    }

    /// Judges the frame that begins with `head` and is followed by `rest` more bytes of its
    /// chain, before a byte of its payload is copied. When the chain, or several, are done
    /// with: pull, then [`settle`](Self::settle).
    pub fn judge(&self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        self.note(|inner| inner.conn.judge(head, rest))
    }

    /// An empty buffer for a payload of `len` bytes, which [`deliver`](Self::deliver) then takes.
    /// Output chunks of full size get one that was used before, if there is one.
    #[must_use]
    pub fn room_for(&self, len: usize) -> Vec<u8> {
        self.chunks.room_for(len)
    }

    /// Takes the payload of the frame that was accepted last. It is retained until the application
    /// consumed it; room that it has to spare is given back, except in a buffer of
    /// [`room_for`](Self::room_for). Followed up as [`judge`](Self::judge) is.
    ///
    /// # Errors
    /// The connection cannot go on: end it, and report that by [`closed`](Self::closed).
    pub fn deliver(&self, payload: Vec<u8>) -> Result<(), &'static str> {
        let payload = self.chunks.shared(payload);
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
        self.note(Inner::next_to_guest)
    }

    /// Wakes everybody whom the calls of the device since the last time concern: call it when
    /// they are over and no lock is held that a waker, or the drop of one, might want. A waker
    /// may drop handles or the VM, and what it causes may call [`Link::transmit`] on this thread.
    /// Calls [`Link::expire_at`] if something is due earlier than that was told.
    pub fn settle(&self) {
        let mut inner = self.lock();
        let due = inner.take_due();
        let idle = inner.conn.active() == 0;
        let alarm = self.link.get().and_then(|_| inner.due_alarm());
        drop(inner);
        if idle {
            self.chunks.release();
        }
        self.tell_alarm(alarm);
        self.carry_out(due);
    }

    /// Kills the executions that have had their time, and tells whoever waits for one whose end
    /// the guest has not confirmed, and readers that were not woken yet in the hope of more output.
    /// Gives when to call again; a deadline that is set meanwhile and comes earlier is told by
    /// [`Link::expire_at`]. A call that comes too early does nothing.
    ///
    /// Wakes by itself and may call [`Link::transmit`], so call it with no lock held.
    pub fn expire(&self) -> Option<Instant> {
        self.expire_by(clock::now()).and_then(clock::instant)
    }

    /// As [`expire`](Self::expire), when the time is `now`.
    pub(crate) fn expire_by(&self, now: Duration) -> Option<Duration> {
        self.step(|inner| inner.expire(now))
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
            if let Some(outcome) = self.lock().ready() {
                return outcome;
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
        self.lock().last_pong()
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
        let inner = self.lock();
        let mut view = inner.conn.inspect();
        inner.mark_adoptable(&mut view);
        view
    }

    /// Whether the VM is another program's, behind its attach socket.
    pub(crate) fn faces_relay(&self) -> bool {
        self.lock().conn.faces_relay()
    }

    /// Does one thing under the lock, then wakes and kicks whom it concerns.
    pub(crate) fn step<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let outcome = change(&mut inner);
        inner.collect();
        let due = inner.take_due();
        let idle = inner.conn.active() == 0;
        let kick = self.link.get().filter(|_| inner.due_kick());
        let alarm = self.link.get().and_then(|_| inner.due_alarm());
        drop(inner);
        if idle {
            self.chunks.release();
        }
        // The link first: it is marked as told, and must be, whatever a waker does.
        if let Some(link) = kick.and_then(Weak::upgrade) {
            link.transmit();
        }
        self.tell_alarm(alarm);
        self.carry_out(due);
        outcome
    }

    fn tell_alarm(&self, alarm: Option<Duration>) {
        if let Some(at) = alarm.and_then(clock::instant)
            && let Some(link) = self.link.get().and_then(Weak::upgrade)
        {
            link.expire_at(at);
        }
    }

    fn carry_out(&self, due: Option<Due>) {
        if let Some(due) = due {
            due.carry_out(&self.ready, &self.control_room, &self.rest, &self.looked);
        }
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
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("active", &self.active())
            .finish_non_exhaustive()
    }
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
