//! Port 1 towards the guest: frames of the gate, placed into the buffers the guest has posted.
//!
//! To the guest the port is a stream of bytes: buffers are filled to the brim, a frame may lie
//! over several of them, and several frames may share one. A frame that no longer fits is kept
//! and finished when buffers come; it is the only one held.
//!
//! While the event loop serves a stream of the guest's, frames that [can wait](Outgoing::can_wait) are
//! placed without an interrupt: the agent that streams looks for them. An interrupt would stop the
//! guest's processor several times (the interrupt, the driver's look at why, the agent's wake) in the
//! middle of its work.

use std::mem;
use std::time::{Duration, Instant};

use forebay_virtio::{ChainVerdict, Interrupt, Taken, Virtqueue};

use crate::device::{Budget, FRAME_COST};
use crate::gate::{Closed, Gate, Outgoing};
use crate::queues::MAX_CHAIN_BYTES;

/// Buffers filled between two looks at whether the guest wants to be woken, so that it starts to
/// read while we still write.
const INTERRUPT_BATCH: u32 = 16;

/// Time after which a guest that streams on is told of a frame that can wait. Looked at with each of
/// its chains, so that a turn of the event loop may come on top.
pub const TOLD_WITHIN: Duration = Duration::from_millis(5);

/// Whether frames may go to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Link {
    /// The guest has not opened the port: what is sent now would be thrown away.
    #[default]
    Closed,
    /// A connection is up.
    Open,
    /// This side found the connection broken, and the gate has not been told yet.
    Failed(Closed),
}

/// What came of placing frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    /// The gate has no more, or the ring has no more room and its next refill will kick.
    Everything,
    /// The budget ran out first.
    BudgetSpent,
    /// The link has just failed.
    Failed,
}

/// A frame on its way into the ring.
#[derive(Debug)]
pub(crate) struct Placing {
    pub(crate) frame: Outgoing,
    /// Bytes of header and payload placed so far.
    pub(crate) done: usize,
}

impl Placing {
    /// Writes as much as there is room for. `true` once the frame is placed whole.
    fn write_into(&mut self, chain: &mut Taken<'_>) -> bool {
        let head_len = self.frame.head.len();
        if let Some(head) = self.frame.head.get(self.done..) {
            self.done += chain.write(head);
        }
        if let Some(body) = self
            .done
            .checked_sub(head_len)
            .and_then(|done| self.frame.body.get(done..))
        {
            self.done += chain.write(body);
        }
        self.done == head_len + self.frame.body.len()
    }
}

/// The queue, the link, and the frame that is partly placed.
#[derive(Debug, Default)]
pub(crate) struct AgentToGuest {
    pub(crate) queue: Option<Virtqueue>,
    pub(crate) link: Link,
    pub(crate) placing: Option<Placing>,
    /// The last look found no buffer. Only looks of an open link count.
    pub(crate) dry: bool,
    pub(crate) telling: Telling,
    pub(crate) counters: ToGuestCounters,
}

/// When the guest is told of what was placed. Not saved: letting go of a device tells the guest.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) enum Telling {
    /// At once.
    #[default]
    AtOnce,
    /// The guest streams. Of what can wait it has not been told since this moment, if there is any.
    Streaming(Option<Instant>),
}

/// Buffers filled of which the guest was not told.
#[derive(Debug, Default)]
struct Filled {
    buffers: u32,
    /// All that is in them can wait.
    can_wait: bool,
}

/// What went through port 1 towards the guest, since the device was made.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ToGuestCounters {
    pub(crate) buffers: u64,
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) ran_dry: u64,
}

impl AgentToGuest {
    /// A connection begins.
    pub(crate) fn open(&mut self) {
        self.placing = None;
        self.link = Link::Open;
    }

    /// The connection is over: a partly placed frame is dropped.
    pub(crate) fn close(&mut self) {
        self.placing = None;
        self.link = Link::Closed;
    }

    /// Whether a frame waits for buffers.
    pub(crate) fn is_placing(&self) -> bool {
        self.placing.is_some()
    }

    /// Whether the guest has posted buffers since it was found to have none.
    pub(crate) fn is_refilled(&mut self) -> bool {
        let dry = self.dry && self.link == Link::Open;
        let queue = self.queue.as_mut().filter(|_| dry);
        queue.is_some_and(|queue| queue.available().unwrap_or(false))
    }

