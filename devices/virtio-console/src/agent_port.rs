//! Port 1 as a whole: its life, and who serves its queues when.
//!
//! # Who serves the agent's queue
//!
//! A kick of queue 5 is served inline on the vCPU thread: that is the shortest way for a lone
//! request. When kicks come in close succession the guest is streaming (see [`Cadence`]): the ring
//! is handed to the event loop, by way of the [`Doorbell`], and no kicks are asked for until the
//! loop found it empty and gave it back. The loop looks a little longer before it does, because a
//! kick costs more than a short look. As long as it has the ring, the guest is not interrupted for
//! what [can wait](crate::Outgoing::can_wait).
//!
//! A machine may instead put an ioeventfd on queue 5 and let the loop serve it always; nothing
//! here changes.
//!
//! # The life of a connection
//!
//! The gate hears `opened` and `closed` in turn, each with both locks of the port held, so that
//! no frame of one connection is judged or pulled in another. When the guest closes or re-opens
//! the port, what lies in queue 5 is judged first: the guest wrote it before. What this
//! side finds broken it closes by itself, and drops chains until the guest opens the port anew.

use std::mem;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use forebay_virtio::Virtqueue;

use crate::agent_from_guest::{AgentFromGuest, Channel, Owner, Served};
use crate::agent_to_guest::{Link, Placed};
#[cfg(doc)]
use crate::cadence::Cadence;
use crate::device::{Budget, Console, Drained, lock};
use crate::gate::Closed;

/// Times one call of [`Console::transmit`] looks again because other calls came meanwhile.
pub(crate) const TRANSMIT_ROUNDS: u32 = 4;

/// Time after which a turn that looks for more chains ends, for the loop's other sources.
const LOOKS_AT_MOST: Duration = Duration::from_millis(2);

const OVERFULL: Closed =
    Closed::Framing("more lay in the ring as the port opened or closed than the agent writes");

impl Console {
    /// Places what the gate has for the guest, as far as the guest has posted buffers, and wakes
    /// the guest if it asked for it.
    ///
    /// Call it from any thread, with no lock of the gate held, whenever the gate has got
    /// something, and when the guest kicked queue 4. If another call is at work it covers this
    /// one, which returns at once. Does nothing while the guest has not opened the port, and while
    /// the device is [held](Self::hold), whose end covers it.
    ///
    /// Not to be called from within a call of the gate, but for [`settle`](crate::Gate::settle).
    /// Should the gate panic, the call unwinds, and the event loop goes on where it was.
    pub fn transmit(&self) {
        if self.place() {
            self.gate.settle();
        }
    }

    /// Places frames, without settling the gate. No lock of the agent's port may be held. Whether
    /// the gate was called: not if another call covers this one.
    fn place(&self) -> bool {
        let pumped = self.pump();
        if pumped == Pumped::Failed {
            self.end_failed_link(&mut lock(&self.from_guest));
        }
        pumped != Pumped::Covered
    }

    /// Places frames; no more than one thread at a time does.
    fn pump(&self) -> Pumped {
        // Whoever counts from zero works; the others leave their call to it. It goes round again
        // until no call came in while it worked, so none is lost.
        if self.transmit_calls.fetch_add(1, Ordering::AcqRel) != 0 {
            return Pumped::Covered;
        }
        let mut pumped = Pumped::Done;
        let mut working = Working::new(self);
        let mut budget = Budget::TRANSMIT;
        for _ in 0..TRANSMIT_ROUNDS {
            let covered = self.transmit_calls.load(Ordering::Acquire);
            match self.fill(&mut budget) {
                Placed::Everything => {}
                Placed::Failed => pumped = Pumped::Failed,
                Placed::BudgetSpent => break,
            }
            if working.end(covered) {
                break;
            }
        }
        // If it did not come to its end, `working` leaves the rest to the loop.
        pumped
    }

    /// One look at what the gate has and the ring takes: nothing while the device is held.
    fn fill(&self, budget: &mut Budget) -> Placed {
        let Some(mut port) = self.lock_unless_held(&self.to_guest) else {
            return Placed::Everything;
        };
        let before = port.counters.buffers;
        let placed = port.fill(&*self.gate, &*self.interrupt, budget);
        if port.counters.buffers != before {
            self.placed.store(true, Ordering::Relaxed);
        }
        placed
    }

    /// Ends the connection if the side towards the guest found it broken.
    pub(crate) fn end_failed_link(&self, port: &mut AgentFromGuest) {
        let failure = match lock(&self.to_guest).link {
            Link::Failed(why) => Some(why),
            Link::Closed | Link::Open => None,
        };
        // Whoever opens or closes the port needs the lock the caller holds, so the link is still
        // as it was just seen.
        if let Some(why) = failure {
            self.end_connection(port, why, Channel::Broken);
        }
    }

