//! Port 1 as a whole: its life, and who serves its queues when.
//!
//! # Who serves the agent's queue
//!
//! A kick of queue 5 is served inline on the vCPU thread: that is the shortest way for a lone
//! request. When kicks come in a row with nothing going to the guest between them, the
//! guest is streaming: the ring is handed to the event loop, by way of the [`Doorbell`], and no
//! kicks are asked for until the loop found it empty and gave it back. The loop looks a little
//! longer before it does, because a kick costs more than a short look.
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

use std::hint::spin_loop;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_virtio::Virtqueue;

use crate::agent_from_guest::{AgentFromGuest, Channel, Owner, Served};
use crate::agent_to_guest::{Link, Placed};
use crate::device::{Budget, Console, Drained, Turn, lock};
use crate::gate::Closed;

/// Kicks of queue 5 in a row, with nothing placed towards the guest between them, after which
/// the ring goes to the event loop. A lone request and its answer are one kick and one placing.
const HAND_OVER_AFTER: u32 = 3;

/// Buffers one call of [`Console::transmit`] fills at most: four rings full.
pub(crate) const TRANSMIT_BUDGET: u32 = 512;

impl Console {
    /// Places what the gate has for the guest, as far as the guest has posted buffers, and wakes
    /// the guest if it asked for it.
    ///
    /// Call it from any thread, with no lock of the gate held, whenever the gate has got
    /// something, and when the guest kicked queue 4. If another call is at work it covers this
    /// one, which returns at once. Does nothing while the guest has not opened the port.
    pub fn transmit(&self) {
        if self.pump() {
            self.settle(&mut lock(&self.from_guest));
        }
    }

    /// Places frames; no more than one thread at a time does. Returns whether the link failed, in
    /// which case the caller owes a [`settle`](Self::settle).
    fn pump(&self) -> bool {
        // Whoever counts from zero works; the others leave their call to it. It goes round again
        // until no call came in while it worked, so none is lost.
        if self.transmit_calls.fetch_add(1, Ordering::AcqRel) != 0 {
            return false;
        }
        let mut failed = false;
        loop {
            let covered = self.transmit_calls.load(Ordering::Acquire);
            let placed = {
                let mut port = lock(&self.to_guest);
                let before = port.counters.buffers;
                let placed = port.fill(&*self.gate, &*self.interrupt, TRANSMIT_BUDGET);
                if port.counters.buffers != before {
                    self.kicks_in_a_row.store(0, Ordering::Relaxed);
                }
                placed
            };
            match placed {
                Placed::Everything => {}
                Placed::Failed => failed = true,
                Placed::BudgetSpent => {
                    // Not on the caller's time any longer. The loop's turn covers every call
                    // that came before the bell.
                    self.transmit_calls.store(0, Ordering::Release);
                    self.doorbell.ring();
                    return failed;
                }
            }
            if self
                .transmit_calls
                .compare_exchange(covered, 0, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                return failed;
            }
        }
    }

    /// Ends the connection if the side towards the guest found it broken.
    fn settle(&self, port: &mut AgentFromGuest) {
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
        let mut port = lock(&self.from_guest);
        // A kick while the loop has the ring is a stale wish come true: the loop looks again
        // before it gives the ring back.
        if port.owner == Owner::EventLoop || port.queue.is_none() {
            return;
        }
        let streaming = self.kicks_in_a_row.fetch_add(1, Ordering::Relaxed) >= HAND_OVER_AFTER - 1;
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
        self.signal(&mut port.queue, taken, Turn::Inline);
        if hand_over {
            port.owner = Owner::EventLoop;
            port.counters.handovers += 1;
        }
        self.answer(&mut port);
        drop(port);
        // Only now: a loop that woke before the ring was its own would find nothing to do.
        if hand_over {
            self.doorbell.ring();
        }
    }

