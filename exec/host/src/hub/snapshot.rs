//! The hub as a part of a snapshot: taking its state, and taking executions over from it.
//!
//! ```text
//!  source ── save ──► SavedConn ── Hub::restore ──► hub, nobody holds its executions
//!                                                     │ adopt: a handle, where it stood
//!                                                     │ discard: goes on, its output is thrown away
//!                                                     │ kill: ends
//! ```
//!
//! All of them are admitted as they were, and count. Whoever restores decides on each before the
//! guest runs, and calls [`Hub::discard_rest`] for those that nobody asked about: an execution of
//! which nothing is decided stalls when its allowance is used up, and keeps its slot.

use std::sync::Arc;

use forebay_exec_proto::ExecId;
use forebay_exec_proto::host::{
    Conn, Progress, RestoreError, RestoreOptions, SaveError, SavedConn, View, WriteError,
};

use super::{Hub, Inner};
use crate::clock;
use crate::error::AdoptError;
use crate::handle::ExecHandle;
use crate::lease::Lease;
use crate::sync;
use crate::waiting::Waiting;

/// An execution that somebody took over.
#[derive(Debug)]
#[non_exhaustive]
pub struct Adopted {
    /// As the one that started it had. It tells what nobody had been told before, beginning with
    /// the start only if that is so.
    pub handle: ExecHandle,
    /// Where its streams stood when it was left, or at the cut of the snapshot, or stand now if
    /// something of it was discarded since.
    pub progress: Progress,
}

/// What a handle is made of.
pub(crate) struct Standing {
    pid: Option<u32>,
    piped: bool,
    progress: Progress,
}

impl Standing {
    /// The execution, with what keeps it alive from now on.
    pub(crate) fn with(self, lease: sync::Arc<Lease>) -> Adopted {
        Adopted {
            handle: ExecHandle::adopted(lease, self.pid, self.piped),
            progress: self.progress,
        }
    }
}

impl Inner {
    /// Whether an execution waits for somebody to decide on it.
    fn is_adoptable(&self, id: ExecId) -> bool {
        !self.waiting.contains_key(&id) && self.conn.executions().any(|known| known == id)
    }

    fn adoptable(&self) -> Vec<ExecId> {
        let known = self.conn.executions();
        known.filter(|id| !self.waiting.contains_key(id)).collect()
    }

    /// How many executions hold a slot for whoever adopts them.
    pub(super) fn left(&self) -> u32 {
        u32::try_from(self.adoptable().len()).unwrap_or(u32::MAX)
    }

    /// Marks in a look what can be adopted.
    pub(crate) fn mark_adoptable(&self, view: &mut View) {
        for exec in &mut view.executions {
            exec.adoptable =
                !self.waiting.contains_key(&exec.id) && !self.conn.is_forgotten(exec.id);
        }
    }

    /// Makes an execution somebody's.
    pub(crate) fn adopt(&mut self, id: ExecId) -> Result<(), AdoptError> {
        if self.is_adoptable(id) {
            self.waiting.insert(id, Waiting::default());
            self.conn.take_up(id);
            Ok(())
        } else if self.waiting.contains_key(&id) {
            Err(AdoptError::Held { id })
        } else if self.conn.is_forgotten(id) {
            Err(AdoptError::Discarded { id })
        } else {
            Err(AdoptError::Unknown { id })
        }
    }

    /// Where an execution stands.
    pub(crate) fn standing(&self, id: ExecId) -> Option<Standing> {
        Some(Standing {
            pid: self.conn.pid(id),
            // One that is broken has a sink whose writes say so.
            piped: matches!(
                self.conn.stdin_state(id),
                Ok(()) | Err(WriteError::Broken(_))
            ),
            progress: self.conn.progress(id)?,
        })
    }

    fn discard(&mut self, id: ExecId) {
        // Of one of which the guest has not heard nobody wants the effect either.
        if self.conn.is_unheard_of(id) {
            let _ = self.conn.kill(id);
        }
        self.conn.forget(id);
    }
}

impl Hub {
    /// The state of the connection and every execution in it, for [`restore`](Self::restore). The
    /// hub's lock is the cut, so whoever calls this has stopped the guest and the device before: the
    /// device holds no frame between [`judge`](Self::judge) and [`deliver`](Self::deliver), and its
    /// own part, with what it has placed of a frame, is saved at the same moment.
    ///
    /// A write that waits for its turn, and a close behind it, are their callers' and not part of
    /// it; one that was submitted is. Drop the value with no lock held: a buffer in it may be the
    /// application's.
    ///
    /// # Errors
    /// See [`SaveError`].
    pub fn save(&self) -> Result<SavedConn, SaveError> {
        self.lock().conn.save()
    }