    /// Places frames while both the gate and the ring have some, within `budget`, of which a
    /// posted buffer is a chain and what is written into it the bytes.
    pub(crate) fn fill(
        &mut self,
        gate: &dyn Gate,
        interrupt: &dyn Interrupt,
        budget: &mut Budget,
    ) -> Placed {
        let mut filled = Filled::default();
        let result = self.fill_within(gate, interrupt, budget, &mut filled);
        self.raise(filled, interrupt);
        result.unwrap_or_else(|why| {
            self.close();
            self.link = Link::Failed(why);
            Placed::Failed
        })
    }

    fn fill_within(
        &mut self,
        gate: &dyn Gate,
        interrupt: &dyn Interrupt,
        budget: &mut Budget,
        filled: &mut Filled,
    ) -> Result<Placed, Closed> {
        while !budget.spent() {
            if self.link != Link::Open {
                return Ok(Placed::Everything);
            }
            let Some(queue) = &mut self.queue else {
                return Ok(Placed::Everything);
            };
            let peeked = queue.peek().map_err(Closed::Ring)?;
            self.dry = peeked.is_none();
            let Some(chain) = peeked else {
                self.counters.ran_dry += 1;
                if queue.rearm().map_err(Closed::Ring)? {
                    budget.charge(0);
                    continue;
                }
                return Ok(Placed::Everything);
            };
            if let Some(fault) = chain.fault() {
                chain.consume(ChainVerdict::Drop).complete();
                return Err(Closed::Chain(fault));
            }
            if chain.remaining() > MAX_CHAIN_BYTES {
                chain.consume(ChainVerdict::Drop).complete();
                return Err(TOO_LONG);
            }
            // Asked for only now that there is room: the later the choice, the better.
            if self.placing.is_none() {
                self.placing = next_frame(gate);
            }
            if self.placing.is_none() {
                return Ok(Placed::Everything);
            }
            let mut taken = chain.consume(ChainVerdict::Use);
            let room = taken.remaining();
            let mut frames = 0;
            filled.can_wait |= filled.buffers == 0;
            while let Some(placing) = &mut self.placing {
                filled.can_wait &= placing.frame.can_wait;
                if !placing.write_into(&mut taken) {
                    break;
                }
                self.counters.frames += 1;
                frames += 1;
                self.placing = None;
                if taken.remaining() > 0 {
                    self.placing = next_frame(gate);
                }
            }
            let bytes = room - taken.remaining();
            budget.charge(bytes + frames * FRAME_COST);
            self.counters.bytes += bytes as u64;
            self.counters.buffers += 1;
            taken.complete();
            filled.buffers += 1;
            if filled.buffers == INTERRUPT_BATCH {
                self.raise(mem::take(filled), interrupt);
            }
        }
        Ok(Placed::BudgetSpent)
    }

    /// Wakes the guest if it asked to hear of the buffers filled last, now or later.
    fn raise(&mut self, filled: Filled, interrupt: &dyn Interrupt) {
        if filled.buffers == 0 {
            return;
        }
        match &mut self.telling {
            Telling::Streaming(untold) if filled.can_wait => {
                untold.get_or_insert_with(Instant::now);
            }
            Telling::Streaming(_) => self.tell(Telling::Streaming(None), interrupt),
            Telling::AtOnce => self.tell(Telling::AtOnce, interrupt),
        }
    }

    /// The guest streams: it looks by itself.
    pub(crate) fn stream(&mut self) {
        if let Telling::AtOnce = self.telling {
            self.telling = Telling::Streaming(None);
        }
    }

    /// The guest's stream goes on. Tells it of what has waited for long.
    pub(crate) fn tell_overdue(&mut self, interrupt: &dyn Interrupt) {
        if let Telling::Streaming(Some(since)) = self.telling
            && since.elapsed() >= TOLD_WITHIN
        {
            self.tell(Telling::Streaming(None), interrupt);
        }
    }

    /// The guest's stream pauses. Tells it of all that it may not have seen.
    pub(crate) fn pause(&mut self, interrupt: &dyn Interrupt) {
        if let Telling::Streaming(Some(_)) = mem::take(&mut self.telling) {
            self.tell(Telling::AtOnce, interrupt);
        }
    }

    /// Wakes the guest if it asked to hear of what it has not seen.
    fn tell(&mut self, after: Telling, interrupt: &dyn Interrupt) {
        self.telling = after;
        if let Some(queue) = &mut self.queue
            && queue.take_interrupt()
        {
            interrupt.signal_queue();
        }
    }
}

const TOO_LONG: Closed =
    Closed::Framing("a buffer posted for the host is longer than any the driver posts");

fn next_frame(gate: &dyn Gate) -> Option<Placing> {
    gate.next_to_guest().map(|frame| Placing { frame, done: 0 })
}

#[cfg(test)]
#[path = "agent_to_guest_test.rs"]
mod tests;
