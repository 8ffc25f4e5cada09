//! Credit of one direction of one execution, as cumulative totals.
//!
//! Totals only grow, so saying one twice is harmless and a lost or reordered announcement can
//! never free capacity twice. Every operation that would pass its bound is refused and changes
//! nothing; the caller decides whose fault that was.
//!
//! ```text
//!   Sender                                  Receiver
//!   sent ≥ acked, sent − acked ≤ limit      received ≥ released, received − released ≤ limit
//!   charge(n) before sending       ───►     charge(n) on arrival
//!   acknowledge(total)             ◄───     release(n) when consumed; due() is the total to say
//! ```

mod saved;

pub(crate) use saved::{SavedReceiver, SavedSender};

/// A total that may not be: it goes back, or beyond what was sent, or past the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreditError;

/// The end that sends data and waits for capacity.
#[derive(Debug, Clone)]
pub struct Sender {
    limit: u64,
    sent: u64,
    acked: u64,
}

impl Sender {
    /// Nothing sent, all of `limit` available.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self {
            limit: u64::from(limit),
            sent: 0,
            acked: 0,
        }
    }

    /// As [`new`](Self::new), towards a peer that bounds nothing and so never says when it has
    /// room: all of `u64` is available.
    #[must_use]
    pub fn unbounded() -> Self {
        Self {
            limit: u64::MAX,
            sent: 0,
            acked: 0,
        }
    }

    /// Units that may be sent now.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.limit.saturating_sub(self.outstanding())
    }

    /// Units sent and not acknowledged.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.sent.saturating_sub(self.acked)
    }

    /// Units sent in all.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Units acknowledged in all.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Books `n` units as sent.
    ///
    /// # Errors
    /// More than [`available`](Self::available), or the total would pass `u64::MAX`.
    pub fn charge(&mut self, n: u64) -> Result<(), CreditError> {
        if n > self.available() {
            return Err(CreditError);
        }
        self.sent = self.sent.checked_add(n).ok_or(CreditError)?;
        Ok(())
    }

    /// Takes the peer's cumulative total. Gives the units that became free, zero for a repeat.
    ///
    /// # Errors
    /// A smaller total than before, or one above what was sent.
    pub fn acknowledge(&mut self, total: u64) -> Result<u64, CreditError> {
        if total > self.sent {
            return Err(CreditError);
        }
        let freed = total.checked_sub(self.acked).ok_or(CreditError)?;
        self.acked = total;
        Ok(freed)
    }
}

/// The end that holds data until it is consumed.
///
/// A total is worth saying when the sender may be short of credit. As long as it has room, a release
/// can wait for the next one, since an announcement would only interrupt it: nearly half of the
/// window is said together, so that a receiver that takes half of it in one go, headers included, says
/// so before it takes the other half. Once the sender has an eighth left or can send nothing more,
/// every release is due at once, so one that stands still never waits for a batch to fill.
#[derive(Debug, Clone)]
pub struct Receiver {
    limit: u64,
    /// Units released that are said together while the sender has room.
    batch: u64,
    /// Units under way in the sender's eyes from which on every release is said.
    urgent: u64,
    received: u64,
    released: u64,
    said: u64,
}

impl Receiver {
    /// Nothing received; up to `limit` may be outstanding. `least` is what the sender must have
    /// free to send anything at all.
    #[must_use]
    pub fn new(limit: u32, least: u32) -> Self {
        let limit = u64::from(limit);
        // A sender is stuck when less than `least` is free; it must hear of releases by then.
        let stuck = limit.saturating_sub(u64::from(least).saturating_sub(1));
        let urgent = stuck.min(limit.saturating_sub(limit / 8));
        Self {
            batch: urgent.min((limit / 2).saturating_sub(limit / 16)),
            urgent,
            ..Self::eager(limit)
        }
    }

    /// As [`new`](Self::new), for a sender that must hear of every release.
    #[must_use]
    pub fn telling_all(limit: u32) -> Self {
        Self::eager(u64::from(limit))
    }

    /// As [`new`](Self::new), for a sender that keeps no allowance and understands no
    /// announcement: none is ever due. The receiver's own bound holds all the same.
    #[must_use]
    pub fn telling_nothing(limit: u32) -> Self {
        Self {
            batch: u64::MAX,
            urgent: u64::MAX,
            ..Self::eager(u64::from(limit))
        }
    }

    const fn eager(limit: u64) -> Self {
        Self {
            limit,
            batch: 0,
            urgent: 0,
            received: 0,
            released: 0,
            said: 0,
        }
    }

    /// From here on nothing is due: there is no sender any more.
    pub fn hush(&mut self) {
        (self.batch, self.urgent) = (u64::MAX, u64::MAX);
    }

    /// Units received and not consumed.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.received.saturating_sub(self.released)
    }

    /// Units that may still arrive before something is released.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.limit.saturating_sub(self.outstanding())
    }

    /// Units that may still arrive as far as the sender has been told. One that is
    /// [told nothing](Self::telling_nothing) does not wait to be.
    #[must_use]
    pub fn promised(&self) -> u64 {
        if self.batch == u64::MAX {
            return self.available();
        }
        self.limit
            .saturating_sub(self.received.saturating_sub(self.said))
    }

    /// The total that the sender was told last.
    #[must_use]
    pub fn said(&self) -> u64 {
        self.said
    }

    /// Units received in all.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Units consumed in all.
    #[must_use]
    pub fn released(&self) -> u64 {
        self.released
    }

    /// Books `n` units that arrived.
    ///
    /// # Errors
    /// They exceed the allowance: the peer sent what it had no credit for.
    pub fn charge(&mut self, n: u64) -> Result<(), CreditError> {
        let outstanding = self.outstanding().checked_add(n).ok_or(CreditError)?;
        if outstanding > self.limit {
            return Err(CreditError);
        }
        self.received = self.received.checked_add(n).ok_or(CreditError)?;
        Ok(())
    }

    /// Books `n` units as consumed. The only place where capacity comes back.
    ///
    /// # Errors
    /// More than is outstanding: a fault of the caller, which must not grant the peer anything.
    pub fn release(&mut self, n: u64) -> Result<(), CreditError> {
        if n > self.outstanding() {
            return Err(CreditError);
        }
        self.released = self.released.checked_add(n).ok_or(CreditError)?;
        Ok(())
    }

    /// Whether there is a total that the peer should be told now. Ask after every charge and
    /// every release: either can make it so.
    #[must_use]
    pub fn due(&self) -> bool {
        let unsaid = self.released.saturating_sub(self.said);
        let under_way = self.received.saturating_sub(self.said);
        unsaid > 0 && (unsaid >= self.batch || under_way >= self.urgent)
    }

    /// The total to tell now; from here on it counts as told. Reading it when the frame is
    /// built is what makes nearby consumption coalesce.
    pub fn say(&mut self) -> u64 {
        self.said = self.released;
        self.released
    }
}

#[cfg(test)]
#[path = "credit_test.rs"]
mod tests;
