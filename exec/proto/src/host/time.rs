//! The connection's time: a clock's, less all for which the guest stood still.
//!
//! Every moment that the connection keeps is one of this time, also those of what is asked for while
//! the guest stands still. So nothing has to be moved when it goes on.

use core::time::Duration;

use super::Conn;
use super::config::Clock;

/// What a connection counts by: [`Config::clock`](super::Config), less all for which it was
/// [held](Conn::hold_time).
#[derive(Debug, Clone, Copy)]
pub struct Time {
    clock: Clock,
    /// How far the clock is ahead.
    ahead: Duration,
    /// Where this time stands, if it does.
    held: Option<Duration>,
}

impl Time {
    pub(super) fn by(clock: Clock) -> Self {
        Self {
            clock,
            ahead: Duration::ZERO,
            held: None,
        }
    }

    /// What it is now. While it stands still the clock is not looked at.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.held.unwrap_or_else(|| self.at((self.clock)()))
    }

    /// What it is when the clock shows this.
    #[must_use]
    pub fn at(&self, clock: Duration) -> Duration {
        self.held
            .unwrap_or_else(|| clock.saturating_sub(self.ahead))
    }

    /// What the clock shows at this moment; `None` while it cannot be told, since time stands still.
    #[must_use]
    pub fn on_clock(&self, at: Duration) -> Option<Duration> {
        match self.held {
            Some(_) => None,
            None => Some(at.saturating_add(self.ahead)),
        }
    }

    /// Whether it stands still.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    fn hold(&mut self) {
        self.held = Some(self.now());
    }

    fn release(&mut self) {
        if let Some(stood_at) = self.held.take() {
            self.ahead = (self.clock)().saturating_sub(stood_at);
        }
    }
}

impl Conn {
    /// By what the connection's deadlines and waits are counted.
    #[must_use]
    pub fn time(&self) -> Time {
        self.time
    }

    /// The guest stands still, which is nobody's time: what executions have left of theirs, and how
    /// long they have waited, stays as it is until [`release_time`](Self::release_time). Doing it
    /// again is fine.
    ///
    /// No notice is held back meanwhile: what a reader was to be told with is not to come.
    pub fn hold_time(&mut self) {
        self.time.hold();
        self.notice_held_back();
    }

    /// The guest goes on. Ask for the [next deadline](Self::next_deadline), which there was none of
    /// meanwhile.
    pub fn release_time(&mut self) {
        self.time.release();
    }
}
