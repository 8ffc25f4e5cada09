//! A driver to test devices against, honest by default and as hostile as a test wants.
//!
//! It goes through the register file like a real driver and keeps its rings in guest memory. Every
//! descriptor has a slot of [`SLOT_LEN`] bytes of its own, so a test can fill or look at buffers
//! without keeping addresses. Misuse of this driver by a test panics; only the guest side is here,
//! so nothing of it is in a build without the `test-utils` feature.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use virtio_bindings::{virtio_mmio as reg, virtio_ring};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::device::{Doorbell, Interrupt};
use crate::spec::{
    F_EVENT_IDX, QUEUE_NOTIFY, STATUS_ACKNOWLEDGE, STATUS_DRIVER, STATUS_DRIVER_OK,
    STATUS_FEATURES_OK,
};
use crate::transport::MmioTransport;

/// Descriptor flag: another descriptor follows.
pub const NEXT: u16 = virtio_ring::VRING_DESC_F_NEXT as u16;
/// Descriptor flag: the device writes this buffer.
pub const WRITE: u16 = virtio_ring::VRING_DESC_F_WRITE as u16;
/// Descriptor flag: the buffer is a table of descriptors.
pub const INDIRECT: u16 = virtio_ring::VRING_DESC_F_INDIRECT as u16;

/// Bytes of guest memory behind each descriptor.
pub const SLOT_LEN: u32 = 64 << 10;
/// Bytes of guest memory a test gets.
pub const MEMORY_LEN: u64 = 256 << 20;

const RING_BASE: u64 = 0x1_0000;
const RING_STRIDE: u64 = 0x4000;
const SLOT_BASE: u64 = 0x100_0000;
const SLOTS_PER_QUEUE: u64 = 128;

/// Counts how often it was signalled or rung.
#[derive(Debug, Default)]
pub struct Bell(AtomicUsize);

impl Bell {
    /// The count since the last call, which starts it anew.
    pub fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

impl Interrupt for Bell {
    fn signal_queue(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Doorbell for Bell {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Guest memory of [`MEMORY_LEN`] bytes from address 0.
#[must_use]
pub fn memory() -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY_LEN as usize)]).expect("guest memory")
}

/// One buffer of a chain.
#[derive(Debug, Clone)]
pub enum Piece<'a> {
    /// The device may read these bytes.
    Read(&'a [u8]),
    /// The device may write this many bytes.
    Write(u32),
}

/// A chain the device gave back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// The chain's first descriptor.
    pub head: u16,
    /// How much the device says it wrote.
    pub len: u32,
    /// The first `len` bytes of the chain's writable buffers.
    pub bytes: Vec<u8>,
}

/// The driver's side of one queue.
#[derive(Debug, Default)]
struct Ring {
    size: u16,
    free: Vec<u16>,
    available: u16,
    kicked: u16,
    used: u16,
    /// Descriptors of each chain in flight, with the length of the writable ones.
    chains: HashMap<u16, Vec<(u16, u32)>>,
}

/// A driver. See the [module](self).
#[derive(Debug)]
pub struct MockDriver {
    mem: GuestMemoryMmap,
    transport: Arc<MmioTransport>,
    event_idx: bool,
    rings: Vec<Ring>,
}

impl MockDriver {
    /// A driver that has not looked at the device yet.
    #[must_use]
    pub fn new(mem: GuestMemoryMmap, transport: Arc<MmioTransport>) -> Self {
        Self {
            mem,
            transport,
            event_idx: false,
            rings: Vec::new(),
        }
    }

    /// Goes on in front of another transport, as after a restore: the driver notices nothing.
    pub fn attach(&mut self, transport: Arc<MmioTransport>) {
        self.transport = transport;
    }

    /// Brings the device up with `features` and all its queues at full size.
    pub fn start(&mut self, features: u64) {
        assert!(self.negotiate(features), "the device refuses {features:#x}");
        for queue in 0.. {
            self.set(reg::VIRTIO_MMIO_QUEUE_SEL, queue);
            if self.get(reg::VIRTIO_MMIO_QUEUE_NUM_MAX) == 0 {
                break;
            }
            self.enable(queue as u16);
        }
        let status = self.driver_ok();
        assert_eq!(status & crate::spec::STATUS_NEEDS_RESET, 0, "no activation");
    }

