//! Whom an execution waits for, and for how long: one meter per direction.
//!
//! At each moment a direction waits for exactly one of three, until it is over:
//!
//! | waits for | output | stdin |
//! |---|---|---|
//! | the application | the allowance is used up by what it has not read (or, behind a relay, its client has not); after the end: until it has read the rest | there is room, and nothing is handed in |
//! | the link | the request has not left; or room was made, and the guest has not been told | the request has not left; or bytes, or the end, that may go have not left |
//! | the command | it may write and does, or does not; before `Started` the guest that starts it | the allowance is used up by bytes that it has not read; before `Started` the guest |
//!
//! So a direction's three times add up to its life: output's lasts from admission until the end
//! is known and all output was consumed, stdin's from admission until its end has left, or
//! nobody can read it any more. An execution without stdin has none.
//!
//! What the host cannot tell apart is the guest's part: output that lies in a pipe while the
//! agent is busy counts as the command's time.
//!
//! The clock is read only when a direction begins to wait for somebody else. A stream whose
//! reader keeps up waits for the command all the time, so it reads none.

use core::time::Duration;

use minicbor::{Decode, Encode};

use super::execution::{Exec, InputState, Phase};
use super::time::Time;
use crate::frame::CHUNK_CHARGE;

/// Least allowance with which a guest can send anything.
const LEAST: u64 = CHUNK_CHARGE as u64 + 1;

/// Whom a direction of an execution waits for; the [module](self) says when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Application,
    Link,
    Command,
}

impl Party {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Link => "link",
            Self::Command => "command",
        }
    }
}

/// How long one direction of an execution has waited for each of the three it can wait for. They
/// add up to the direction's life so far.
///
/// *Application* is the reader of output and the writer of stdin. *Command* is the writer of
/// output and the reader of stdin: a command that computes, or one that waits itself, has an
/// output that waits for it, which is nothing to worry about. The *link* is the way between host
/// and guest: a guest that does not take what is sent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct Stalls {
    /// Waited for the application.
    #[cbor(n(0), with = "micros")]
    pub application: Duration,
    /// Waited for the channel between host and guest.
    #[cbor(n(1), with = "micros")]
    pub link: Duration,
    /// Waited for the command, or the guest on its behalf.
    #[cbor(n(2), with = "micros")]
    pub command: Duration,
}

impl Stalls {
    /// The direction's life so far.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.application
            .saturating_add(self.link)
            .saturating_add(self.command)
    }
}

/// One direction's account.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Whom it waits for, and since when. `None` before its life and after.
    waiting: Option<(Party, Duration)>,
    spent: Stalls,
}

impl Meter {
    pub(super) fn party(&self) -> Option<Party> {
        self.waiting.map(|(party, _)| party)
    }

    /// An account that has this of an earlier one.
    pub(super) fn resumed(application: Duration) -> Self {
        Self {
            waiting: None,
            spent: Stalls {
                application,
                ..Stalls::default()
            },
        }
    }

    /// The account up to `now`.
    pub(super) fn read(&self, now: Duration) -> Stalls {
        let mut spent = self.spent;
        if let Some((party, since)) = self.waiting {
            let on = match party {
                Party::Application => &mut spent.application,
                Party::Link => &mut spent.link,
                Party::Command => &mut spent.command,
            };
            // A clock that goes back costs the account what it went back.
            *on = on.saturating_add(now.saturating_sub(since));
        }
        spent
    }

    fn set(&mut self, party: Option<Party>, time: Time) {
        if party != self.party() {
            let now = time.now();
            self.spent = self.read(now);
            self.waiting = party.map(|party| (party, now));
        }
    }
}

impl Exec {
    /// Books the time until now if a direction waits for somebody else than before. Due after
    /// everything that can change that.
    pub(super) fn observe(&mut self, time: Time) {
        let (output, stdin) = (self.output_waits_for(), self.stdin_waits_for());
        self.output_meter.set(output, time);
        self.stdin_meter.set(stdin, time);
    }

    pub(super) fn output_waits_for(&self) -> Option<Party> {
        match self.phase {
            Phase::Ended if self.drained() => None,
            Phase::Ended => Some(Party::Application),
            Phase::Requesting { .. } => Some(Party::Link),
            // Of one that broke a rule only the end is awaited.
            Phase::Started if self.condemned => Some(Party::Command),
            Phase::Started if self.window.available() < LEAST => Some(Party::Application),
            Phase::Started if self.window.promised() < LEAST => Some(Party::Link),
            Phase::Starting | Phase::Started => Some(Party::Command),
        }
    }

    pub(super) fn stdin_waits_for(&self) -> Option<Party> {
        let input = &self.input;
        match (&input.state, &self.phase) {
            (InputState::Closed | InputState::Broken(_), _) | (_, Phase::Ended) => None,
            (_, Phase::Requesting { .. }) => Some(Party::Link),
            _ if self.condemned => None,
            (_, Phase::Starting) => Some(Party::Command),
            (InputState::Closing, _) if input.pending.is_empty() => Some(Party::Link),
            // Also with nothing pending: a relay has no more than this allowance of its client's.
            _ if input.credit.available() == 0 => Some(Party::Command),
            (InputState::Open, _) if input.pending.is_empty() => Some(Party::Application),
            _ => Some(Party::Link),
        }
    }
}

/// A duration as whole microseconds.
mod micros {
    use core::time::Duration;

    use minicbor::decode::{Decoder, Error};
    use minicbor::encode::{self, Encoder, Write};

    pub(super) fn encode<C, W: Write>(
        time: &Duration,
        e: &mut Encoder<W>,
        _ctx: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))?;
        Ok(())
    }

    pub(super) fn decode<C>(d: &mut Decoder<'_>, _ctx: &mut C) -> Result<Duration, Error> {
        Ok(Duration::from_micros(d.u64()?))
    }
}
