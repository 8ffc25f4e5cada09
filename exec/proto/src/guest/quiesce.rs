//! Being quiesced and renewed: which of it the host has asked for, and what it may ask when.

use alloc::string::String;

use super::{Conn, Event, Reply};
use crate::PeerFault;
use crate::message::{Answer, Quiesce, Renew, cut};

/// What was asked and not answered, and what the last answers were.
#[derive(Debug, Clone, Default)]
pub(super) struct Rest {
    quiescing: Option<u64>,
    renewing: Option<u64>,
    frozen: bool,
}

impl Rest {
    /// Whether the host has to keep its requests.
    pub(super) fn holds_requests(&self) -> bool {
        self.quiescing.is_some() || self.frozen
    }
}

impl Conn {
    /// Answers [`Event::Quiesce`]: everything is frozen, or, with the reason, nothing is. Ignored if
    /// nothing was asked.
    pub fn quiesced(&mut self, outcome: Result<(), String>) {
        if let Some(seq) = self.rest.quiescing.take() {
            self.rest.frozen = outcome.is_ok();
            self.replies
                .push_back(Reply::Quiesced(answer(seq, outcome)));
            self.schedule_replies();
        }
    }

    /// Answers [`Event::Renew`]: nothing is frozen any more, or, with the reason, what was frozen
    /// still is. Ignored if nothing was asked.
    pub fn renewed(&mut self, outcome: Result<(), String>) {
        debug_assert!(self.rest.quiescing.is_none(), "answers come in order");
        if let Some(seq) = self.rest.renewing.take() {
            self.rest.frozen &= outcome.is_err();
            self.replies.push_back(Reply::Renewed(answer(seq, outcome)));
            self.schedule_replies();
        }
    }

    pub(super) fn ask_quiesce(&mut self, quiesce: Quiesce) -> Result<(), PeerFault> {
        let told = |reply: &Reply| !matches!(reply, Reply::Quiesced(_));
        if self.rest.holds_requests()
            || self.rest.renewing.is_some()
            || !self.replies.iter().all(told)
        {
            return Err(PeerFault("a quiesce of what is quiesced, or being renewed"));
        }
        self.rest.quiescing = Some(quiesce.seq);
        self.events.push_back(Event::Quiesce(quiesce));
        Ok(())
    }

    pub(super) fn ask_renew(&mut self, renew: Renew) -> Result<(), PeerFault> {
        let told = |reply: &Reply| !matches!(reply, Reply::Renewed(_));
        if self.rest.renewing.is_some() || !self.replies.iter().all(told) {
            return Err(PeerFault("a renewal before the last one was answered"));
        }
        self.rest.renewing = Some(renew.seq);
        self.events.push_back(Event::Renew(renew));
        Ok(())
    }
}

fn answer(seq: u64, outcome: Result<(), String>) -> Answer {
    let mut error = outcome.err();
    if let Some(error) = &mut error {
        cut(error);
    }
    Answer { seq, error }
}

#[cfg(test)]
#[path = "quiesce_test.rs"]
mod tests;
