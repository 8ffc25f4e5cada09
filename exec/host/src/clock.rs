//! The clocks of the protocol's connection: one by which it keeps deadlines and measures how long
//! executions wait, and the wall clock that it tells the guest.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_exec_proto::host::Config;

/// `config` with the system's clocks.
pub(crate) fn timed(config: Config) -> Config {
    Config {
        clock: now,
        wall,
        ..config
    }
}

/// The time since the clock was looked at first.
#[cfg(not(test))]
pub(crate) fn now() -> Duration {
    first().elapsed()
}

#[cfg(test)]
pub(crate) use moved::{advance, now};

/// The wall clock, since 1970.
pub(crate) fn wall() -> Duration {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    wall.unwrap_or_default()
}

/// What the monotonic clock's time is to the system; `None` if it is beyond what that can say.
pub(crate) fn instant(at: Duration) -> Option<Instant> {
    first().checked_add(at)
}

fn first() -> Instant {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    *FIRST.get_or_init(Instant::now)
}

/// The clock of a test, which moves it by hand.
#[cfg(test)]
mod moved {
    use std::cell::Cell;
    use std::time::Duration;

    std::thread_local! {
        static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(crate) fn now() -> Duration {
        super::first().elapsed() + AHEAD.get()
    }

    /// So much time passes for this thread.
    pub(crate) fn advance(by: Duration) {
        AHEAD.set(AHEAD.get() + by);
    }
}
