//! What the device asks of whoever stands behind its ports.

use bytes::Bytes;
use forebay_virtio::{ChainFault, RingFault};

/// Bytes at the head of every frame that are handed to the gate.
pub const HEADER_LEN: usize = 16;

/// Longest frame towards the guest, header included, in bytes.
pub const FRAME_MAX: usize = 32 << 10;

/// What becomes of one frame. Says so once: it is neither `Clone` nor `Copy`.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Copy the `n` bytes behind the header to [`Gate::deliver`]; the next frame begins there.
    Accept(usize),
    /// Skip the `n` bytes behind the header uncopied; the next frame begins there.
    Discard(usize),
    /// Framing is broken, for this reason: close the channel.
    Close(&'static str),
}

/// One frame towards the guest, in two pieces so that the payload need not move to join its
/// header. At most [`FRAME_MAX`] together: a device that has placed part of a longer one cannot be
/// restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The frame's header.
    pub head: [u8; HEADER_LEN],
    /// The frame's payload; may be empty.
    pub body: Bytes,
    /// The guest looks for it by itself while it streams, and need not be interrupted for it then. It
    /// is told when its stream pauses, and soon after [`TOLD_WITHIN`](crate::TOLD_WITHIN).
    pub can_wait: bool,
}

/// Why a connection over port 1 ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// The guest closed the port.
    #[error("the guest closed the agent port")]
    ByGuest,
    /// The guest opened the port again without closing it; a new connection follows at once.
    #[error("the guest opened the agent port again")]
    Reopened,
    /// What the guest sent does not divide into frames.
    #[error("framing on the agent port is broken: {0}")]
    Framing(&'static str),
    /// A descriptor chain of the agent port is malformed.
    #[error("malformed descriptor chain on the agent port: {0}")]
    Chain(ChainFault),
    /// A ring of the agent port is dead until the guest resets the device.
    #[error("a ring of the agent port is broken: {0}")]
    Ring(RingFault),
    /// The guest reset the device.
    #[error("the guest reset the console device")]
    Reset,
}

/// The judge of port 1.
///
/// Called from vCPU threads, the event loop and whoever calls
/// [`Console::transmit`](crate::Console::transmit), with a lock of the port held: an
/// implementation must not call the device, must not block and must not run anybody else's code,
/// such as a waker. That has its place in [`settle`](Self::settle), which alone is called with no
/// lock held.
///
/// [`judge`](Self::judge) and [`deliver`](Self::deliver) come in ring order, never two at once;
/// [`next_to_guest`](Self::next_to_guest) may run beside them. [`opened`](Self::opened) and
/// [`closed`](Self::closed) alternate and run beside nothing but `settle`. After each of the
/// others the device asks for frames towards the guest by itself, and then settles.
pub trait Gate: Send + Sync {
    /// Judges the frame with this header. `rest` is what the chain holds behind the header, in
    /// bytes: this frame's payload and perhaps further frames. A verdict over more than `rest`
    /// closes the channel.
    fn judge(&self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict;

    /// An empty buffer for a payload of `len` bytes, to be filled and given to
    /// [`deliver`](Self::deliver). A gate that keeps buffers for their next use has them here.
    fn room_for(&self, len: usize) -> Vec<u8> {
        Vec::with_capacity(len)
    }

    /// Takes the payload of the frame just accepted: exactly the verdict's number of bytes, in the
    /// buffer that [`room_for`](Self::room_for) gave. Comes once for each accepted frame, an empty
    /// one too.
    ///
    /// # Errors
    /// The channel must close, for this reason.
    fn deliver(&self, payload: Vec<u8>) -> Result<(), &'static str>;

    /// The next frame towards the guest, if any. Asked for when a guest buffer has room, so the
    /// choice may be made late. A frame handed over is placed whole, over several buffers if
    /// need be, unless the connection ends first. It is dropped before the next one is asked for,
    /// and before [`opened`](Self::opened) and [`closed`](Self::closed).
    fn next_to_guest(&self) -> Option<Outgoing>;

    /// The guest opened port 1: a new connection begins, with nothing in flight either way.
    fn opened(&self);

    /// The connection ended. All that the guest sent before it closed the port has been judged;
    /// what was not yet placed towards the guest is gone.
    fn closed(&self, why: Closed);

    /// The calls made so far are over and no lock of the device is held: wake whom they concern.
    /// What is woken may call [`Console::transmit`](crate::Console::transmit) on this thread. May
    /// run beside any other call, itself included; comes at least once after each of them, soon.
    ///
    /// A gate that wakes nobody has nothing to do here.
    fn settle(&self) {}
}

/// Where the console's output goes.
pub trait ConsoleSink: Send + Sync {
    /// Takes output, in pieces of no particular size. Called with the console's lock held and
    /// while the guest spins, so it must not block: drop what does not fit.
    fn write(&self, bytes: &[u8]);
}
