//! What a relay's end knows beyond an agent's: how far each execution's output was consumed, and
//! that of executions whose end has been told.
//!
//! A guest lets go of an execution with its terminal event: nobody needs its window any more. A
//! relay holds the VM's slot and credit for output that its client has not consumed, so its
//! account stays open until the last unit was acknowledged.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Conn;
use super::decode::WRONG_ACK;
use crate::PeerFault;
use crate::credit::Sender;
use crate::frame::ToGuest;
use crate::host::Inspection;
use crate::id::ExecId;
use crate::message::encode;

/// The accounts of a relay. Bounded: an execution counts against `max_executions` until its
/// account is closed, and stands in each map at most once.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts {
    /// Executions whose end was told and whose output was not acknowledged whole.
    settling: BTreeMap<ExecId, Sender>,
    /// Totals that the relay has not been told.
    acked: BTreeMap<ExecId, u64>,
    look: Look,
}

/// The one question for a look at the VM that a client may have open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Look {
    #[default]
    None,
    /// The relay has not heard of it.
    Asked { after: u64 },
    /// The relay looks.
    Answering,
    /// The answer waits for its turn, encoded.
    Answered(Vec<u8>),
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

    /// The client asks to see the VM's connection: the executions with ids above this. Answer
    /// with [`inspection`](Self::inspection). Drain it after every
    /// [`handle_bytes`](Self::handle_bytes). Always `None` unless made by
    /// [`for_relay`](Self::for_relay).
    pub fn poll_inspect(&mut self) -> Option<u64> {
        let look = &mut self.accounts.as_mut()?.look;
        let Look::Asked { after } = *look else {
            return None;
        };
        *look = Look::Answering;
        Some(after)
    }

    /// Answers [`poll_inspect`](Self::poll_inspect).
    pub fn inspection(&mut self, page: &Inspection) {
        if let Some(accounts) = &mut self.accounts
            && accounts.look == Look::Answering
        {
            accounts.look = Look::Answered(encode(page));
            self.schedule_replies();
        }
    }

    /// Whether an answer waits to leave.
    pub(super) fn has_answer(&self) -> bool {
        let look = self.accounts.as_ref().map(|accounts| &accounts.look);
        matches!(look, Some(Look::Answered(_)))
    }

    /// The answer that leaves now: the next question may come.
    pub(super) fn take_answer(&mut self) -> Option<Vec<u8>> {
        let look = &mut self.accounts.as_mut()?.look;
        match core::mem::take(look) {
            Look::Answered(page) => Some(page),
            other => {
                *look = other;
                None
            }
        }
    }

    pub(super) fn ask_inspection(&mut self, after: u64) -> Result<(), PeerFault> {
        match &mut self.accounts {
            Some(accounts) if accounts.look == Look::None => {
                accounts.look = Look::Asked { after };
                Ok(())
            }
            _ => Err(PeerFault("a look before the last one was answered")),
        }
    }

    /// Whether a kind is one that this end knows: there is nothing to look at behind an agent, and
    /// a client may not make its neighbours stand still.
    pub(super) fn takes(&self, kind: ToGuest) -> bool {
        match kind {
            ToGuest::Inspect => self.accounts.is_some(),
            ToGuest::Quiesce | ToGuest::Renew => self.accounts.is_none(),
            _ => true,
        }
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
