//! What a relay's end knows beyond an agent's: how far each execution's output was consumed, and
//! that of executions whose end has been told.
//!
//! A guest lets go of an execution with its terminal event: nobody needs its window any more. A
//! relay holds the VM's slot and credit for output that its client has not consumed, so its
//! account stays open until the last unit was acknowledged.

use alloc::collections::BTreeMap;

use super::Conn;
use super::decode::WRONG_ACK;
use crate::PeerFault;
use crate::credit::Sender;
use crate::id::ExecId;

/// The accounts of a relay. Bounded: an execution counts against `max_executions` until its
/// account is closed, and stands in each map at most once.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Executions whose end was told and whose output was not acknowledged whole.
    settling: BTreeMap<ExecId, Sender>,
    /// Totals that the relay has not been told.
    acked: BTreeMap<ExecId, u64>,
}

impl Conn {
    /// As [`new`](Self::new), for a relay: [`poll_acked`](Self::poll_acked) tells how far the
    /// host has consumed each execution's output, also after its end.
    ///
    /// [`failed`](Self::failed) may then be said of an execution that has started, too.
    #[must_use]
    pub fn for_relay() -> Self {
        Self {
            accounts: Some(Accounts::default()),
            ..Self::new()
        }
    }

    /// An execution of which more output was consumed, and the cumulative total of its units.
    /// Drain it after every [`handle_bytes`](Self::handle_bytes). Always `None` unless made by
    /// [`for_relay`](Self::for_relay).
    pub fn poll_acked(&mut self) -> Option<(ExecId, u64)> {
        self.accounts.as_mut()?.acked.pop_first()
    }

    /// Executions that count against `max_executions`.
    pub(super) fn slots_held(&self) -> usize {
        let settling = self.accounts.as_ref().map_or(0, |a| a.settling.len());
        self.execs.len().saturating_add(settling)
    }

    /// Whether the end was told and acknowledgements are still awaited.
    pub(super) fn is_settling(&self, id: ExecId) -> bool {
        self.accounts
            .as_ref()
            .is_some_and(|accounts| accounts.settling.contains_key(&id))
    }

    /// The execution's end was told; its window stays open if something is outstanding.
    pub(super) fn keep_account(&mut self, id: ExecId, window: Sender) {
        if let Some(accounts) = &mut self.accounts
            && window.outstanding() > 0
        {
            accounts.settling.insert(id, window);
        }
    }

    /// The host consumed output of an execution whose end it knows.
    pub(super) fn settle_acked(&mut self, id: ExecId, total: u64) -> Result<(), PeerFault> {
        let Some(accounts) = &mut self.accounts else {
            return Ok(());
        };
        let Some(window) = accounts.settling.get_mut(&id) else {
            return Ok(());
        };
        window.acknowledge(total).map_err(|_| WRONG_ACK)?;
        if window.outstanding() == 0 {
            accounts.settling.remove(&id);
        }
        self.note_acked(id, total);
        Ok(())
    }

    /// Remembers to tell the relay of a total.
    pub(super) fn note_acked(&mut self, id: ExecId, total: u64) {
        if let Some(accounts) = &mut self.accounts {
            accounts.acked.insert(id, total);
        }
    }
}

#[cfg(test)]
#[path = "relay_test.rs"]
mod tests;
