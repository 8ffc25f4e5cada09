//! Bringing the guest to rest for a snapshot, and on again: who waits for what of it, and for how
//! long.
//!
//! What may be asked when is the protocol's business ([`Conn::quiesce`] and its like). Here are the
//! futures of whoever asked. Their time is kept as executions' deadlines are, by [`Hub::expire`], so
//! they end when nobody but the VM's own thread runs.

use std::time::Duration;

use forebay_exec_proto::Renewal;
use forebay_exec_proto::host::{Conn, QuiesceError as Refused};

use super::{Hub, Inner};
use crate::error::{QuiesceError, RenewError};

/// A quiesce that is done, for [`Hub::thaw`] to end it and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuiesceTicket(u64);

/// How much longer than the agent's own limit its answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How a question to the guest as a whole ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The guest says why not.
    Failed(String),
    /// It has said nothing in time.
    Late,
    /// The connection ended first.
    Lost,
}

/// A question that somebody waits for.
#[derive(Debug)]
struct Wait {
    seq: u64,
    /// By the connection's time, as all of this module.
    until: Duration,
    outcome: Option<Outcome>,
}

/// The last question of each kind that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Waits {
    quiesce: Option<Wait>,
    renew: Option<Wait>,
}

/// One of the two kinds of question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    Quiesce,
    Renew,
}

impl Waits {
    fn of(&mut self, question: Question) -> &mut Option<Wait> {
        match question {
            Question::Quiesce => &mut self.quiesce,
            Question::Renew => &mut self.renew,
        }
    }

    fn begin(&mut self, question: Question, seq: u64, now: Duration, limit: Duration) {
        *self.of(question) = Some(Wait {
            seq,
            until: now.saturating_add(limit).saturating_add(ANSWER_WITHIN),
            outcome: None,
        });
    }

    /// The outcome of a question, for whoever asked it. One that was asked again since is over.
    fn outcome(&mut self, question: Question, seq: u64) -> Option<Outcome> {
        match self.of(question) {
            Some(wait) if wait.seq == seq => wait.outcome.clone(),
            _ => Some(Outcome::Failed(
                "the guest was let go on meanwhile".to_owned(),
            )),
        }
    }

    /// The guest has answered. Gives `false` if nobody waits for that.
    pub(super) fn answered(&mut self, question: Question, seq: u64, error: Option<String>) -> bool {
        let Some(wait) = self.of(question).as_mut().filter(|wait| wait.seq == seq) else {
            return false;
        };
        let outcome = error.map_or(Outcome::Done, Outcome::Failed);
        wait.outcome.get_or_insert(outcome);
        true
    }

    /// The connection has ended.
    pub(super) fn lost(&mut self) {
        for wait in [&mut self.quiesce, &mut self.renew].into_iter().flatten() {
            wait.outcome.get_or_insert(Outcome::Lost);
        }
    }

    /// When [`expire`](Self::expire) has something to do next.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let waits = [&self.quiesce, &self.renew].into_iter().flatten();
        let open = waits.filter(|wait| wait.outcome.is_none());
        open.map(|wait| wait.until).min()
    }

    /// Gives up what has had its time. Whether there was any.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let mut late = false;
        for wait in [&mut self.quiesce, &mut self.renew].into_iter().flatten() {
            if wait.outcome.is_none() && wait.until <= now {
                wait.outcome = Some(Outcome::Late);
                late = true;
            }
        }
        late
    }
}

impl Inner {
    fn ask(
        &mut self,
        question: Question,
        limit: Duration,
        ask: impl FnOnce(&mut Conn) -> Result<u64, Refused>,
    ) -> Result<u64, Refused> {
        let seq = ask(&mut self.conn)?;
        let now = self.conn.time().now();
        self.waits.begin(question, seq, now, limit);
        Ok(seq)
    }

    /// Lets the guest go on, unless the quiesce of this number is over and another one was asked
    /// for since.
    fn thaw(&mut self, seq: u64) {
        let last = self.waits.quiesce.as_ref();
        if last.is_some_and(|wait| wait.seq == seq) {
            self.conn.thaw();
        }
    }
}

