//! Where figures should be, and whether they are.

use forebay_tests::in_rig;

use crate::bench::Clock;
use crate::bench::table::Table;

/// The figures that have an aim, in the order in which they were taken.
pub(super) struct Aims {
    /// Ratios of times that only work can tell, in a place where wall clock is the emulator's.
    tells_growth: bool,
    /// Times in ms of the rig.
    tells_time: bool,
    table: Table,
}

impl Aims {
    pub(super) fn new(clock: Clock) -> Self {
        Self::of(clock, in_rig())
    }

    fn of(clock: Clock, emulated: bool) -> Self {
        let by_wall = clock == Clock::Wall;
        Self {
            tells_growth: !by_wall || !emulated,
            tells_time: by_wall && emulated,
            table: Table::new(
                "snapshot_aims",
                "Where figures should be, as far as this clock tells it here. Those in ms are of the \
                 emulated host, by its wall clock, where another monitor took 1307 ms for a full \
                 snapshot of 128 MiB, and at best 94 to 208 ms from its start to the first activity of \
                 a guest that it restored (an idle host; Firecracker 1.16).",
                &["figure", "found", "at most", ""],
            ),
        }
    }

    /// By how much a time grows with something that should not matter.
    pub(super) fn growth(&mut self, what: String, found: f64, at_most: f64) {
        if self.tells_growth {
            self.row(what, found, at_most);
        }
    }

    /// A time in milliseconds of the rig.
    pub(super) fn time(&mut self, what: String, found: f64, at_most: f64) {
        if self.tells_time {
            self.row(what, found, at_most);
        }
    }

    fn row(&mut self, what: String, found: f64, at_most: f64) {
        let met = if found <= at_most { "met" } else { "not met" };
        self.table
            .row([what.into(), found.into(), at_most.into(), met.into()]);
    }

    pub(super) fn table(self) -> Table {
        self.table
    }
}

#[cfg(test)]
#[path = "aims_test.rs"]
mod tests;