    /// A hub that goes on where the saved one stood. Ready at once, with the Ready that was
    /// captured; [`set_link`](Self::set_link) has it sent what is due. Time is measured by the
    /// system's monotonic clock, whatever `options` name, and is [held](Self::hold_time): what was left
    /// of deadlines is left from [`release_time`](Self::release_time) on.
    ///
    /// # Errors
    /// See [`RestoreError`]: `saved` is something that no connection could have said of itself.
    pub fn restore(saved: SavedConn, options: RestoreOptions) -> Result<Arc<Self>, RestoreError> {
        let options = RestoreOptions {
            clock: clock::now,
            wall: clock::wall,
            ..options
        };
        let mut conn = Conn::restore(saved, options)?;
        conn.hold_time();
        let chunk = conn.limits().output_chunk_size;
        let hub = Self::around(conn, chunk);
        hub.step(|_| ());
        Ok(hub)
    }

    /// The executions that somebody [left](ExecHandle::leave), and those of a restored hub on which
    /// nobody has decided, in the order of their ids. They may have ended. Those that were detached or
    /// discarded are not among them: they go on as before, unless [`kill_rest`](Self::kill_rest) ends
    /// them.
    #[must_use]
    pub fn adoptable(&self) -> Vec<ExecId> {
        self.lock().adoptable()
    }

    /// How many there are.
    pub(crate) fn left(&self) -> u32 {
        self.lock().left()
    }

    /// Takes an execution over: it is as if whoever calls had started it. `None` if there is no such
    /// execution, or somebody decided on it before. Dropping the handle kills it, as that of a start
    /// would.
    pub fn adopt(self: &Arc<Self>, id: ExecId) -> Option<Adopted> {
        self.take_over(id).ok()
    }

    /// As [`adopt`](Self::adopt), and says why not.
    pub(crate) fn take_over(self: &Arc<Self>, id: ExecId) -> Result<Adopted, AdoptError> {
        let standing = self.step(|inner| {
            inner.adopt(id)?;
            inner.standing(id).ok_or(AdoptError::Unknown { id })
        })?;
        Ok(standing.with(Lease::new(Arc::clone(self), id)))
    }

    /// Lets an execution go on without anybody: its output is thrown away and acknowledged, so that
    /// it cannot stall, its stdin ends, and its slot comes back at its end. One of whose request the
    /// guest has heard nothing is not started. Gives `false` as [`adopt`](Self::adopt) gives `None`.
    pub fn discard(&self, id: ExecId) -> bool {
        self.step(|inner| {
            let undecided = inner.is_adoptable(id);
            if undecided {
                inner.discard(id);
            }
            undecided
        })
    }

    /// [Discards](Self::discard) every execution on which nobody has decided.
    pub fn discard_rest(&self) {
        self.step(|inner| {
            for id in inner.adoptable() {
                inner.discard(id);
            }
        });
    }

    /// Kills everything in an execution, which is then as [discarded](Self::discard).
    pub fn kill(&self, id: ExecId) -> bool {
        self.step(|inner| {
            let undecided = inner.is_adoptable(id);
            if undecided {
                drop(inner.release(id, true));
            }
            undecided
        })
    }

    /// [Kills](Self::kill) every execution that nobody has taken over, and those too that are not
    /// [adoptable](Self::adoptable) because nobody held them when they were saved.
    pub fn kill_rest(&self) {
        self.step(|inner| {
            for id in inner.adoptable() {
                drop(inner.release(id, true));
            }
            inner.conn.kill_forgotten();
        });
    }

    /// The guest stands still, and its time with it: no deadline comes nearer, and nobody is counted
    /// to wait, until [`release_time`](Self::release_time). That holds too of what is asked for
    /// meanwhile. An [`expire`](Self::expire) does nothing. Doing it again is fine.
    pub fn hold_time(&self) {
        self.step(|inner| inner.conn.hold_time());
    }

    /// The guest is about to go on. The next deadline is told by
    /// [`Link::expire_at`](super::Link::expire_at) anew.
    pub fn release_time(&self) {
        self.step(Inner::release_time);
    }
}

#[cfg(test)]
#[path = "snapshot_test.rs"]
mod tests;
