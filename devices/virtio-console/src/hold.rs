//! The device held still, for a machine that stops, and its way on.
//!
//! While it is held nothing of it reads or writes guest memory and nothing goes through the gate,
//! whoever calls: a call that would have done something does nothing. None of them has to be kept
//! for later, since letting go looks at every ring as if it had been kicked, and asks the gate as
//! if somebody had called [`Console::transmit`].
//!
//! The same is what a restored device needs, whose kicks and interrupts on their way were lost
//! with the old machine; so a device is [restored](Console::restore) held.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::device::{Console, lock};

/// The device stands still until the last of these is dropped.
///
/// Dropping it has the event loop look at everything, by one ring of the doorbell, and raises one
/// interrupt, if the driver has got so far: the line is that of all queues. It may be done on any
/// thread, with no lock of the gate held, once both can be delivered. A machine that ends drops it
/// before it has the loop judge what the guest sent last.
#[must_use = "the device goes on as soon as this is dropped"]
pub struct Held {
    console: Arc<Console>,
}

impl Console {
    /// Holds the device still, between two chains and two frames' placements: returns when nobody
    /// is at work in it. A connection that was found broken has been told to the gate by then.
    ///
    /// Do not call it from within a call of the gate or the sink. Holds add up.
    pub fn hold(self: &Arc<Self>) -> Held {
        {
            let _control = lock(&self.control);
            let _console = lock(&self.console);
            let mut from_guest = lock(&self.from_guest);
            {
                let _to_guest = lock(&self.to_guest);
                self.holds.fetch_add(1, Ordering::Relaxed);
            }
            // A placement that failed and has not come to saying so must not say so later, when
            // the gate may have been saved with its connection up.
            self.end_failed_link(&mut from_guest);
        }
        self.gate.settle();
        Held {
            console: Arc::clone(self),
        }
    }

    /// Locks a part of the device to work on it, unless the device is held: then there is nothing to
    /// be done, as all will be looked at when it is let go.
    pub(crate) fn lock_unless_held<'a, T>(&self, part: &'a Mutex<T>) -> Option<MutexGuard<'a, T>> {
        let guard = lock(part);
        // The lock orders this after the hold. A release seen late is made up for by its ring.
        (self.holds.load(Ordering::Relaxed) == 0).then_some(guard)
    }

    /// Whether the driver has given the device queues.
    fn is_live(&self) -> bool {
        lock(&self.console).from_guest.is_some()
            || lock(&self.control).to_guest.is_some()
            || lock(&self.from_guest).queue.is_some()
            || lock(&self.to_guest).queue.is_some()
    }

    fn let_go(&self) {
        if self.holds.fetch_sub(1, Ordering::Release) > 1 {
            return;
        }
        self.console_left.store(true, Ordering::Release);
        self.control_left.store(true, Ordering::Release);
        self.doorbell.ring();
        // Before there is a driver nobody expects one.
        if self.is_live() {
            self.interrupt.signal_queue();
        }
    }
}

impl Held {
    /// The device that is held.
    #[must_use]
    pub fn console(&self) -> &Arc<Console> {
        &self.console
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.console.let_go();
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "hold_test.rs"]
mod tests;
