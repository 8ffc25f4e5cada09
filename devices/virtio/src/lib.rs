//! virtio, as far as every device of this project shares it: the MMIO transport and the queue.
//!
//! | module | owns |
//! |---|---|
//! | [`transport`](MmioTransport) | the virtio-mmio version 2 register file (VIRTIO 1.2, section 4.2): negotiation, queue addresses, status, reset |
//! | [`queue`](Virtqueue) | one live split ring: peek a chain, consume it with a verdict, complete it exactly once |
//! | [`chain`](ChainFault) | the walk of a descriptor chain, and everything that can be wrong with one |
//! | [`device`](VirtioDevice) | the traits between a device, its transport and the machine around them |
//! | [`saved`] | the bytes in which transports and devices are saved, and the strict way back |
//!
//! What a device does with its queues is not here, and neither is KVM: the machine calls
//! [`MmioTransport::read`] and [`MmioTransport::write`] from its vCPU threads, and implements
//! [`Interrupt`] with whatever raises the line.
//!
//! Everything read from guest memory or from a register write is hostile. Nothing here panics,
//! spins, or allocates by a number the guest chose.
//!
//! # Two kinds of fault
//!
//! A [`ChainFault`] condemns one chain: the ring around it is sound, so the chain is returned to
//! the driver with length 0 and the device decides what it costs the channel. A [`RingFault`]
//! condemns the ring: from then on the queue is dead, by itself, until the driver resets the
//! device.

#![forbid(unsafe_code)]

mod chain;
mod cursor;
mod device;
#[cfg(any(test, feature = "test-utils"))]
pub mod mock;
mod queue;
mod queue_config;
pub mod saved;
mod saved_queue;
mod saved_transport;
pub mod spec;
#[cfg(test)]
mod test_device;
mod transport;

pub use chain::{ChainFault, MAX_DESCRIPTORS};
pub use device::{Activation, Direction, Doorbell, Interrupt, QueueSpec, VirtioDevice};
pub use queue::{ChainVerdict, Peeked, QueueView, RingFault, Taken, Virtqueue};
pub use queue_config::QueueConfigError;
pub use saved::RestoreError;
pub use saved_queue::SavedQueueV1;
pub use saved_transport::SavedTransport;
pub use transport::MmioTransport;