    /// The guest kicked queue 5, on a vCPU thread.
    pub(crate) fn kick_agent(&self) {
        let Some(mut port) = self.lock_unless_held(&self.from_guest) else {
            return;
        };
        // A kick while the loop has the ring is a stale wish come true: the loop looks again
        // before it gives the ring back.
        if port.owner == Owner::EventLoop || port.queue.is_none() {
            return;
        }
        let placed = self.placed.swap(false, Ordering::Relaxed);
        let streaming = port.cadence.kick(Instant::now(), placed);
        let mut budget = Budget::INLINE;
        let mut taken = 0;
        let hand_over = loop {
            let turn = self.serve_agent(&mut port, &mut budget);
            taken += turn.chains;
            if streaming || !turn.emptied {
                break true;
            }
            if !port.rearm() {
                break false;
            }
        };
        let cost = Budget::INLINE.bytes.saturating_sub(budget.bytes);
        port.cadence.served(cost);
        self.tell_of_room(&mut port.queue, taken);
        if hand_over {
            port.owner = Owner::EventLoop;
            port.counters.handovers += 1;
        }
        self.answer(&mut port);
        if hand_over {
            port.cadence.handed_over(Instant::now());
        }
        drop(port);
        // Only now: a loop that woke before the ring was its own would find nothing to do.
        if hand_over {
            self.doorbell.ring();
        }
        self.gate.settle();
    }

    /// Port 1's share of [`Console::drain_from_guest`], which settles the gate.
    pub(crate) fn drain_agent(&self, mut budget: Budget, least_look: Duration) -> Drained {
        let Some(mut port) = self.lock_unless_held(&self.from_guest) else {
            return Drained::Everything;
        };
        let began = Instant::now();
        port.cadence.looked_at(began);
        let had_the_ring = port.owner == Owner::EventLoop;
        // A ring that was just handed over is worth a look, too, and one that a turn was too short for.
        let mut worth_a_look = had_the_ring;
        if !least_look.is_zero() {
            lock(&self.to_guest).stream();
        }
        if let Some(queue) = &mut port.queue {
            queue.disarm();
        }
        let drained = loop {
            let turn = self.serve_agent(&mut port, &mut budget);
            self.tell_of_room(&mut port.queue, turn.chains);
            self.answer(&mut port);
            if turn.chains > 0 {
                port.cadence.found();
                worth_a_look = true;
                lock(&self.to_guest).tell_overdue(&*self.interrupt);
            }
            if !turn.emptied {
                break Drained::More;
            }
            let mut comes = false;
            if mem::take(&mut worth_a_look) && !least_look.is_zero() {
                let look = port.cadence.look(least_look);
                // Whoever waits for what came need not wait for the look, too.
                drop(port);
                self.gate.settle();
                match self.chain_comes(look) {
                    Some(looked) => (port, comes) = looked,
                    // Whoever held it raises an interrupt and rings for all that is left here.
                    None => return Drained::Everything,
                }
            }
            if !comes && !port.rearm() {
                lock(&self.to_guest).pause(&*self.interrupt);
                break Drained::Everything;
            }
            if began.elapsed() >= LOOKS_AT_MOST {
                break Drained::More;
            }
        };
        port.owner = match drained {
            Drained::More => Owner::EventLoop,
            Drained::Everything => Owner::Vcpu,
        };
        if had_the_ring && port.owner == Owner::Vcpu {
            port.cadence.given_back();
        }
        drained
    }

    /// Watches the ring for up to `limit`, and says whether a chain came; `None` once the device is
    /// held. The port's lock is free in between, for whoever opens, closes, holds or inspects it. A
    /// refill of the queue towards the guest, whose kick would have to wait for the loop, is served.
    fn chain_comes(&self, limit: Duration) -> Option<(MutexGuard<'_, AgentFromGuest>, bool)> {
        let start = Instant::now();
        loop {
            let mut port = self.lock_unless_held(&self.from_guest)?;
            let comes = port.available();
            if comes || start.elapsed() >= limit {
                return Some((port, comes));
            }
            drop(port);
            let refilled = self
                .lock_unless_held(&self.to_guest)
                .is_some_and(|mut port| port.is_refilled());
            if refilled {
                self.transmit();
            }
            // A reader that was woken for what came runs on this processor, not on the guest's.
            thread::yield_now();
        }
    }

    /// Serves chains of queue 5 until the ring is empty or the budget spent.
    fn serve_agent(&self, port: &mut AgentFromGuest, budget: &mut Budget) -> ServedTurn {
        let mut chains = 0;
        while !budget.spent() {
            let cost = match port.serve_one(&*self.gate) {
                Served::Empty => {
                    return ServedTurn {
                        chains,
                        emptied: true,
                    };
                }
                Served::Chain(cost) => cost,
                Served::Ends(cost, why) => {
                    self.end_connection(port, why, Channel::Broken);
                    cost
                }
            };
            chains += 1;
            budget.charge(cost);
        }
        ServedTurn {
            chains,
            emptied: false,
        }
    }

