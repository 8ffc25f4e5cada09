//! What a relay's end knows beyond an agent's: how far each execution's output was consumed, and
//! that of executions whose end has been told.
//!
//! A guest lets go of an execution with its terminal event: nobody needs its window any more. A
//! relay holds the VM's slot and credit for output that its client has not consumed, so its
//! account stays open until the last unit was acknowledged.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::decode::WRONG_ACK;
use super::execution::{Exec, Terminal};
use super::{Conn, Event};
use crate::PeerFault;
use crate::credit::Sender;
use crate::frame::ToGuest;
use crate::host::Inspection;
use crate::id::ExecId;
use crate::message::{Adopted, ExitStatus, TimedOut, cut, decode_u64, encode};

/// The accounts of a relay. Bounded: an execution counts against `max_executions` until its
/// account is closed, and stands in each map at most once.
#[derive(Debug, Clone, Default)]
pub(super) struct Accounts {
    /// Executions whose end was told and whose output was not acknowledged whole.
    settling: BTreeMap<ExecId, Sender>,
    /// Totals that the relay has not been told.
    acked: BTreeMap<ExecId, Acked>,
    look: Look,
}

/// How far the host has consumed an execution's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    /// Units of credit, counted from the beginning of this connection's part of it.
    pub total: u64,
    /// Bytes of stdout and of stderr, counted from the execution's start.
    pub consumed: [u64; 2],
}

impl Acked {
    /// Reads the payload of an acknowledgement, which says more to a relay than to an agent.
    pub(super) fn decode(payload: &[u8], relayed: bool) -> Option<Self> {
        let (total, rest) = payload.split_at_checked(8)?;
        let total = decode_u64(total)?;
        let consumed = if relayed {
            let (stdout, stderr) = rest.split_at_checked(8)?;
            [decode_u64(stdout)?, decode_u64(stderr)?]
        } else if rest.is_empty() {
            [0; 2]
        } else {
            return None;
        };
        Some(Self { total, consumed })
    }
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

    /// An execution of which more output was consumed, and the cumulative totals.
    /// Drain it after every [`handle_bytes`](Self::handle_bytes). Always `None` unless made by
    /// [`for_relay`](Self::for_relay).
    pub fn poll_acked(&mut self) -> Option<(ExecId, Acked)> {
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
            ToGuest::Inspect | ToGuest::Adopt | ToGuest::Leave => self.accounts.is_some(),
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
    pub(super) fn settle_acked(&mut self, id: ExecId, acked: Acked) -> Result<(), PeerFault> {
        let Some(accounts) = &mut self.accounts else {
            return Ok(());
        };
        let Some(window) = accounts.settling.get_mut(&id) else {
            return Ok(());
        };
        window.acknowledge(acked.total).map_err(|_| WRONG_ACK)?;
        if window.outstanding() == 0 {
            accounts.settling.remove(&id);
        }
        self.note_acked(id, acked);
        Ok(())
    }

    /// Remembers to tell the relay of totals.
    pub(super) fn note_acked(&mut self, id: ExecId, acked: Acked) {
        if let Some(accounts) = &mut self.accounts {
            accounts.acked.insert(id, acked);
        }
    }

    /// The client asks for an execution of the VM.
    pub(super) fn ask_adoption(&mut self, id: ExecId, of: ExecId) {
        let mut exec = Exec::new(&self.limits);
        // Until it is known to be open.
        exec.stdin_eof = true;
        self.execs.insert(id, exec);
        self.events.push_back(Event::Adopt { id, of });
    }

    /// The execution is handed over. It runs, if the answer has its process id; otherwise
    /// [`started`](Self::started) is to follow, or its end.
    pub fn adopted(&mut self, id: ExecId, mut adopted: Adopted) {
        if let Some(error) = &mut adopted.stdin_error {
            cut(&mut error.name);
            cut(&mut error.message);
        }
        self.update(id, |exec| {
            exec.stdin_eof = !adopted.stdin_open;
            exec.stdin_done = adopted.stdin_error.is_some();
            exec.adopted_due = Some(adopted);
        });
    }

    /// The execution goes on as `of` in the VM, with what the client has not acknowledged. Terminal.
    pub fn left(&mut self, id: ExecId, of: ExecId) {
        self.end(id, Terminal::Left(of));
    }

    /// The command was ended by a deadline of the VM's, `limit` after its admission. Terminal.
    pub fn timed_out(&mut self, id: ExecId, limit: Duration, status: ExitStatus) {
        self.end(id, Terminal::TimedOut(TimedOut { limit, status }));
    }
}

#[cfg(test)]
#[path = "relay_test.rs"]
mod tests;
