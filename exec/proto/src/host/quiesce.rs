//! The guest at rest: its executions frozen for a snapshot, and what it is told before they go on.
//!
//! ```text
//!            quiesce            Quiesced
//!  running ───────────► asked ───────────► frozen ── a snapshot may be taken: it is safe to copy
//!     ▲ ▲                 │ error, thaw       │
//!     │ └─────────────────┘                   │ renew, thaw
//!     └───────────────── Renewed ─────────────┘   an error leaves it frozen
//! ```
//!
//! Two marks, not queued controls: a quiesce and a renewal may be under way at a time, one of each.
//! The agent answers in the order in which it was asked. A quiesce that is asked for while a
//! renewal is under way leaves when that is answered, and a renewal that overtakes the answer to a
//! quiesce ends it.
//!
//! From the moment at which the question has left, and while the guest is frozen, requests stay
//! here: what would be started would stand still. An execution that is admitted then holds its
//! slot, its deadline counts, and it starts when the guest goes on. All else goes on: what the pipes
//! hold is read, stdin is taken, signals are delivered when their process may run again, and kills
//! kill: those that were asked for leave before a renewal does.

use alloc::string::String;
use core::fmt;
use core::time::Duration;

use super::execution::Exec;
use super::transmit::frame;
use super::{Config, ConfigError, Conn, Frame, Notice};
use crate::frame::{FromGuest, ToGuest};
use crate::message::{Answer, QUIESCE, Quiesce, Renew, Renewal, cut, decode, encode};

/// Longest hostname that Linux takes, in bytes.
const HOSTNAME_MAX: usize = 64;

/// A quiesce or a renewal that was not asked for. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuiesceError {
    /// The agent does not announce [`QUIESCE`].
    Unsupported,
    /// The other end is a relay, whose program alone may do this.
    Relayed,
    /// The guest is quiesced, or is being quiesced, or renewed, already.
    Busy,
    /// The connection is not up.
    Closed,
    /// The new hostname is empty or longer than 64 bytes.
    Hostname,
    /// The new hostname does not fit beside the VM's environment.
    Config(ConfigError),
}

impl fmt::Display for QuiesceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => write!(
                f,
                "the guest's agent does not have the capability {QUIESCE:?}; rebuild the guest image"
            ),
            Self::Relayed => f.write_str("this end faces a relay; ask the program that has the VM"),
            Self::Busy => f.write_str("the guest is being quiesced or renewed already"),
            Self::Closed => f.write_str("the agent's connection is not up"),
            Self::Hostname => f.write_str("a hostname has 1 to 64 bytes"),
            Self::Config(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for QuiesceError {}

/// What has been asked and answered.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// The number of the last question.
    asked: u64,
    /// A quiesce that has not left.
    quiesce_due: Option<Quiesce>,
    /// One that has, without an answer.
    quiescing: Option<u64>,
    /// A renewal that has not left; a thaw makes nothing new.
    renew_due: Option<(u64, Option<Renewal>)>,
    /// One that has, without an answer, and the hostname that it brings.
    renewing: Option<(u64, Option<String>)>,
    /// The agent said that everything is frozen, and nothing since.
    frozen: bool,
    quiesced: Option<(u64, Option<String>)>,
    renewed: Option<(u64, Option<String>)>,
}

impl Rest {
    /// As it was saved.
    pub(super) fn resumed(asked: u64, frozen: bool) -> Self {
        Self {
            asked,
            frozen,
            ..Self::default()
        }
    }

    /// What is saved: the last number, and whether the guest is frozen. `None` while a question is
    /// under way, since a copy would have nobody who asked it.
    pub(super) fn settled(&self) -> Option<(u64, bool)> {
        let settled = self.quiesce_due.is_none() && self.quiescing.is_none() && !self.renews();
        settled.then_some((self.asked, self.frozen))
    }

    /// The connection ended, and its questions with it. The agent kills what it had frozen.
    pub(super) fn end(&mut self) {
        *self = Self {
            asked: self.asked,
            ..Self::default()
        };
    }

    /// Whether what would start now would stand still.
    pub(super) fn holds_requests(&self) -> bool {
        self.quiescing.is_some() || self.frozen
    }

    pub(super) fn wants_transmit(&self) -> bool {
        self.renew_due.is_some() || (self.quiesce_due.is_some() && self.renewing.is_none())
    }

    /// Whether an answer of this kind is owed, and is the next.
    pub(super) fn awaits(&self, kind: FromGuest) -> bool {
        match kind {
            FromGuest::Quiesced => self.quiescing.is_some(),
            FromGuest::Renewed => self.quiescing.is_none() && self.renewing.is_some(),
            _ => false,
        }
    }

    pub(super) fn has_notice(&self) -> bool {
        self.quiesced.is_some() || self.renewed.is_some()
    }

    pub(super) fn take_notice(&mut self) -> Option<Notice> {
        let quiesced = self.quiesced.take();
        if let Some((seq, error)) = quiesced {
            return Some(Notice::Quiesced { seq, error });
        }
        let (seq, error) = self.renewed.take()?;
        Some(Notice::Renewed { seq, error })
    }

    /// Whether a renewal is under way.
    fn renews(&self) -> bool {
        self.renew_due.is_some() || self.renewing.is_some()
    }

    fn next(&mut self) -> u64 {
        self.asked = self.asked.wrapping_add(1);
        self.asked
    }

    fn renew(&mut self, renewal: Option<Renewal>) -> u64 {
        let seq = self.next();
        self.renew_due = Some((seq, renewal));
        seq
    }

