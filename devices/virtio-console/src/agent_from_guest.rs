//! Port 1 from the guest: chains of whole frames, judged one by one.
//!
//! A chain is peeked, its first frame judged, and only then taken. Further frames of the same chain
//! are judged as they come up. No byte of payload is copied before its frame's verdict, and a
//! header is copied once, so that what was judged is what is used.

use forebay_virtio::{ChainVerdict, Taken, Virtqueue};

use crate::cadence::Cadence;
use crate::device::FRAME_COST;
use crate::gate::{Closed, Gate, HEADER_LEN, Verdict};
use crate::queues::{MAX_CHAIN_BYTES, MAX_CHAIN_FRAMES};

/// The life of port 1, as far as the guest's frames are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Channel {
    /// The guest has not opened the port: its chains are taken and dropped.
    #[default]
    Closed,
    /// A connection is up.
    Open,
    /// We ended the connection. Chains are dropped until the guest opens the port again.
    Broken,
}

/// Who serves the ring at its next kick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Owner {
    /// The vCPU thread that kicks.
    #[default]
    Vcpu,
    /// The event loop. Kicks are not asked for until it gives the ring back.
    EventLoop,
}

/// What came of one look at the ring.
#[derive(Debug)]
pub(crate) enum Served {
    /// There was no chain.
    Empty,
    /// One chain is done with. It counts for so many bytes of a [`Budget`](crate::Budget).
    Chain(usize),
    /// The same, and the connection must end for this reason.
    Ends(usize, Closed),
}

/// The queue, the channel, and what went through.
#[derive(Debug, Default)]
pub(crate) struct AgentFromGuest {
    pub(crate) queue: Option<Virtqueue>,
    pub(crate) channel: Channel,
    pub(crate) owner: Owner,
    pub(crate) cadence: Cadence,
    pub(crate) counters: FromGuestCounters,
}

/// What went through port 1 from the guest, since the device was made.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct FromGuestCounters {
    pub(crate) chains: u64,
    pub(crate) dropped_chains: u64,
    pub(crate) frames: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) discarded_frames: u64,
    pub(crate) discarded_bytes: u64,
    pub(crate) handovers: u64,
}

impl AgentFromGuest {
    /// Takes the next chain, frame by frame through the gate.
    pub(crate) fn serve_one(&mut self, gate: &dyn Gate) -> Served {
        let Some(queue) = &mut self.queue else {
            return Served::Empty;
        };
        let mut chain = match queue.peek() {
            Ok(Some(chain)) => chain,
            Ok(None) => return Served::Empty,
            // A dead ring has ended its connection already and stays empty for good.
            Err(fault) if self.channel == Channel::Open => {
                return Served::Ends(0, Closed::Ring(fault));
            }
            Err(_) => return Served::Empty,
        };
        self.counters.chains += 1;
        let len = chain.remaining();
        let mut head = [0; HEADER_LEN];
        let broken = if self.channel != Channel::Open {
            self.counters.dropped_chains += 1;
            chain.consume(ChainVerdict::Drop).complete();
            return Served::Chain(0);
        } else if let Some(fault) = chain.fault() {
            Some(Closed::Chain(fault))
        } else if len > MAX_CHAIN_BYTES {
            Some(Closed::Framing(
                "a chain is longer than any the driver makes",
            ))
        } else if !chain.read(&mut head) {
            Some(SHORT_HEADER)
        } else {
            None
        };
        if let Some(why) = broken {
            self.counters.dropped_chains += 1;
            chain.consume(ChainVerdict::Drop).complete();
            return Served::Ends(0, why);
        }

        let mut verdict = gate.judge(&head, chain.remaining());
        let mut taken = chain.consume(match verdict {
            Verdict::Close(_) => ChainVerdict::Drop,
            Verdict::Accept(_) | Verdict::Discard(_) => ChainVerdict::Use,
        });
        let mut frames = 0;
        let ended = loop {
            frames += 1;
            if let Err(why) = self.counters.carry_out(verdict, &mut taken, gate) {
                break Some(why);
            }
            if taken.remaining() == 0 {
                break None;
            }
            if frames == MAX_CHAIN_FRAMES {
                break Some(TOO_MANY_FRAMES);
            }
            if !taken.read(&mut head) {
                break Some(SHORT_HEADER);
            }
            verdict = gate.judge(&head, taken.remaining());
        };
        taken.complete();
        let cost = len + frames * FRAME_COST;
        match ended {
            None => Served::Chain(cost),
            Some(why) => Served::Ends(cost, why),
        }
    }

    /// Whether an available chain shows up, the ring being dead included in "no".
    pub(crate) fn available(&mut self) -> bool {
        self.queue
            .as_mut()
            .is_some_and(|queue| queue.available().unwrap_or(false))
    }

    /// Asks for the next kick. `true` if the ring must be looked at again: chains are there
    /// already, or the ring is found dead with the connection still up.
    pub(crate) fn rearm(&mut self) -> bool {
        match self.queue.as_mut().map(Virtqueue::rearm) {
            Some(Ok(more)) => more,
            Some(Err(_)) => self.channel == Channel::Open,
            None => false,
        }
    }
}

const SHORT_HEADER: Closed = Closed::Framing("a chain ends inside a frame's header");
const TOO_MANY_FRAMES: Closed =
    Closed::Framing("a chain holds more frames than any the agent makes");

impl FromGuestCounters {
    /// Does with the bytes behind a header what the gate said.
    fn carry_out(
        &mut self,
        verdict: Verdict,
        chain: &mut Taken<'_>,
        gate: &dyn Gate,
    ) -> Result<(), Closed> {
        const TOO_LONG: Closed = Closed::Framing("a frame is longer than its chain");
        self.frames += 1;
        match verdict {
            Verdict::Accept(n) => {
                // The gate is not asked for room that the chain could not fill.
                if n > chain.remaining() {
                    return Err(TOO_LONG);
                }
                let mut payload = gate.room_for(n);
                if !chain.read_onto(&mut payload, n) {
                    return Err(TOO_LONG);
                }
                self.payload_bytes += n as u64;
                gate.deliver(payload).map_err(Closed::Framing)
            }
            Verdict::Discard(n) => {
                self.discarded_frames += 1;
                if !chain.skip(n) {
                    return Err(TOO_LONG);
                }
                self.discarded_bytes += n as u64;
                Ok(())
            }
            Verdict::Close(reason) => Err(Closed::Framing(reason)),
        }
    }
}

#[cfg(test)]
#[path = "agent_from_guest_test.rs"]
mod tests;
