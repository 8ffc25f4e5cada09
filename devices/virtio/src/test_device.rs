//! A device of two queues that does nothing but hand its queues to the test.

use std::sync::{Arc, Mutex};

use vm_memory::GuestMemoryMmap;

use crate::device::{Activation, Direction, QueueSpec, VirtioDevice};
use crate::mock::{self, Bell, MockDriver};
use crate::queue::Virtqueue;
use crate::spec::{F_EVENT_IDX, F_INDIRECT_DESC, F_VERSION_1};
use crate::transport::MmioTransport;

pub(crate) const TO_GUEST: u16 = 0;
pub(crate) const FROM_GUEST: u16 = 1;

pub(crate) const ALL_FEATURES: u64 = F_VERSION_1 | F_EVENT_IDX | F_INDIRECT_DESC;

const SPECS: [QueueSpec; 2] = [
    QueueSpec {
        max_size: 16,
        direction: Direction::ToGuest,
    },
    QueueSpec {
        max_size: 16,
        direction: Direction::FromGuest,
    },
];

#[derive(Debug, Default)]
pub(crate) struct TestDevice {
    pub(crate) activation: Mutex<Option<Activation>>,
    pub(crate) kicks: Mutex<Vec<u16>>,
    pub(crate) resets: Mutex<usize>,
}

impl VirtioDevice for TestDevice {
    fn device_type(&self) -> u32 {
        42
    }

    fn features(&self) -> u64 {
        ALL_FEATURES
    }

    fn queues(&self) -> &[QueueSpec] {
        &SPECS
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) {
        for (position, byte) in data.iter_mut().enumerate() {
            let at = offset.saturating_add(position as u64);
            *byte = if at < 8 { 0x10 + at as u8 } else { 0 };
        }
    }

    fn activate(&self, activation: Activation) {
        let before = self.activation.lock().unwrap().replace(activation);
        assert!(before.is_none(), "activated twice without a reset");
    }

    fn notify(&self, queue: u16) {
        self.kicks.lock().unwrap().push(queue);
    }

    fn reset(&self) {
        *self.activation.lock().unwrap() = None;
        *self.resets.lock().unwrap() += 1;
    }
}

/// Memory, device, transport and driver, not yet introduced to one another.
pub(crate) struct Bench {
    pub(crate) mem: GuestMemoryMmap,
    pub(crate) device: Arc<TestDevice>,
    pub(crate) interrupt: Arc<Bell>,
    pub(crate) transport: Arc<MmioTransport>,
    pub(crate) driver: MockDriver,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let mem = mock::memory();
        let device = Arc::new(TestDevice::default());
        let interrupt = Arc::new(Bell::default());
        let transport = Arc::new(MmioTransport::new(
            mem.clone(),
            device.clone(),
            interrupt.clone(),
        ));
        let driver = MockDriver::new(mem.clone(), transport.clone());
        Self {
            mem,
            device,
            interrupt,
            transport,
            driver,
        }
    }

    /// Up with all features, and the two live queues: towards and from the guest.
    pub(crate) fn started() -> (Self, Virtqueue, Virtqueue) {
        Self::started_with(ALL_FEATURES)
    }

    pub(crate) fn started_with(features: u64) -> (Self, Virtqueue, Virtqueue) {
        let mut bench = Self::new();
        bench.driver.start(features);
        let (to_guest, from_guest) = bench.take_queues();
        (bench, to_guest, from_guest)
    }

    pub(crate) fn take_queues(&self) -> (Virtqueue, Virtqueue) {
        let mut activation = self.device.activation.lock().unwrap();
        let queues = &mut activation.as_mut().expect("activated").queues;
        let from_guest = queues[usize::from(FROM_GUEST)].take();
        let to_guest = queues[usize::from(TO_GUEST)].take();
        (to_guest.expect("enabled"), from_guest.expect("enabled"))
    }
}
