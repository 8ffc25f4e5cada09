//! The dual-port virtio-console (VIRTIO 1.2, section 5.3, with `MULTIPORT`), with a gate at the
//! agent port's queue.
//!
//! | queue | size | carries | served by |
//! |---|---|---|---|
//! | 0 `ConsoleToGuest` | 16 | console input; buffers stay posted, nothing is sent | – |
//! | 1 `ConsoleFromGuest` | 16 | console output (`hvc0`) into a [`ConsoleSink`] | inline, at the kick |
//! | 2 `ControlToGuest` | 16 | port life: add, name, open | whoever made a message due |
//! | 3 `ControlFromGuest` | 16 | port life: ready, open, close | inline, at the kick |
//! | 4 `AgentToGuest` | 128 | frames of port 1, pulled from the [`Gate`] | [`Console::transmit`], any thread |
//! | 5 `AgentFromGuest` | 64 | frames of port 1, judged by the [`Gate`] | inline while kicks are sparse, else [`Console::drain_from_guest`] |
//!
//! Port 0 is the console; port 1 is named [`AGENT_PORT_NAME`].
//!
//! **The gate.** A chain of queue 5 holds one or more whole frames. The device copies each frame's
//! first [`HEADER_LEN`] bytes out of guest memory, once, and asks the gate; only then is a
//! byte of payload copied, exactly as many as the verdict says. The device knows no frame
//! types and no executions, and never holds a chain back.
//!
//! **Faults** cost the channel they happen in. A malformed chain of queue 5, or framing that does
//! not add up, closes the agent channel: later chains are taken and dropped until the guest opens
//! the port again. A ring that cannot be trusted is dead alone until the device is reset. The
//! console goes on either way.
//!
//! **Deliberately absent:** `SIZE` (no terminal), `EMERG_WRITE`, more than two ports, the host's
//! `PORT_OPEN` 0 and `PORT_REMOVE`.
//!
//! # Snapshots
//!
//! [`Console::hold`] makes the device stand still whatever its callers do; [`Held::save`] takes what
//! neither guest memory nor the transport's registers say; [`Console::restore`] gives it to a new
//! device, which goes on when it is let go.
//!
//! # Locks
//!
//! Control, console output, agent-from-guest and agent-to-guest have a lock each, so that a
//! flood of one does not hold up the others. Where several are held they are taken in that order,
//! and then the gate's own. The gate and the sink
//! are called with a lock of ours held and must not call the device. [`Gate::settle`] is the
//! exception: every entry point that has called the gate ends with it, all locks released, so
//! that wakers run there and nowhere else.
//!
//! # What a guest can cost
//!
//! Each entry point works within a [`Budget`] of chains and bytes, frames counting extra, and
//! leaves the rest to the event loop. So no guest holds a thread, whatever it writes and however
//! fast it refills its rings.

#![forbid(unsafe_code)]

mod agent_from_guest;
mod agent_port;
mod agent_to_guest;
mod cadence;
mod console_port;
mod control;
mod device;
mod gate;
mod hold;
mod inspect;
mod queues;
mod saved;
mod saved_format;
mod spec;
#[cfg(test)]
mod test_bench;

pub use agent_to_guest::TOLD_WITHIN;
pub use device::{Budget, Console, Drained};
pub use gate::{Closed, ConsoleSink, FRAME_MAX, Gate, HEADER_LEN, Outgoing, Verdict};
pub use hold::Held;
pub use inspect::{AgentPortView, ConsoleView, ControlView, Inspection};
pub use queues::QueueIndex;
pub use saved::SavedConsole;
pub use spec::AGENT_PORT_NAME;
