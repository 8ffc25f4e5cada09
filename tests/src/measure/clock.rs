//! How time passes.

use serde::{Deserialize, Serialize};

use crate::pace::in_rig;

/// How time passes where we run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// As everywhere.
    Wall,
    /// One nanosecond per instruction that the emulated host and its guests execute.
    Instructions,
}

impl Clock {
    /// The unit of times.
    pub fn milliseconds(self) -> &'static str {
        match self {
            Self::Wall => "ms",
            Self::Instructions => "virtual ms",
        }
    }

    /// What rates are per.
    pub fn second(self) -> &'static str {
        match self {
            Self::Wall => "second",
            Self::Instructions => "virtual second",
        }
    }

    /// What must be known to read figures taken here by this clock.
    #[must_use]
    pub fn explained(self) -> &'static str {
        self.explained_where(in_rig())
    }

    /// The same for figures that were taken in the rig's emulated host, or not.
    #[must_use]
    pub fn explained_where(self, emulated: bool) -> &'static str {
        match self {
            Self::Instructions => {
                "One processor. A virtual ms is a million instructions executed by the emulated host \
                 and its guest together, plus the time in which both wait: it repeats whatever the \
                 real host does, and compares work, not the time of any real machine."
            }
            Self::Wall if emulated => {
                "Wall clock of an emulated host with two processors: only ratios carry over, and \
                 they move with the real host's load."
            }
            Self::Wall => "Wall clock of this machine.",
        }
    }
}
