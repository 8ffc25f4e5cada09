//! How often clients can make the program log a warning: by connecting again and again, a faulty
//! one could otherwise do it without end.

use std::time::{Duration, Instant};

/// At most one warning in this time; the others are counted.
const PAUSE: Duration = Duration::from_secs(10);

/// Counts what is not logged.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    last: Option<Instant>,
    withheld: u64,
}

impl Complaints {
    /// Whether a warning may be logged at `now`; gives how many were not since the last one.
    pub(super) fn due(&mut self, now: Instant) -> Option<u64> {
        let too_soon = self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < PAUSE);
        if too_soon {
            self.withheld = self.withheld.saturating_add(1);
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.withheld))
    }
}

#[cfg(test)]
#[path = "complaints_test.rs"]
mod tests;
