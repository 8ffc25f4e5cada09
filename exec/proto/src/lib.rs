//! The exec protocol of forebay, without I/O: frames, credit, and the state of one connection
//! between a host and the agent in its guest.
//!
//! ```text
//!  host::Conn                                                     guest::Conn
//!    start, write_stdin, signal, kill ──► poll_transmit ─ frames ─► handle_bytes ──► poll_event
//!    next_event, read, discard      ◄── judge + deliver ◄─ frames ─ poll_transmit ◄── started,
//!                                                                  stream_ready, exited, …
//! ```
//!
//! Both ends are state machines: bytes and commands go in, frames and notices come out. Nothing
//! here owns a clock or a descriptor, spawns a task or wakes anybody, so the same code runs inside a
//! VMM, inside PID 1, in a test that joins both ends in memory, and under a fuzzer.
//!
//! What it guarantees, to each end and against any behaviour of the other:
//!
//! * Unread output of an execution never holds more than its `output_limit` on the host, and
//!   undelivered stdin never more than its `input_limit` in the guest ([`Limits`], [`credit`]).
//! * Outgoing frames are *pulled* when the channel has room; there is no queue of bytes. An
//!   acknowledgement is one number per execution, a control is one of at most
//!   [`CONTROL_QUEUE`], an execution's own messages wait in its slot ([`schedule`]).
//! * On the host every frame is judged by its header before a byte of its payload is copied
//!   ([`host::Conn::judge`]). A frame that breaks its execution's rules ends that execution; one
//!   that breaks framing ends the connection.
//!
//! | module | owns |
//! |---|---|
//! | [`limits`] | the five advertised limits and their validation |
//! | [`frame`] | the 16-byte header, the frame kinds of each direction |
//! | [`message`] | the encoded bodies: bootstrap, ready, request, exit, failure |
//! | [`credit`] | cumulative counters of one direction, sending and receiving end |
//! | [`schedule`] | which frame leaves next |
//! | [`host`], [`guest`] | the two ends of a connection |
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation
    )
)]

extern crate alloc;

pub mod credit;
pub mod frame;
pub mod guest;
pub mod host;
mod id;
pub mod limits;
pub mod message;
pub mod schedule;

#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod model;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod pair;

pub use frame::{CHUNK_CHARGE, FRAME_MAX, HEADER_LEN, Header, Stream};
pub use id::{ExecId, IdSpaceExhausted};
pub use limits::{LimitError, Limits};
pub use message::{
    Adopted, Answer, Bootstrap, ByteVec, CAPABILITIES, EnvVar, ExitStatus, Failure, FailureKind,
    Leave, QUIESCE, Quiesce, RLIMITS_MAX, Ready, Renew, Renewal, Request, Resources, Rlimit,
    Secret, StdinError, StdinMode, TerminalSize, TimedOut, Timeout, Usage,
};

/// Version of the frame layout and of the rules. Both ends name theirs in the first message;
/// ends that differ refuse each other.
pub const GENERATION: u32 = 1;

/// Controls (signals, pings) that may wait on one connection.
pub const CONTROL_QUEUE: usize = 16;

/// Largest encoded control, and largest text in an event, in bytes.
pub const TEXT_MAX: usize = 4096;

/// Largest exec request, encoded, in bytes, with [`WORD_CHARGE`] for each of its words; it travels
/// in parts of at most [`REQUEST_PART`].
pub const REQUEST_MAX: usize = 1 << 20;

/// What an argument or a variable of a request costs beside its bytes: it pays for what the
/// receiver keeps of each, so that many tiny words hold no more memory than a few long ones.
pub const WORD_CHARGE: usize = 16;

/// Largest part of an exec request in one frame, in bytes.
pub const REQUEST_PART: usize = 16 * 1024;

/// A peer broke the rules in a way that ends the connection. The text says which rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerFault(pub &'static str);

impl core::fmt::Display for PeerFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the peer broke the exec protocol: {}", self.0)
    }
}

impl core::error::Error for PeerFault {}
