//! Whether the guest is streaming over port 1 or talks now and then: the measure for handing
//! queue 5 to the event loop.
//!
//! Kicks that follow each other closely make a stream. A small one between which and the next
//! something went to the guest was a request, or an answer: the two take turns. A large one is
//! part of a stream whatever went to the guest, since a stream has its acknowledgements. And the
//! best evidence is what the loop finds: a ring it gives back without having found a chain was
//! handed over in vain, and the next hand-over takes twice as many kicks.
//!
//! How long the loop looks for the next chain before it gives the ring back is measured, too: a look
//! may cost some of what it saves, which is the exit of a kick and a wake of the loop. How long the
//! wake takes is seen at each hand-over, and exits are dear where wakes are.

use std::time::{Duration, Instant};

/// Kicks of a stream follow each other within this; a hand-over cannot pay where chains are
/// further apart than a wake-up of the loop takes.
const WINDOW: Duration = Duration::from_millis(1);

/// What a large kick costs at least, in bytes of a [`Budget`](crate::Budget).
const LARGE: usize = 4 << 10;

/// Kicks in a row that make a stream.
const STREAM: u32 = 3;

/// The same after many hand-overs in vain.
const STREAM_AT_MOST: u32 = 96;

/// A look lasts as long as so many wakes.
const WAKES_PER_LOOK: u32 = 3;

/// The longest look. Where wakes are found to be worth a longer one, the host has other work for its
/// processors, and a look is as short as may be.
const LOOK_AT_MOST: Duration = Duration::from_millis(1);

/// The kicks of queue 5, as far as they tell a stream.
#[derive(Debug)]
pub(crate) struct Cadence {
    /// Longest time between two kicks in a row.
    pub(crate) window: Duration,
    last: Option<Instant>,
    /// The last kick was large.
    large: bool,
    in_a_row: u32,
    /// Kicks in a row after which the ring is handed over.
    patience: u32,
    /// The loop has found a chain since the last hand-over.
    found: bool,
    /// When the ring was handed over, until the loop has come.
    handed_over: Option<Instant>,
    /// How long the loop takes to come, on average; `None` before it has.
    wake: Option<Duration>,
}

impl Default for Cadence {
    fn default() -> Self {
        Self {
            window: WINDOW,
            last: None,
            large: false,
            in_a_row: 0,
            patience: STREAM,
            found: false,
            handed_over: None,
            wake: None,
        }
    }
}

impl Cadence {
    /// Takes note of a kick; `placed` if anything was placed towards the guest since the last one.
    /// `true` if it belongs to a stream, which the loop should serve.
    pub(crate) fn kick(&mut self, now: Instant, placed: bool) -> bool {
        let close = self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) <= self.window);
        self.in_a_row = if close && (self.large || !placed) {
            self.in_a_row.saturating_add(1)
        } else {
            1
        };
        self.last = Some(now);
        self.in_a_row >= self.patience
    }

    /// What the kick cost to serve.
    pub(crate) fn served(&mut self, cost: usize) {
        self.large = cost >= LARGE;
    }

    /// The loop gets the ring.
    pub(crate) fn handed_over(&mut self, now: Instant) {
        self.found = false;
        self.handed_over = Some(now);
    }

    /// The loop has come to look.
    pub(crate) fn looked_at(&mut self, now: Instant) {
        if let Some(since) = self.handed_over.take() {
            // One that was kept from coming for long says little of the others.
            let wake = now.saturating_duration_since(since).min(LOOK_AT_MOST);
            self.wake = Some(match self.wake {
                Some(usual) => (usual * 7 + wake) / 8,
                None => wake,
            });
        }
    }

    /// How long the loop looks for the next chain, at least `least`.
    pub(crate) fn look(&self, least: Duration) -> Duration {
        let wakes = self.wake.unwrap_or_default() * WAKES_PER_LOOK;
        if wakes > LOOK_AT_MOST {
            return least;
        }
        wakes.max(least)
    }

    /// The loop found a chain.
    pub(crate) fn found(&mut self) {
        self.found = true;
    }

    /// The loop gives the ring back. If it was worth it, the next kick in a row brings it there
    /// again at once.
    pub(crate) fn given_back(&mut self) {
        if self.found {
            self.patience = STREAM;
        } else {
            self.in_a_row = 0;
            self.patience = (self.patience * 2).min(STREAM_AT_MOST);
        }
    }
}

#[cfg(test)]
#[path = "cadence_test.rs"]
mod tests;
