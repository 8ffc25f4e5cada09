//! How long an execution may take: one deadline each, kept by the connection.
//!
//! ```text
//!  start ──────────── limit ───────────► Running ──at──► Expired ──at + 5 s──► Unconfirmed
//!                                           │               │ kill, once started    │
//!                                           └──── the end, whenever it comes ───────┘
//! ```
//!
//! A deadline is counted from the admission. What has had its time is killed as a whole, by the
//! same mark as any kill, but never before `Started`: until then there is nothing to kill, and a
//! command that does start is killed then. One of which no byte was sent is not sent any more.
//!
//! How it ended is decided when its exit comes, which may be long after the end if output is read
//! late. It is [`Terminal::TimedOut`] if all of this holds, else the exit that it is:
//!
//! * the deadline had expired by then, and SIGKILL was the end;
//! * no kill was wanted when it expired: one that came before has the command for its own;
//! * by the guest's clock the command did not end clearly before: it ran for no less than what was
//!   left of its time when its start was known, give or take [what clocks differ](differ). So one
//!   that the kernel killed for want of memory, or that killed itself, has not timed out. A guest
//!   that gives no duration, which is one of zero, is not asked.
//!
//! So a command that ends by itself at about its deadline has either a plain exit or a timeout,
//! never both and never none.
//!
//! The guest has [`CONFIRM_WITHIN`] to confirm the end, from the expiry or from a start that comes
//! after it, not counting the time for which output waits for the application: what the pipes hold
//! comes before the end, and a reader that is slow, or not polled, is no sign that a command lives.
//! More output than a dead command can have left is one, and excuses nothing. After that whoever
//! waits may be told that the end is [unconfirmed](Conn::unconfirmed); the slot stays held, and an
//! end that comes later counts as it would have before.
//!
//! A clock is read at the admission and at the start, and where a notice is first
//! [held back](super::coalesce), which has its time here as well. Whoever drives the connection asks
//! for the [next deadline](Conn::next_deadline) after anything that may have changed it, and calls
//! [`Conn::expire`] then.

use alloc::string::String;
use core::time::Duration;

use super::execution::{Exec, Phase};
use super::stall::Party;
use super::{Conn, Terminal, what};
use crate::id::ExecId;
use crate::message::{ExitStatus, Failure, FailureKind};

/// The longest time that an execution may be given: 292 000 years, so that no clock overflows.
pub const TIMEOUT_MAX: Duration = Duration::from_micros(i64::MAX as u64);

/// How long the guest has to confirm the end of an execution that was killed by its deadline.
pub const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

/// The stage at which an execution failed whose time was over before anything of it was sent.
pub const TIMEOUT_STAGE: &str = "timeout";

/// How long after a look that found output waiting for the application the next one is, at least.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Bytes that the pipes of a dead command can have held: two of the largest that Linux makes for
/// those without privileges.
pub(crate) const PIPES_HOLD: u64 = 2 << 20;

const SIGKILL: u32 = 9;

/// An execution's deadline, until it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deadline {
    /// What it was given, counted from its admission.
    pub(super) limit: Duration,
    pub(super) stage: Stage,
    /// What was left of that when its start was known; `None` if it did not start in time.
    pub(super) left: Option<Duration>,
    /// It was being killed for another reason when its time was over.
    pub(super) killed: bool,
}

/// How far a deadline has got, by the connection's [`Time`](super::Time).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It expires then.
    Running { at: Duration },
    /// It has expired; without an end by then it is unconfirmed.
    Expired {
        until: Duration,
        /// How long output had waited for the application by when this was set.
        waited: Duration,
        /// Bytes of output that had come by the expiry.
        received: u64,
    },
    /// The end was not confirmed in time.
    Unconfirmed,
}

impl Deadline {
    /// One that has just begun; `None` if the clock ends before it.
    pub(super) fn begin(limit: Duration, now: Duration) -> Option<Self> {
        Some(Self {
            limit,
            stage: Stage::Running {
                at: now.checked_add(limit)?,
            },
            left: None,
            killed: false,
        })
    }

    /// When it is to be looked at next.
    pub(super) fn next(&self) -> Option<Duration> {
        match self.stage {
            Stage::Running { at } => Some(at),
            Stage::Expired { until, .. } => Some(until),
            Stage::Unconfirmed => None,
        }
    }

    pub(super) fn expired(&self) -> bool {
        !matches!(self.stage, Stage::Running { .. })
    }

    /// Whether it is what ended a command that ended like this.
    fn was_the_end(&self, status: &ExitStatus) -> bool {
        let ran = Duration::from_micros(status.duration_us);
        let before = self
            .left
            .is_some_and(|left| !ran.is_zero() && ran.saturating_add(differ(left)) < left);
        self.expired() && status.signal == Some(SIGKILL) && !self.killed && !before
    }
}

