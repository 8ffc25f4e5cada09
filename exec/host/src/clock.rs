//! The clock by which the protocol's connection keeps deadlines and measures how long executions
//! wait.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use forebay_exec_proto::host::Config;

/// `config` with the system's monotonic clock.
pub(crate) fn timed(config: Config) -> Config {
    Config {
        clock: now,
        ..config
    }
}

/// The time since the clock was looked at first.
pub(crate) fn now() -> Duration {
    first().elapsed()
}

/// What this clock's time is to the system; `None` if it is beyond what that can say.
pub(crate) fn instant(at: Duration) -> Option<Instant> {
    first().checked_add(at)
}

fn first() -> Instant {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    *FIRST.get_or_init(Instant::now)
}
