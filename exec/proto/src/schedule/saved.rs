//! The order of departure as it is saved.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use minicbor::{Decode, Encode};

use super::{CONTROLS_PER_ROUND, Phase, Scheduler, Slot};
use crate::CONTROL_QUEUE;
use crate::id::ExecId;

/// Who stands in line for acknowledgements and in the round-robin, and where the round stands.
/// Controls are saved beside it: what they say is their owner's business.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Order {
    #[n(0)]
    acks: Vec<ExecId>,
    #[n(1)]
    slots: Vec<ExecId>,
    #[n(2)]
    phase: SavedPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
enum SavedPhase {
    #[n(0)]
    Begin,
    #[n(1)]
    Acks {
        #[n(0)]
        left: u64,
    },
    #[n(2)]
    Controls {
        #[n(0)]
        left: u8,
    },
    #[n(3)]
    Slot,
}

impl Order {
    /// Executions whose acknowledgement stands in line.
    pub(crate) fn acks(&self) -> &[ExecId] {
        &self.acks
    }

    /// Executions that stand in the round-robin.
    pub(crate) fn slots(&self) -> &[ExecId] {
        &self.slots
    }
}

impl<C: Clone> Scheduler<C> {
    /// The order as it stands, and the controls in line. The agent slot is left out: the host,
    /// whose end alone is saved, owes no replies.
    pub(crate) fn save(&self) -> (Order, Vec<C>) {
        let exec = |slot: &Slot| match slot {
            Slot::Exec(id) => Some(*id),
            Slot::Agent => None,
        };
        let order = Order {
            acks: self.acks.iter().copied().collect(),
            slots: self.slots.iter().filter_map(exec).collect(),
            phase: match self.phase {
                Phase::Begin => SavedPhase::Begin,
                Phase::Acks { left } => SavedPhase::Acks { left: left as u64 },
                Phase::Controls { left } => SavedPhase::Controls { left },
                Phase::Slot => SavedPhase::Slot,
            },
        };
        (order, self.controls.iter().cloned().collect())
    }

    /// The order as it was. Whoever calls it knows which executions there are.
    ///
    /// # Errors
    /// The rule that the saved order breaks.
    pub(crate) fn restore(
        order: &Order,
        controls: Vec<C>,
        known: impl Fn(ExecId) -> bool,
    ) -> Result<Self, &'static str> {
        for line in [&order.acks, &order.slots] {
            let once: BTreeSet<ExecId> = line.iter().copied().collect();
            if once.len() != line.len() {
                return Err("an execution stands in line twice");
            }
            if !line.iter().all(|id| known(*id)) {
                return Err("an execution stands in line that there is not");
            }
        }
        if controls.len() > CONTROL_QUEUE {
            return Err("more controls are in line than the queue holds");
        }
        let phase = match order.phase {
            SavedPhase::Begin => Phase::Begin,
            SavedPhase::Acks { left } => match usize::try_from(left) {
                Ok(left) if left <= order.acks.len() => Phase::Acks { left },
                _ => return Err("a round has more acknowledgements left than are in line"),
            },
            SavedPhase::Controls { left } if left <= CONTROLS_PER_ROUND => Phase::Controls { left },
            SavedPhase::Controls { .. } => {
                return Err("a round has more controls left than one round has");
            }
            SavedPhase::Slot => Phase::Slot,
        };
        Ok(Self {
            acks: order.acks.iter().copied().collect(),
            controls: VecDeque::from(controls),
            slots: order.slots.iter().copied().map(Slot::Exec).collect(),
            phase,
        })
    }
}

#[cfg(test)]
#[path = "saved_test.rs"]
mod tests;