impl Conn {
    /// When [`expire`](Self::expire) has something to do next, by [`Config::clock`](super::Config).
    /// `None` while [time is held](Self::hold_time).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let next = match (deadline, self.coalesced_until()) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other)?,
        };
        self.time.on_clock(next)
    }

    /// Kills what has had its time by `now` of the same clock, and gives notice of what should have
    /// ended since, and of output of which notice was held back.
    pub fn expire(&mut self, now: Duration) {
        let now = self.time.at(now);
        if self.coalesced_until().is_some_and(|at| at <= now) {
            self.notice_held_back();
        }
        while let Some((at, id)) = self.deadlines.first().copied()
            && at <= now
        {
            self.deadlines.pop_first();
            self.pass(id, now);
        }
    }

    /// The execution's time was over [`CONFIRM_WITHIN`] ago or more, not counting the time for which
    /// its output has waited for the application since, and its end is not known. Gives how long it
    /// was allowed.
    #[must_use]
    pub fn unconfirmed(&self, id: ExecId) -> Option<Duration> {
        let deadline = self.execs.get(&id)?.deadline?;
        (deadline.stage == Stage::Unconfirmed).then_some(deadline.limit)
    }

    /// The next thing that `id` was to be looked at for has come.
    fn pass(&mut self, id: ExecId, now: Duration) {
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        let Some(mut deadline) = exec.deadline else {
            return;
        };
        let spent = exec.output_meter.read(now).application;
        let (until, received) = match deadline.stage {
            Stage::Running { .. } => {
                if matches!(exec.phase, Phase::Requesting { begun: false, .. }) {
                    self.finish(id, Terminal::Failed(unsent(deadline.limit)));
                    return;
                }
                deadline.killed = exec.killed();
                // From when it is killed, which a driver that was held up does late.
                (Some(now.saturating_add(CONFIRM_WITHIN)), exec.received())
            }
            Stage::Expired {
                until,
                waited,
                received,
            } => {
                let since = exec.received().saturating_sub(received);
                let dead = u64::from(self.config.limits.output_limit).saturating_add(PIPES_HOLD);
                let excused = until.saturating_add(spent.saturating_sub(waited));
                let until = if since > dead {
                    None
                } else if excused > now {
                    Some(excused.min(now.saturating_add(CONFIRM_WITHIN)))
                } else if exec.output_meter.party() == Some(Party::Application) {
                    Some(now.saturating_add(AGAIN_AFTER))
                } else {
                    None
                };
                (until, received)
            }
            Stage::Unconfirmed => return,
        };
        deadline.stage = match until {
            Some(until) => Stage::Expired {
                until,
                waited: spent,
                received,
            },
            None => Stage::Unconfirmed,
        };
        exec.deadline = Some(deadline);
        match until {
            Some(until) => {
                self.deadlines.insert((until, id));
                self.kill_expired(id);
            }
            None => self.notice(id, what::UNCONFIRMED),
        }
    }

    /// The program runs. One that comes too late is killed, and has as long to end as any.
    pub(super) fn started_by(&mut self, id: ExecId) {
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        let Some(deadline) = &mut exec.deadline else {
            return;
        };
        let now = self.time.now();
        match &mut deadline.stage {
            Stage::Running { at } => deadline.left = Some(at.saturating_sub(now)),
            Stage::Expired { until, waited, .. } => {
                self.deadlines.remove(&(*until, id));
                *until = now.saturating_add(CONFIRM_WITHIN);
                *waited = exec.output_meter.read(now).application;
                self.deadlines.insert((*until, id));
            }
            Stage::Unconfirmed => {}
        }
        self.kill_expired(id);
    }

    /// Kills an execution that runs and whose deadline has expired.
    fn kill_expired(&mut self, id: ExecId) {
        let Some(exec) = self.execs.get_mut(&id) else {
            return;
        };
        let expired = exec.deadline.is_some_and(|deadline| deadline.expired());
        if expired && matches!(exec.phase, Phase::Started) && !exec.kill_sent {
            self.mark_killed(id);
        }
    }

    /// The application knows, or is about to be told, how the execution ended.
    pub(super) fn stop_deadline(&mut self, id: ExecId) {
        let deadline = self
            .execs
            .get_mut(&id)
            .and_then(|exec| exec.deadline.take());
        if let Some(at) = deadline.and_then(|deadline| deadline.next()) {
            self.deadlines.remove(&(at, id));
        }
    }
}

impl Exec {
    /// What an exit that the guest reports now is to whoever waits for it.
    pub(super) fn exited(&self, status: ExitStatus) -> Terminal {
        match self.deadline {
            Some(deadline) if deadline.was_the_end(&status) => Terminal::TimedOut {
                status,
                limit: deadline.limit,
            },
            _ => Terminal::Exited(status),
        }
    }

    /// Bytes of output that have come.
    pub(super) fn received(&self) -> u64 {
        self.stdout.received.saturating_add(self.stderr.received)
    }
}

/// What a guest's clock may differ from the host's over this time: by what it takes to see a start
/// and an end, and by 0.1 %, which is beyond what clocks are corrected by.
fn differ(time: Duration) -> Duration {
    let thousandth = time.checked_div(1000).unwrap_or_default();
    Duration::from_millis(100).saturating_add(thousandth)
}

/// Whether an execution may be given this time.
pub(super) fn is_limit(limit: Duration) -> bool {
    (Duration::from_nanos(1)..=TIMEOUT_MAX).contains(&limit)
}

/// Why a program of which the guest has never heard never ran.
fn unsent(limit: Duration) -> Failure {
    Failure {
        kind: FailureKind::Other,
        errno: None,
        stage: String::from(TIMEOUT_STAGE),
        message: alloc::format!(
            "its timeout of {limit:?} was over before the guest took its request"
        ),
    }
}
