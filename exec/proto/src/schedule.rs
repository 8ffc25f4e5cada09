//! Which frame leaves next. The same order at both ends.
//!
//! There is no outbound byte queue: when the channel has room an end asks for one [`Turn`] and
//! builds that frame then. One round is
//!
//! 1. every acknowledgement that is due when the round begins, once;
//! 2. up to [`CONTROLS_PER_ROUND`] controls;
//! 3. one frame of the next slot in round-robin order.
//!
//! So a control that has `n` others before it departs after at most `1 + n / 4` data frames
//! began since it was queued, one in the usual case; and controls cannot starve data.
//!
//! The scheduler holds names only. What a slot has to send is the connection's business: it is
//! asked when the slot's turn comes, and a slot that turns out to have nothing is passed over.

mod saved;

use alloc::collections::VecDeque;

use crate::CONTROL_QUEUE;
use crate::id::ExecId;

pub(crate) use saved::Order;

/// Controls that may leave before a slot gets its turn.
pub const CONTROLS_PER_ROUND: u8 = 4;

/// A place in the round-robin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Replies that belong to no execution.
    Agent,
    /// An execution's own messages, in their order.
    Exec(ExecId),
}

/// What leaves next.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn<C> {
    /// The pending acknowledgement of an execution.
    Ack(ExecId),
    /// A control.
    Control(C),
    /// One frame of this slot, if it still has one.
    Slot(Slot),
}

/// The bounded queue of controls is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// Where in a round the scheduler stands.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Begin,
    Acks { left: usize },
    Controls { left: u8 },
    Slot,
}

/// The order of departure of one end of one connection.
///
/// Callers put an execution in at most once per class until its turn came, which they mark beside
/// the execution, and take it out when they forget it. That bounds both lists by the number of
/// executions known.
#[derive(Debug, Clone)]
pub struct Scheduler<C> {
    acks: VecDeque<ExecId>,
    controls: VecDeque<C>,
    slots: VecDeque<Slot>,
    phase: Phase,
}

impl<C> Default for Scheduler<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> Scheduler<C> {
    /// Nothing to send.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            acks: VecDeque::new(),
            controls: VecDeque::new(),
            slots: VecDeque::new(),
            phase: Phase::Begin,
        }
    }

    /// Whether nothing waits for a turn.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.acks.is_empty() && self.controls.is_empty() && self.slots.is_empty()
    }

    /// Puts an execution's acknowledgement in line. The total is read at its turn.
    pub fn push_ack(&mut self, id: ExecId) {
        self.acks.push_back(id);
    }

    /// Whether an acknowledgement stands in line.
    #[must_use]
    pub fn acks_wait(&self) -> bool {
        !self.acks.is_empty()
    }

    /// Controls in line.
    #[must_use]
    pub fn controls(&self) -> usize {
        self.controls.len()
    }

    /// Whether a control of this kind stands in line.
    #[must_use]
    pub fn control_waits(&self, kind: impl FnMut(&C) -> bool) -> bool {
        self.controls.iter().any(kind)
    }

    /// Puts a control in line.
    ///
    /// # Errors
    /// [`Full`]: [`CONTROL_QUEUE`] wait already; nothing was dropped, the caller waits or fails.
    pub fn push_control(&mut self, control: C) -> Result<(), Full> {
        if self.controls.len() >= CONTROL_QUEUE {
            return Err(Full);
        }
        self.controls.push_back(control);
        Ok(())
    }

    /// Puts a slot at the end of the round-robin.
    pub fn push_slot(&mut self, slot: Slot) {
        self.slots.push_back(slot);
    }

    /// Takes an execution out of both lists. Its owner forgets it.
    pub fn remove(&mut self, id: ExecId) {
        let place = self.acks.iter().position(|ack| *ack == id);
        // A round has as many acknowledgements as stood in line when it began; one that leaves
        // the line must not let a later one in.
        if let Phase::Acks { left } = &mut self.phase
            && place.is_some_and(|place| place < *left)
        {
            *left = left.saturating_sub(1);
        }
        self.acks.retain(|ack| *ack != id);
        self.slots.retain(|slot| *slot != Slot::Exec(id));
    }

    /// Takes the next turn, or `None` when nothing waits.
    pub fn next_turn(&mut self) -> Option<Turn<C>> {
        if self.is_idle() {
            self.phase = Phase::Begin;
            return None;
        }
        loop {
            match self.phase {
                // Acks that become due during the round wait for the next one, so that a reader
                // releasing without pause cannot hold back controls and data.
                Phase::Begin => {
                    self.phase = Phase::Acks {
                        left: self.acks.len(),
                    }
                }
                Phase::Acks { left } => match left.checked_sub(1) {
                    Some(left) => {
                        self.phase = Phase::Acks { left };
                        if let Some(id) = self.acks.pop_front() {
                            return Some(Turn::Ack(id));
                        }
                    }
                    None => {
                        self.phase = Phase::Controls {
                            left: CONTROLS_PER_ROUND,
                        }
                    }
                },
                Phase::Controls { left } => match left.checked_sub(1) {
                    Some(left) => {
                        self.phase = Phase::Controls { left };
                        match self.controls.pop_front() {
                            Some(control) => return Some(Turn::Control(control)),
                            None => self.phase = Phase::Slot,
                        }
                    }
                    None => self.phase = Phase::Slot,
                },
                Phase::Slot => {
                    self.phase = Phase::Begin;
                    if let Some(slot) = self.slots.pop_front() {
                        return Some(Turn::Slot(slot));
                    }
                }
            }
        }
    }

    /// Forgets everything in line: the connection is gone.
    pub fn clear(&mut self) {
        self.acks.clear();
        self.controls.clear();
        self.slots.clear();
        self.phase = Phase::Begin;
    }
}

#[cfg(test)]
#[path = "schedule_test.rs"]
mod tests;