    /// Places the gate's answers to what was just judged.
    fn answer(&self, port: &mut AgentFromGuest) {
        if self.pump() == Pumped::Failed {
            self.end_failed_link(port);
        }
    }

    /// Judges what the guest has written so far; what it adds meanwhile may wait. A guest that
    /// has put more into its ring than the agent ever does loses the connection and the rest.
    fn serve_written(&self, port: &mut AgentFromGuest) {
        let mut budget = Budget::WRITTEN;
        let mut chains = self.serve_agent(port, &mut budget).chains;
        if budget.bytes == 0 && budget.chains > 0 && port.available() {
            self.end_connection(port, OVERFULL, Channel::Broken);
            // What is dropped unread costs no bytes.
            budget.bytes = usize::MAX;
            chains += self.serve_agent(port, &mut budget).chains;
        }
        self.tell_of_room(&mut port.queue, chains);
    }

    /// Tells a guest that may wait for room in queue 5 that there is some, if chains were completed and
    /// it asked for that. One that found room when it last looked looks again before it waits.
    fn tell_of_room(&self, queue: &mut Option<Virtqueue>, completed: u32) {
        let Some(queue) = queue.as_mut().filter(|_| completed > 0) else {
            return;
        };
        if queue.take_interrupt_for_room() {
            self.interrupt.signal_queue();
        }
    }

    /// The guest opened port 1. The caller settles the gate.
    pub(crate) fn open_agent(&self) {
        {
            let mut port = lock(&self.from_guest);
            self.serve_written(&mut port);
            self.end_connection(&mut port, Closed::Reopened, Channel::Closed);
            let mut to_guest = lock(&self.to_guest);
            if is_alive(&port.queue) && is_alive(&to_guest.queue) {
                self.gate.opened();
                to_guest.open();
                port.channel = Channel::Open;
            } else {
                port.channel = Channel::Broken;
            }
        }
        self.place();
    }

    /// The guest closed port 1. The caller settles the gate.
    pub(crate) fn close_agent(&self) {
        let mut port = lock(&self.from_guest);
        self.serve_written(&mut port);
        self.end_connection(&mut port, Closed::ByGuest, Channel::Closed);
    }

    /// The guest reset the device. Whether that ended a connection: then the gate must be settled.
    pub(crate) fn reset_agent(&self) -> bool {
        let mut port = lock(&self.from_guest);
        port.queue = None;
        port.owner = Owner::Vcpu;
        let ended = port.channel == Channel::Open;
        self.end_connection(&mut port, Closed::Reset, Channel::Closed);
        lock(&self.to_guest).queue = None;
        ended
    }

    /// Tells the gate that its connection ended, if there is one, and leaves the channel in state
    /// `after`.
    fn end_connection(&self, port: &mut AgentFromGuest, why: Closed, after: Channel) {
        let mut to_guest = lock(&self.to_guest);
        to_guest.close();
        if port.channel == Channel::Open {
            tracing::debug!(%why, "agent port closed");
            self.gate.closed(why);
        }
        port.channel = after;
    }
}

/// What came of placing frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pumped {
    /// Another call is at it and covers this one.
    Covered,
    /// What could be placed was, or is left to the event loop.
    Done,
    /// The link failed: the connection must end.
    Failed,
}

/// The turn at placing frames, of which there is one. Dropped before it is done, because the
/// budget ran out or the gate panicked, it leaves the rest, and every call that came meanwhile, to
/// the event loop.
struct Working<'a> {
    console: &'a Console,
    done: bool,
}

impl<'a> Working<'a> {
    fn new(console: &'a Console) -> Self {
        Self {
            console,
            done: false,
        }
    }

    /// Ends the turn if no call came since `covered` were counted. `true` if it did.
    fn end(&mut self, covered: u32) -> bool {
        self.done = self
            .console
            .transmit_calls
            .compare_exchange(covered, 0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        self.done
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        if !self.done {
            // In this order, so that the loop's turn covers every call that came before the bell.
            self.console.transmit_calls.store(0, Ordering::Release);
            self.console.doorbell.ring();
        }
    }
}

/// What a turn at queue 5 came to.
struct ServedTurn {
    chains: u32,
    /// The ring was seen empty; otherwise the budget ran out.
    emptied: bool,
}

fn is_alive(queue: &Option<Virtqueue>) -> bool {
    queue.as_ref().is_some_and(|queue| queue.fault().is_none())
}

#[cfg(test)]
#[path = "agent_port_test.rs"]
mod tests;

#[cfg(test)]
#[path = "agent_port_look_test.rs"]
mod look_tests;

#[cfg(test)]
#[path = "hostile_rings_test.rs"]
mod hostile_rings;

#[cfg(test)]
#[path = "agent_port_model_test.rs"]
mod model_tests;
