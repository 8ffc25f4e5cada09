//! Numbers of VIRTIO 1.2 in the widths the code uses them.
//!
//! The values come from the kernel's headers by way of `virtio-bindings`; only the casts and the
//! names of what those headers lack are here.

use virtio_bindings::{virtio_config, virtio_mmio, virtio_ring};

/// Feature bit: the device follows VIRTIO 1.0 or later.
pub const F_VERSION_1: u64 = 1 << virtio_config::VIRTIO_F_VERSION_1;
/// Feature bit: descriptors may point to a table of descriptors.
pub const F_INDIRECT_DESC: u64 = 1 << virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;
/// Feature bit: kicks and interrupts are asked for by ring index.
pub const F_EVENT_IDX: u64 = 1 << virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// Status bit: the driver has noticed the device.
pub const STATUS_ACKNOWLEDGE: u32 = virtio_config::VIRTIO_CONFIG_S_ACKNOWLEDGE;
/// Status bit: the driver knows how to drive the device.
pub const STATUS_DRIVER: u32 = virtio_config::VIRTIO_CONFIG_S_DRIVER;
/// Status bit: feature negotiation is complete.
pub const STATUS_FEATURES_OK: u32 = virtio_config::VIRTIO_CONFIG_S_FEATURES_OK;
/// Status bit: the driver is set up.
pub const STATUS_DRIVER_OK: u32 = virtio_config::VIRTIO_CONFIG_S_DRIVER_OK;
/// Status bit: the device gave up and wants to be reset.
pub const STATUS_NEEDS_RESET: u32 = virtio_config::VIRTIO_CONFIG_S_NEEDS_RESET;
/// Status bit: the driver gave up.
pub const STATUS_FAILED: u32 = virtio_config::VIRTIO_CONFIG_S_FAILED;

/// Interrupt cause: a used ring moved.
pub const INTERRUPT_VRING: u32 = virtio_mmio::VIRTIO_MMIO_INT_VRING;
/// Interrupt cause: the configuration, or the device's own status, changed.
pub const INTERRUPT_CONFIG: u32 = virtio_mmio::VIRTIO_MMIO_INT_CONFIG;

/// What the magic register reads: "virt", little endian.
pub const MMIO_MAGIC: u32 = 0x7472_6976;
/// Register layout version of virtio 1.0 and later.
pub const MMIO_VERSION: u32 = 2;
/// Length in bytes of the register file and the configuration space together.
pub const MMIO_LEN: u64 = 0x1000;

/// Offset of the register that kicks a queue; an ioeventfd may sit on it.
pub const QUEUE_NOTIFY: u64 = virtio_mmio::VIRTIO_MMIO_QUEUE_NOTIFY as u64;
/// Offset of the register that acknowledges interrupts; an ioeventfd may swallow it.
pub const INTERRUPT_ACK: u64 = virtio_mmio::VIRTIO_MMIO_INTERRUPT_ACK as u64;
/// Offset of the configuration space.
pub const CONFIG: u64 = virtio_mmio::VIRTIO_MMIO_CONFIG as u64;

/// Offset of the low half of a shared memory region's length.
pub(crate) const SHM_LEN_LOW: u64 = virtio_mmio::VIRTIO_MMIO_SHM_LEN_LOW as u64;
/// Offset of the high half of a shared memory region's base.
pub(crate) const SHM_BASE_HIGH: u64 = virtio_mmio::VIRTIO_MMIO_SHM_BASE_HIGH as u64;
