//! Standing still for a snapshot, and going on: freezing the executions within the host's limit,
//! and what is done before they are let go on.
//!
//! ```text
//!           Quiesce                 all has stopped
//!  Running ─────────► Freezing ───────────────────────► Frozen
//!     ▲                  │ the limit, a renewal, the end   │ Renew: done, and the thaw
//!     └──────────────────┴─────────────────────────────────┘
//! ```
//!
//! The loop waits for none of it: the kernel reports when everything has stopped. Frozen executions
//! can be killed, and end; nothing else of them happens. A lost connection ends all that was frozen
//! before it lets the rest go on.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use forebay_exec_proto::{Quiesce, Renew};

use super::Agent;
use crate::console::say;
use crate::execution::Execution;
use crate::failure::describe;

/// Executions that are named when they do not stop.
const NAMED: usize = 8;

/// Whether executions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    Running,
    /// The kernel stops them; they go on if it has not by then.
    Freezing {
        deadline: Instant,
    },
    /// All of them stand still, or those that do cannot be let go on: a renewal tries.
    Frozen,
}

impl Rest {
    /// When to look again at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Freezing { deadline } => Some(*deadline),
            Self::Running | Self::Frozen => None,
        }
    }
}

impl Agent {
    /// Begins to freeze all executions; [`look_at_rest`](Self::look_at_rest) answers.
    pub(super) fn quiesce(&mut self, quiesce: &Quiesce) {
        match self.begin_to_freeze() {
            Ok(()) => {
                let limit = Duration::from_millis(u64::from(quiesce.limit_ms));
                self.rest = Rest::Freezing {
                    deadline: Instant::now() + limit,
                };
            }
            Err(why) => self.conn.quiesced(Err(why)),
        }
    }

    fn begin_to_freeze(&mut self) -> Result<(), String> {
        if self.shutdown.is_some() {
            return Err("the guest is being powered off".to_owned());
        }
        let Some(parent) = &mut self.config.parent else {
            return Err("the guest has no control groups, so nothing can be frozen".to_owned());
        };
        parent
            .freeze()
            .map_err(|errno| format!("executions cannot be frozen: {}", describe(errno)))
    }

    /// Answers if everything has stopped, or has not in time.
    pub(super) fn look_at_rest(&mut self) {
        let Rest::Freezing { deadline } = self.rest else {
            return;
        };
        let Some(parent) = &mut self.config.parent else {
            return;
        };
        if parent.is_frozen() {
            parent.stop_watching();
            self.rest = Rest::Frozen;
            self.conn.quiesced(Ok(()));
        } else if Instant::now() >= deadline {
            let why = self.restless();
            self.stop_freezing(why);
        }
    }

    /// Gives up freezing, if it is under way.
    pub(super) fn stop_freezing(&mut self, mut why: String) {
        if let Rest::Freezing { .. } = self.rest {
            if let Err(error) = self.thaw() {
                say(format_args!("{error}"));
                why = format!("{why}; what has stopped stands still: {error}");
                self.rest = Rest::Frozen;
            }
            self.conn.quiesced(Err(why));
        }
    }

    /// Does what the host asks for, and lets what is frozen go on.
    pub(super) fn renew(&mut self, renew: &Renew) {
        self.stop_freezing("it was to go on before it stood still".to_owned());
        let outcome = (self.config.renew)(renew).and_then(|()| self.thaw());
        if let Err(why) = &outcome {
            say(format_args!("not renewed: {why}"));
        }
        self.conn.renewed(outcome);
    }

    /// Lets what is frozen, or about to be, go on.
    pub(super) fn thaw(&mut self) -> Result<(), String> {
        if let Some(parent) = &mut self.config.parent
            && self.rest != Rest::Running
        {
            parent
                .thaw()
                .map_err(|errno| format!("executions cannot be thawed: {}", describe(errno)))?;
        }
        self.rest = Rest::Running;
        Ok(())
    }

    /// Who does not stop.
    fn restless(&self) -> String {
        let goes_on = |execution: &Execution| execution.leaf().is_some_and(|l| !l.is_frozen());
        let mut restless = self.executions.iter().filter(|(_, e)| goes_on(e));
        let mut why = String::new();
        for (id, execution) in restless.by_ref().take(NAMED) {
            let and = if why.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(why, "{and}execution {id} (pid {})", execution.pid);
        }
        match (why.is_empty(), restless.count()) {
            (true, _) => why.push_str("a process that an ended execution left"),
            (false, 0) => {}
            (false, more) => drop(write!(why, " and {more} more")),
        }
        why + " did not stop in time: something in it waits in the kernel, for a disk or the like"
    }
}
