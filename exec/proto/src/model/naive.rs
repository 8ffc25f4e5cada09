//! What the model knows of one execution, as simply as can be.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::Stream;
use crate::host::{CONFIRM_WITHIN, ExecView};

/// What the model knows of one execution.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    /// Bytes submitted to stdin, less what a cancel took back.
    pub(super) submitted: Vec<u8>,
    /// Bytes that the command put into its pipes, and how many were read from them here.
    pub(super) produced: BTreeMap<Stream, Vec<u8>>,
    pub(super) read: BTreeMap<Stream, Vec<u8>>,
    /// Bytes that were passed on and not consumed.
    pub(super) passed: BTreeMap<Stream, Vec<u8>>,
    pub(super) discarded: Vec<Stream>,
    /// Nobody holds it.
    pub(super) left: bool,
    pub(super) forgotten: bool,
    /// Its command has closed its stdin.
    pub(super) broken: bool,
    /// Somebody has killed it.
    pub(super) killed: bool,
    pub(super) timeout: Option<Timeout>,
}

impl Model {
    /// What is known after a restore: the time for which output has waited begins anew.
    pub(super) fn restored(&self) -> Self {
        let mut model = self.clone();
        model.passed.clear();
        model.left = false;
        let timeout = model.timeout.as_mut();
        if let Some(expired) = timeout.and_then(|timeout| timeout.expired.as_mut()) {
            expired.waited = Duration::ZERO;
        }
        model
    }

    /// Whether its output is read here.
    pub(super) fn is_read(&self) -> bool {
        !self.left && self.passed.values().all(Vec::is_empty)
    }

    /// Time has passed for an execution of which no end is known.
    pub(super) fn pass(&mut self, now: Duration, view: &ExecView) {
        let killed = self.killed;
        if let Some(timeout) = &mut self.timeout {
            timeout.pass(now, killed, view);
        }
    }

    /// It was seen to have started.
    pub(super) fn start(&mut self, now: Duration, view: &ExecView) {
        if let Some(timeout) = &mut self.timeout
            && let Some(expired) = &mut timeout.expired
            && expired.patience.is_some()
        {
            expired.since = now;
            expired.patience = Some(CONFIRM_WITHIN);
            expired.waited = view.output_stalls.application;
        }
    }
}

/// What the model knows of a deadline. It runs as long as no end is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeout {
    pub(super) limit: Duration,
    pub(super) expires: Duration,
    pub(super) expired: Option<Expired>,
}

/// A deadline that was seen to have expired. The output of a list of operations is less than the
/// pipes of a dead command hold, so it always excuses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expired {
    /// How much longer than `since` the guest may take with nobody to wait for; `None` when it has
    /// taken too long.
    patience: Option<Duration>,
    since: Duration,
    /// How long output had waited for its reader by then.
    waited: Duration,
    /// It was killed before it expired.
    pub(super) killed: bool,
}

impl Expired {
    /// When it is looked at next.
    pub(super) fn until(&self) -> Option<Duration> {
        self.patience.map(|patience| self.since + patience)
    }
}

impl Timeout {
    /// Time has passed.
    fn pass(&mut self, now: Duration, killed: bool, view: &ExecView) {
        let waited = view.output_stalls.application;
        let Some(expired) = &mut self.expired else {
            if self.expires <= now {
                self.expired = Some(Expired {
                    patience: Some(CONFIRM_WITHIN),
                    since: now,
                    waited,
                    killed,
                });
            }
            return;
        };
        if expired.until().is_none_or(|until| until > now) {
            return;
        }
        let patience = expired.patience.unwrap_or_default();
        let idle = (now - expired.since) - (waited - expired.waited);
        expired.patience = if idle < patience {
            Some(patience - idle)
        } else if view.output_waits_for == "application" {
            Some(Duration::from_secs(1))
        } else {
            None
        };
        expired.since = now;
        expired.waited = waited;
    }
}
