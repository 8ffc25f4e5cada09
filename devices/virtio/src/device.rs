//! The traits between a device, its transport and the machine around them.
//!
//! The transport calls the device ([`VirtioDevice`]); the device calls the machine
//! ([`Interrupt`], [`Doorbell`]). Nobody calls back while being called.

use crate::queue::Virtqueue;

/// Which way the buffers of a queue carry bytes. A descriptor of the other kind is a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The driver posts empty buffers; the device writes them (virtio's "receive" queues).
    ToGuest,
    /// The driver posts filled buffers; the device reads them (virtio's "transmit" queues).
    FromGuest,
}

/// What the device wants one of its queues to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSpec {
    /// Largest number of descriptors the driver may choose: a power of two, at most 32768.
    pub max_size: u16,
    /// Which way its buffers carry bytes.
    pub direction: Direction,
}

/// What the driver and the transport settled on, handed to the device at `DRIVER_OK`.
#[derive(Debug)]
pub struct Activation {
    /// The features both sides have. Always a subset of what the device offered.
    pub features: u64,
    /// One slot per queue of [`VirtioDevice::queues`], in order. `None`: the driver did not enable
    /// it. Queues that are here lie inside guest memory and are aligned.
    pub queues: Vec<Option<Virtqueue>>,
}

/// A virtio device behind a transport.
///
/// All methods take `&self` and may be called from any vCPU thread, several at once: the device
/// brings its own locks.
pub trait VirtioDevice: Send + Sync {
    /// The device type of VIRTIO 1.2, section 5.
    fn device_type(&self) -> u32;

    /// The feature bits offered. `VIRTIO_F_VERSION_1` must be among them.
    fn features(&self) -> u64;

    /// The queues, by index. Constant over the device's life.
    fn queues(&self) -> &[QueueSpec];

    /// Fills `data` from the configuration space at `offset`. What lies outside of it reads as
    /// zero; `data` is zeroed before the call.
    fn read_config(&self, offset: u64, data: &mut [u8]);

    /// The driver is ready (`DRIVER_OK`). Called once between two resets, with the transport's
    /// configuration lock held: the device must not call the transport.
    fn activate(&self, activation: Activation);

    /// The driver kicked a queue. Called inline on the vCPU thread, without any lock of the
    /// transport, for any queue index below the number of queues, and also before activation or
    /// for a queue that was not enabled (the device ignores those).
    fn notify(&self, queue: u16);

    /// The driver reset the device, possibly in the middle of anything: forget the queues. Must
    /// return with no access to guest memory outstanding. Also called without a prior
    /// [`activate`](Self::activate).
    fn reset(&self);
}

/// The device's interrupt line: edge triggered, one for all queues.
pub trait Interrupt: Send + Sync {
    /// Tells the driver to look at its used rings. Must not block.
    fn signal_queue(&self);
}

/// Wakes the machine's event loop so that it serves the device.
pub trait Doorbell: Send + Sync {
    /// Rings. Rings that come before the loop has looked may fold into one. Must not block.
    fn ring(&self);
}