    /// Resets, then goes as far as `FEATURES_OK`; `false` if the device refused the features.
    pub fn negotiate(&mut self, features: u64) -> bool {
        self.set(reg::VIRTIO_MMIO_STATUS, 0);
        self.rings.clear();
        self.event_idx = features & F_EVENT_IDX != 0;
        self.set(reg::VIRTIO_MMIO_STATUS, STATUS_ACKNOWLEDGE);
        self.set(reg::VIRTIO_MMIO_STATUS, STATUS_ACKNOWLEDGE | STATUS_DRIVER);
        self.set(reg::VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
        self.set(reg::VIRTIO_MMIO_DRIVER_FEATURES, features as u32);
        self.set(reg::VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
        self.set(reg::VIRTIO_MMIO_DRIVER_FEATURES, (features >> 32) as u32);
        let status = STATUS_ACKNOWLEDGE | STATUS_DRIVER | STATUS_FEATURES_OK;
        self.set(reg::VIRTIO_MMIO_STATUS, status);
        self.get(reg::VIRTIO_MMIO_STATUS) == status
    }

    /// Sets a queue up at its full size.
    pub fn enable(&mut self, queue: u16) {
        self.set(reg::VIRTIO_MMIO_QUEUE_SEL, queue.into());
        let size = self.get(reg::VIRTIO_MMIO_QUEUE_NUM_MAX);
        self.set(reg::VIRTIO_MMIO_QUEUE_NUM, size);
        for (low, address) in [
            (reg::VIRTIO_MMIO_QUEUE_DESC_LOW, self.descriptors(queue)),
            (reg::VIRTIO_MMIO_QUEUE_AVAIL_LOW, self.available(queue)),
            (reg::VIRTIO_MMIO_QUEUE_USED_LOW, self.used(queue)),
        ] {
            self.set(low, address.0 as u32);
            self.set(low + 4, (address.0 >> 32) as u32);
            let zeroes = [0; 0x1000];
            self.mem.write_slice(&zeroes, address).expect("ring memory");
        }
        self.set(reg::VIRTIO_MMIO_QUEUE_READY, 1);
        let index = usize::from(queue);
        if self.rings.len() <= index {
            self.rings.resize_with(index + 1, Ring::default);
        }
        self.rings[index] = Ring {
            size: size as u16,
            free: (0..size as u16).rev().collect(),
            ..Ring::default()
        };
    }

    /// Sets `DRIVER_OK` and returns the status that came of it.
    pub fn driver_ok(&mut self) -> u32 {
        let status = self.get(reg::VIRTIO_MMIO_STATUS);
        self.set(reg::VIRTIO_MMIO_STATUS, status | STATUS_DRIVER_OK);
        self.get(reg::VIRTIO_MMIO_STATUS)
    }

    /// Reads a register.
    #[must_use]
    pub fn get(&self, register: u32) -> u32 {
        let mut word = [0xa5; 4];
        self.transport.read(register.into(), &mut word);
        u32::from_le_bytes(word)
    }

    /// Writes a register.
    pub fn set(&self, register: u32, value: u32) {
        self.transport.write(register.into(), &value.to_le_bytes());
    }

    /// The guest's memory.
    #[must_use]
    pub fn mem(&self) -> &GuestMemoryMmap {
        &self.mem
    }

    /// Where a queue's descriptor table lies.
    #[must_use]
    pub fn descriptors(&self, queue: u16) -> GuestAddress {
        GuestAddress(RING_BASE + u64::from(queue) * RING_STRIDE)
    }

    /// Where a queue's available ring lies.
    #[must_use]
    pub fn available(&self, queue: u16) -> GuestAddress {
        GuestAddress(self.descriptors(queue).0 + 0x1000)
    }

    /// Where a queue's used ring lies.
    #[must_use]
    pub fn used(&self, queue: u16) -> GuestAddress {
        GuestAddress(self.descriptors(queue).0 + 0x2000)
    }

    /// Where the slot of a descriptor lies.
    #[must_use]
    pub fn slot(&self, queue: u16, descriptor: u16) -> GuestAddress {
        let index = u64::from(queue) * SLOTS_PER_QUEUE + u64::from(descriptor);
        GuestAddress(SLOT_BASE + index * u64::from(SLOT_LEN))
    }

    /// Writes a descriptor as it is, sensible or not.
    pub fn put_descriptor(&self, queue: u16, index: u16, descriptor: Descriptor) {
        let address = GuestAddress(self.descriptors(queue).0 + 16 * u64::from(index));
        self.mem.write_obj(descriptor, address).expect("descriptor");
    }

    /// Descriptors not in flight.
    #[must_use]
    pub fn room(&self, queue: u16) -> usize {
        self.rings[usize::from(queue)].free.len()
    }

    /// Adds a chain of these buffers, without a kick, and returns its head.
    pub fn add(&mut self, queue: u16, pieces: &[Piece<'_>]) -> u16 {
        let ring = &mut self.rings[usize::from(queue)];
        let indexes = ring.free.split_off(ring.free.len() - pieces.len());
        let mut chain = Vec::new();
        for (position, (index, piece)) in indexes.iter().zip(pieces).enumerate() {
            let (len, flags) = match piece {
                Piece::Read(bytes) => (bytes.len() as u32, 0),
                Piece::Write(len) => (*len, WRITE),
            };
            let next = indexes.get(position + 1);
            let flags = flags | next.map_or(0, |_| NEXT);
            let slot = self.slot(queue, *index);
            if let Piece::Read(bytes) = piece {
                self.mem.write_slice(bytes, slot).expect("slot");
            }
            chain.push((*index, if flags & WRITE == 0 { 0 } else { len }));
            let next = next.copied().unwrap_or(0);
            self.put_descriptor(queue, *index, Descriptor::new(slot.0, len, flags, next));
        }
        let head = indexes[0];
        self.rings[usize::from(queue)].chains.insert(head, chain);
        self.add_head(queue, head);
        head
    }

    /// Adds one chain that is a table of these buffers, without a kick, and returns its head.
    pub fn add_indirect(&mut self, queue: u16, buffers: &[(GuestAddress, u32)]) -> u16 {
        self.add_table(queue, buffers, 0)
    }

    /// The same with buffers that the device may write.
    pub fn post_indirect(&mut self, queue: u16, buffers: &[(GuestAddress, u32)]) -> u16 {
        self.add_table(queue, buffers, WRITE)
    }

    fn add_table(&mut self, queue: u16, buffers: &[(GuestAddress, u32)], access: u16) -> u16 {
        let head = self.rings[usize::from(queue)].free.pop().expect("room");
        let table = self.slot(queue, head);
        for (position, (address, len)) in buffers.iter().enumerate() {
            let last = position + 1 == buffers.len();
            let flags = access | if last { 0 } else { NEXT };
            let descriptor = Descriptor::new(address.0, *len, flags, position as u16 + 1);
            let entry = GuestAddress(table.0 + 16 * position as u64);
            self.mem.write_obj(descriptor, entry).expect("table");
        }
        let len = 16 * buffers.len() as u32;
        self.put_descriptor(queue, head, Descriptor::new(table.0, len, INDIRECT, 0));
        let chain = vec![(head, 0)];
        self.rings[usize::from(queue)].chains.insert(head, chain);
        self.add_head(queue, head);
        head
    }

    /// Puts a head, sensible or not, into the available ring and moves the index.
    pub fn add_head(&mut self, queue: u16, head: u16) {
        let available = self.available(queue).0;
        let ring = &mut self.rings[usize::from(queue)];
        let entry = available + 4 + 2 * u64::from(ring.available % ring.size);
        self.mem.write_obj(head, GuestAddress(entry)).expect("ring");
        ring.available = ring.available.wrapping_add(1);
        let index = ring.available;
        self.put_available_index(queue, index);
    }

    /// Writes the available index as it is, sensible or not.
    pub fn put_available_index(&self, queue: u16, index: u16) {
        let address = GuestAddress(self.available(queue).0 + 2);
        self.mem
            .store(index, address, Ordering::Release)
            .expect("ring");
    }

    /// Kicks the queue if the device asked to be told of what was added since the last call.
    /// Returns whether it did.
    pub fn kick(&mut self, queue: u16) -> bool {
        fence(Ordering::SeqCst);
        let wanted = if self.event_idx {
            let address = self.used(queue).0 + 4 + 8 * u64::from(self.ring(queue).size);
            let event: u16 = self.mem.read_obj(GuestAddress(address)).expect("ring");
            let ring = self.ring(queue);
            let behind = ring.available.wrapping_sub(event).wrapping_sub(1);
            behind < ring.available.wrapping_sub(ring.kicked)
        } else {
            let flags: u16 = self.mem.read_obj(self.used(queue)).expect("ring");
            flags & virtio_ring::VRING_USED_F_NO_NOTIFY as u16 == 0
        };
        let ring = &mut self.rings[usize::from(queue)];
        ring.kicked = ring.available;
        if wanted {
            self.force_kick(queue);
        }
        wanted
    }

    /// What [`kick`](Self::kick) would do, for nobody to hear: a kick that is under way as a
    /// snapshot is taken.
    pub fn lose_kick(&mut self, queue: u16) {
        let ring = &mut self.rings[usize::from(queue)];
        ring.kicked = ring.available;
    }

    /// Kicks the queue, asked or not.
    pub fn force_kick(&self, queue: u16) {
        self.transport
            .write(QUEUE_NOTIFY, &u32::from(queue).to_le_bytes());
    }

    /// Adds a chain of one readable buffer and kicks if asked to.
    pub fn send(&mut self, queue: u16, bytes: &[u8]) -> bool {
        self.add(queue, &[Piece::Read(bytes)]);
        self.kick(queue)
    }

    /// Posts `count` writable buffers of `len` bytes and kicks if asked to.
    pub fn post(&mut self, queue: u16, count: usize, len: u32) -> bool {
        for _ in 0..count {
            self.add(queue, &[Piece::Write(len)]);
        }
        self.kick(queue)
    }

    /// Asks for an interrupt with the next chain that comes back.
    pub fn want_interrupt(&self, queue: u16) {
        let ring = self.ring(queue);
        let address = self.available(queue).0 + 4 + 2 * u64::from(ring.size);
        self.mem
            .write_obj(ring.used, GuestAddress(address))
            .expect("ring");
    }

    /// Whether the device gave back a chain that was not taken yet.
    #[must_use]
    pub fn has_used(&self, queue: u16) -> bool {
        let index = GuestAddress(self.used(queue).0 + 2);
        let index: u16 = self.mem.load(index, Ordering::Acquire).expect("ring");
        index != self.ring(queue).used
    }

    /// The next chain the device gave back.
    pub fn take_used(&mut self, queue: u16) -> Option<Used> {
        let used = self.used(queue).0;
        let index: u16 = self
            .mem
            .load(GuestAddress(used + 2), Ordering::Acquire)
            .expect("ring");
        let ring = &mut self.rings[usize::from(queue)];
        if index == ring.used {
            return None;
        }
        let entry = used + 4 + 8 * u64::from(ring.used % ring.size);
        ring.used = ring.used.wrapping_add(1);
        let head: u32 = self.mem.read_obj(GuestAddress(entry)).expect("ring");
        let len: u32 = self.mem.read_obj(GuestAddress(entry + 4)).expect("ring");
        let head = u16::try_from(head).expect("head");
        let mut bytes = Vec::new();
        let chain = ring.chains.remove(&head).unwrap_or_default();
        ring.free
            .extend(chain.iter().rev().map(|(index, _)| *index));
        let mut left = len;
        for (index, writable) in chain {
            let mut buffer = vec![0; left.min(writable) as usize];
            left -= buffer.len() as u32;
            let slot = self.slot(queue, index);
            self.mem.read_slice(&mut buffer, slot).expect("slot");
            bytes.append(&mut buffer);
        }
        Some(Used { head, len, bytes })
    }

    /// Everything the device gave back so far.
    pub fn take_all_used(&mut self, queue: u16) -> Vec<Used> {
        std::iter::from_fn(|| self.take_used(queue)).collect()
    }

    fn ring(&self, queue: u16) -> &Ring {
        &self.rings[usize::from(queue)]
    }
}
