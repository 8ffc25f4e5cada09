//! Counters as they are saved. Limits are not among them: they are saved once for all.

use minicbor::{Decode, Encode};

use super::{CreditError, Receiver, Sender};

/// A [`Sender`] without its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(crate) struct SavedSender {
    #[n(0)]
    pub(crate) sent: u64,
    #[n(1)]
    pub(crate) acked: u64,
}

/// A [`Receiver`] without its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub(crate) struct SavedReceiver {
    #[n(0)]
    pub(crate) received: u64,
    #[n(1)]
    pub(crate) released: u64,
    #[n(2)]
    pub(crate) said: u64,
}

impl Sender {
    pub(crate) fn save(&self) -> SavedSender {
        SavedSender {
            sent: self.sent,
            acked: self.acked,
        }
    }

    /// Takes the totals of `saved` into this sender, which gives the limit.
    ///
    /// # Errors
    /// More was acknowledged than sent, or more is outstanding than the limit allows.
    pub(crate) fn resume(&mut self, saved: SavedSender) -> Result<(), CreditError> {
        let outstanding = saved.sent.checked_sub(saved.acked).ok_or(CreditError)?;
        if outstanding > self.limit {
            return Err(CreditError);
        }
        self.sent = saved.sent;
        self.acked = saved.acked;
        Ok(())
    }
}

impl Receiver {
    pub(crate) fn save(&self) -> SavedReceiver {
        SavedReceiver {
            received: self.received,
            released: self.released,
            said: self.said,
        }
    }

    /// Takes the totals of `saved` into this receiver, which gives the limit.
    ///
    /// # Errors
    /// More was said than released, or released than received, or more is outstanding than the
    /// limit allows.
    pub(crate) fn resume(&mut self, saved: SavedReceiver) -> Result<(), CreditError> {
        let outstanding = saved
            .received
            .checked_sub(saved.released)
            .ok_or(CreditError)?;
        if outstanding > self.limit || saved.said > saved.released {
            return Err(CreditError);
        }
        self.received = saved.received;
        self.released = saved.released;
        self.said = saved.said;
        Ok(())
    }
}