    /// A quiesce that has not left does not leave any more.
    fn withdraw(&mut self, why: &str) {
        if let Some(quiesce) = self.quiesce_due.take() {
            self.quiesced = Some((quiesce.seq, Some(String::from(why))));
        }
    }
}

impl Conn {
    /// Asks the agent to freeze every execution, within `limit` of guest time, whole milliseconds.
    /// Gives the number by which [`Notice::Quiesced`] tells how that went; if it failed, nothing is
    /// frozen.
    ///
    /// # Errors
    /// See [`QuiesceError`]. Not busy is a guest whose renewal is under way: the question leaves
    /// when that is answered.
    pub fn quiesce(&mut self, limit: Duration) -> Result<u64, QuiesceError> {
        self.check_rest()?;
        let rest = &mut self.rest;
        if rest.quiesce_due.is_some() || (rest.holds_requests() && !rest.renews()) {
            return Err(QuiesceError::Busy);
        }
        let seq = rest.next();
        rest.quiesce_due = Some(Quiesce {
            seq,
            limit_ms: u32::try_from(limit.as_millis()).unwrap_or(u32::MAX),
        });
        Ok(seq)
    }

    /// Makes the guest another one: gives it this entropy, generation and hostname, and the time by
    /// [`Config::wall`] when the question leaves; then what was frozen goes on. For a copy of a
    /// guest, before anything is started in it. Gives the number by which [`Notice::Renewed`] tells how that went;
    /// if it failed, what was frozen still is.
    ///
    /// # Errors
    /// See [`QuiesceError`].
    pub fn renew(&mut self, renewal: Renewal) -> Result<u64, QuiesceError> {
        self.check_rest()?;
        if self.rest.renews() {
            return Err(QuiesceError::Busy);
        }
        if let Some(hostname) = &renewal.hostname {
            if !(1..=HOSTNAME_MAX).contains(&hostname.len()) {
                return Err(QuiesceError::Hostname);
            }
            // It begins every later connection.
            let config = Config {
                hostname: Some(hostname.clone()),
                ..self.config.clone()
            };
            config.validate().map_err(QuiesceError::Config)?;
        }
        Ok(self.rest.renew(Some(renewal)))
    }

    /// Lets a guest that was quiesced, or is being so, go on as the one that it was, with its clock
    /// set as by [`renew`](Self::renew). Gives the number by which [`Notice::Renewed`] tells how that went;
    /// `None` if there is nothing to do or a renewal is under way, which does the same.
    pub fn thaw(&mut self) -> Option<u64> {
        self.rest
            .withdraw("the guest was let go on before it was asked");
        let due = self.rest.holds_requests() && !self.rest.renews();
        due.then(|| self.rest.renew(None))
    }

    /// Whether the agent has said that every execution is frozen, and none goes on yet.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.rest.frozen
    }

    fn check_rest(&self) -> Result<(), QuiesceError> {
        if !self.is_ready() {
            return Err(QuiesceError::Closed);
        }
        if self.relayed {
            return Err(QuiesceError::Relayed);
        }
        let able = self.agent.as_ref().is_some_and(|ready| ready.can(QUIESCE));
        if !able {
            return Err(QuiesceError::Unsupported);
        }
        Ok(())
    }

    /// The question that is due.
    pub(super) fn build_rest(&mut self) -> Option<Frame> {
        // What is to be killed is killed where it stands: none of it may go on before.
        if self.rest.renew_due.is_some() && self.execs.values().any(Exec::kill_ready) {
            return None;
        }
        let rest = &mut self.rest;
        if let Some((seq, renewal)) = rest.renew_due.take() {
            let hostname = renewal.as_ref().and_then(|new| new.hostname.clone());
            rest.renewing = Some((seq, hostname));
            // Read now: the question may have waited for a guest that stood still.
            let wall = (self.config.wall)();
            let renew = Renew {
                seq,
                wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
                renewal,
            };
            return Some(frame(ToGuest::Renew, None, encode(&renew)));
        }
        if rest.renewing.is_some() {
            return None;
        }
        let quiesce = rest.quiesce_due.take()?;
        rest.quiescing = Some(quiesce.seq);
        Some(frame(ToGuest::Quiesce, None, encode(&quiesce)))
    }

    pub(super) fn take_quiesced(&mut self, payload: &[u8]) -> Result<(), &'static str> {
        let Answer { seq, error } = answer(payload)?;
        if self.rest.quiescing.take() != Some(seq) {
            return Err("an answer to another question");
        }
        self.rest.frozen = error.is_none();
        let error = match error {
            None if self.rest.renews() => Some(String::from("the guest was let go on meanwhile")),
            told => told,
        };
        self.rest.quiesced = Some((seq, error));
        self.schedule_request();
        Ok(())
    }

    pub(super) fn take_renewed(&mut self, payload: &[u8]) -> Result<(), &'static str> {
        let Answer { seq, error } = answer(payload)?;
        let Some((_, hostname)) = self.rest.renewing.take_if(|(asked, _)| *asked == seq) else {
            return Err("an answer to another question");
        };
        if error.is_none() {
            self.rest.frozen = false;
            if hostname.is_some() {
                self.config.hostname = hostname;
            }
        } else if self.rest.frozen {
            self.rest
                .withdraw("the guest could not be let go on before");
        }
        self.rest.renewed = Some((seq, error));
        self.schedule_request();
        Ok(())
    }
}

fn answer(payload: &[u8]) -> Result<Answer, &'static str> {
    let mut answer: Answer = decode(payload).ok_or("an answer cannot be decoded")?;
    if let Some(error) = &mut answer.error {
        cut(error);
    }
    Ok(answer)
}