    /// Port 1's share of [`Console::drain_from_guest`].
    pub(crate) fn drain_agent(&self, mut budget: Budget, poll: Duration) -> Drained {
        let mut port = lock(&self.from_guest);
        if let Some(queue) = &mut port.queue {
            queue.disarm();
        }
        let drained = loop {
            let turn = self.serve_agent(&mut port, &mut budget);
            // Before the look for more: a guest that sleeps until the ring has room, or until an
            // answer comes, would make that look a waste.
            self.signal(&mut port.queue, turn.chains, Turn::EventLoop);
            self.answer(&mut port);
            if !turn.emptied {
                break Drained::More;
            }
            if turn.chains > 0 && chain_comes(&mut port, poll) {
                continue;
            }
            if !port.rearm() {
                break Drained::Everything;
            }
        };
        port.owner = match drained {
            Drained::More => Owner::EventLoop,
            Drained::Everything => Owner::Vcpu,
        };
        drained
    }

    /// Serves chains of queue 5 until the ring is empty or the budget spent.
    fn serve_agent(&self, port: &mut AgentFromGuest, budget: &mut Budget) -> ServedTurn {
        let mut chains = 0;
        while !budget.spent() {
            let bytes = match port.serve_one(&*self.gate) {
                Served::Empty => {
                    return ServedTurn {
                        chains,
                        emptied: true,
                    };
                }
                Served::Chain(bytes) => bytes,
                Served::Ends(why) => {
                    self.end_connection(port, why, Channel::Broken);
                    0
                }
            };
            chains += 1;
            budget.charge(bytes);
        }
        ServedTurn {
            chains,
            emptied: false,
        }
    }

    /// Places the gate's answers to what was just judged.
    fn answer(&self, port: &mut AgentFromGuest) {
        if self.pump() {
            self.settle(port);
        }
    }

    /// Judges what the guest has written so far; what it adds meanwhile may wait.
    fn serve_written(&self, port: &mut AgentFromGuest) {
        let mut budget = Budget {
            chains: port.queue.as_ref().map_or(0, |queue| queue.size().into()),
            bytes: usize::MAX,
        };
        let turn = self.serve_agent(port, &mut budget);
        self.signal(&mut port.queue, turn.chains, Turn::EventLoop);
    }

    /// The guest opened port 1.
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
        self.transmit();
    }

    /// The guest closed port 1.
    pub(crate) fn close_agent(&self) {
        let mut port = lock(&self.from_guest);
        self.serve_written(&mut port);
        self.end_connection(&mut port, Closed::ByGuest, Channel::Closed);
    }

    /// The guest reset the device.
    pub(crate) fn reset_agent(&self) {
        let mut port = lock(&self.from_guest);
        port.queue = None;
        port.owner = Owner::Vcpu;
        self.end_connection(&mut port, Closed::Reset, Channel::Closed);
        lock(&self.to_guest).queue = None;
        self.kicks_in_a_row.store(0, Ordering::Relaxed);
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

/// What a turn at queue 5 came to.
struct ServedTurn {
    chains: u32,
    /// The ring was seen empty; otherwise the budget ran out.
    emptied: bool,
}

/// Watches the ring for up to `limit`. Holds the port's lock meanwhile, which nobody wants: kicks
/// are not asked for.
fn chain_comes(port: &mut AgentFromGuest, limit: Duration) -> bool {
    if limit.is_zero() {
        return false;
    }
    let start = Instant::now();
    loop {
        if port.available() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        spin_loop();
    }
}

fn is_alive(queue: &Option<Virtqueue>) -> bool {
    queue.as_ref().is_some_and(|queue| queue.fault().is_none())
}

#[cfg(test)]
#[path = "agent_port_test.rs"]
mod tests;

#[cfg(test)]
#[path = "hostile_rings_test.rs"]
mod hostile_rings;

#[cfg(test)]
#[path = "agent_port_model_test.rs"]
mod model_tests;