impl Hub {
    /// Has the agent freeze everything that executions run, so that a copy of the guest can be made
    /// whose programs do not run before the copy was [renewed](Self::renew). Ready when all of it
    /// stands still. `limit` is how long the agent may try, by the guest's clock.
    ///
    /// While the guest is quiesced, nothing new starts: an execution that is asked for is admitted,
    /// its deadline runs, and it starts at the thaw. Kills kill. Signals and stdin are taken and
    /// have their effect at the thaw. What the commands had written is read on.
    ///
    /// The guest stays quiesced until [`thaw`](Self::thaw), with the ticket that this gives, or
    /// `renew`. A failure leaves nothing frozen, unless its reason says that the guest could not let go
    /// on what had stopped; a dropped future thaws, and a dropped ticket does nothing.
    ///
    /// # Errors
    /// See [`QuiesceError`].
    pub async fn quiesce(&self, limit: Duration) -> Result<QuiesceTicket, QuiesceError> {
        let asked = self.step(|inner| {
            inner
                .ask(Question::Quiesce, limit, |conn| conn.quiesce(limit))
                .map_err(|refused| match refused {
                    Refused::Busy => QuiesceError::Busy,
                    Refused::Closed => QuiesceError::VmGone {
                        reason: inner.gone_reason(),
                    },
                    Refused::Relayed => QuiesceError::Attached,
                    _ => QuiesceError::Unsupported,
                })
        });
        let seq = asked?;
        let mut thaw = ThawOnDrop {
            hub: self,
            seq: Some(seq),
        };
        match self.outcome(Question::Quiesce, seq).await {
            Outcome::Done => {
                thaw.seq = None;
                Ok(QuiesceTicket(seq))
            }
            Outcome::Failed(reason) => Err(QuiesceError::Failed { reason }),
            Outcome::Late => Err(QuiesceError::TimedOut { limit }),
            Outcome::Lost => Err(QuiesceError::VmGone {
                reason: self.lock().gone_reason(),
            }),
        }
    }

    /// Lets the guest that was quiesced go on as the one that it was, with its clock set by this
    /// host's. Returns at once; what was held back starts when the agent has confirmed it. A later
    /// [`quiesce`](Self::quiesce) waits for that by itself. Does nothing if something else has ended
    /// that quiesce, whether or not another one was asked for since.
    ///
    /// A guest that was copied, and a copy, should not both go on like this: their programs would
    /// draw the same random numbers. See [`renew`](Self::renew).
    pub fn thaw(&self, ticket: QuiesceTicket) {
        self.step(|inner| inner.thaw(ticket.0));
    }

    /// Makes a copy of a guest another one: its kernel gets fresh entropy and its clock is set by
    /// this host's, `/run/generation` names the copy, the hostname changes if there is a new one;
    /// then what was frozen goes on. Ready when all of it is done. `limit` is how long that may take
    /// by this process's clock, give or take two seconds.
    ///
    /// Whoever restores the guest calls this when it runs, and hands out clients afterwards: the
    /// hub itself admits executions before, which may then see the old state. The time is that at which the
    /// question leaves, so it may be asked while the guest stands still.
    ///
    /// Dropping the future does not take it back.
    ///
    /// # Errors
    /// See [`RenewError`]. After any of them that came from the guest what was frozen still is, and
    /// the call may be repeated.
    pub async fn renew(&self, renewal: Renewal, limit: Duration) -> Result<(), RenewError> {
        let asked = self.step(|inner| {
            inner
                .ask(Question::Renew, limit, |conn| conn.renew(renewal))
                .map_err(|refused| match refused {
                    Refused::Busy => RenewError::Busy,
                    Refused::Closed => RenewError::VmGone {
                        reason: inner.gone_reason(),
                    },
                    Refused::Unsupported => RenewError::Unsupported,
                    Refused::Relayed => RenewError::Attached,
                    why => RenewError::Hostname {
                        why: why.to_string(),
                    },
                })
        });
        match self.outcome(Question::Renew, asked?).await {
            Outcome::Done => Ok(()),
            Outcome::Failed(reason) => Err(RenewError::Failed { reason }),
            Outcome::Late => Err(RenewError::TimedOut { limit }),
            Outcome::Lost => Err(RenewError::VmGone {
                reason: self.lock().gone_reason(),
            }),
        }
    }

    /// Whether the agent has confirmed a [`quiesce`](Self::quiesce) and not yet that it is over.
    #[must_use]
    pub fn is_quiesced(&self) -> bool {
        self.lock().conn.is_frozen()
    }

    /// Ready when nothing is quiesced any more: the agent has confirmed a [`thaw`](Self::thaw) or a
    /// [`renew`](Self::renew), or its connection ended.
    pub async fn thawed(&self) {
        loop {
            // Registered before looking, so that nothing in between is missed.
            let notified = self.rest.notified();
            if !self.is_quiesced() {
                return;
            }
            notified.await;
        }
    }

    async fn outcome(&self, question: Question, seq: u64) -> Outcome {
        loop {
            // Registered before looking, so that nothing in between is missed.
            let notified = self.rest.notified();
            if let Some(outcome) = self.lock().waits.outcome(question, seq) {
                return outcome;
            }
            notified.await;
        }
    }
}

/// Lets the guest go on unless the quiesce of this number is done and whoever asked has it.
struct ThawOnDrop<'a> {
    hub: &'a Hub,
    seq: Option<u64>,
}

impl Drop for ThawOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(seq) = self.seq {
            self.hub.step(|inner| inner.thaw(seq));
        }
    }
}

#[cfg(test)]
#[path = "quiesce_test.rs"]
mod tests;
