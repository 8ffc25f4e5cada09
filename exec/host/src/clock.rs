//! The clock by which the protocol's connection measures how long executions wait.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use forebay_exec_proto::host::Config;

/// `config` with the system's monotonic clock.
pub(crate) fn timed(config: Config) -> Config {
    Config {
        clock: since_first,
        ..config
    }
}

/// The time since this was called first.
fn since_first() -> Duration {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}
