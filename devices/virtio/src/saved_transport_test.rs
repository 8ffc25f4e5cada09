use proptest::prelude::*;
use virtio_bindings::virtio_mmio as reg;

use super::*;
use crate::mock::{MEMORY_LEN, MockDriver};
use crate::spec::{F_EVENT_IDX, INTERRUPT_CONFIG, INTERRUPT_VRING};
use crate::test_device::{ALL_FEATURES, Bench, FROM_GUEST, TO_GUEST, TestDevice};

type Restored = (MmioTransport, Option<Activation>);

fn restore(bench: &Bench, saved: &SavedTransport) -> Result<Restored, RestoreError> {
    MmioTransport::restore(
        saved,
        bench.mem.clone(),
        Arc::new(TestDevice::default()),
        bench.interrupt.clone(),
    )
}

/// Up to `DRIVER_OK`.
fn started() -> Bench {
    let mut bench = Bench::new();
    bench.driver.start(ALL_FEATURES);
    bench
}

#[test]
fn a_restored_device_has_its_queues_and_is_not_activated() {
    let mut bench = started();
    let device = Arc::new(TestDevice::default());
    let (transport, activation) = MmioTransport::restore(
        &bench.transport.save(),
        bench.mem.clone(),
        device.clone(),
        bench.interrupt.clone(),
    )
    .unwrap();
    let activation = activation.expect("the driver is ready");
    assert_eq!(activation.features, ALL_FEATURES);
    assert!(activation.queues.iter().all(Option::is_some));
    assert!(device.activation.lock().unwrap().is_none());
    assert_eq!(*device.resets.lock().unwrap(), 0);
    // Kicks reach the new device, and so does a reset.
    bench.driver.attach(Arc::new(transport));
    bench.driver.force_kick(FROM_GUEST);
    assert_eq!(*device.kicks.lock().unwrap(), [FROM_GUEST]);
    bench.driver.start(ALL_FEATURES);
    assert!(device.activation.lock().unwrap().is_some());
}

#[test]
fn a_queue_that_the_driver_left_out_stays_absent() {
    let mut bench = Bench::new();
    assert!(bench.driver.negotiate(ALL_FEATURES));
    bench.driver.enable(FROM_GUEST);
    bench.driver.driver_ok();
    let (_, activation) = restore(&bench, &bench.transport.save()).unwrap();
    let queues = activation.expect("the driver is ready").queues;
    assert!(queues[usize::from(TO_GUEST)].is_none());
    assert!(queues[usize::from(FROM_GUEST)].is_some());
}

#[test]
fn a_device_that_failed_stays_failed_until_it_is_reset() {
    let mut bench = Bench::new();
    assert!(bench.driver.negotiate(ALL_FEATURES));
    bench.driver.set(reg::VIRTIO_MMIO_QUEUE_NUM, 3);
    bench.driver.set(reg::VIRTIO_MMIO_QUEUE_READY, 1);
    bench.driver.driver_ok();
    let (transport, activation) = restore(&bench, &bench.transport.save()).unwrap();
    assert!(activation.is_none());
    bench.driver.attach(Arc::new(transport));
    let both = INTERRUPT_VRING | INTERRUPT_CONFIG;
    assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_INTERRUPT_STATUS), both);
    bench.driver.start(ALL_FEATURES);
    let cured = bench.driver.get(reg::VIRTIO_MMIO_INTERRUPT_STATUS);
    assert_eq!(cured, INTERRUPT_VRING);
}

#[test]
fn each_rule_of_the_registers_is_checked() {
    let refused = |bench: &Bench, word: &str, spoil: &dyn Fn(&mut TransportV1)| {
        let mut saved = bench.transport.save();
        assert!(restore(bench, &saved).is_ok());
        spoil(&mut saved.0);
        let error = restore(bench, &saved).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(word), "{error} is not: {word}");
    };
    let up = started();
    refused(&up, "does not exist", &|saved| saved.status |= 1 << 5);
    refused(&up, "out of order", &|saved| saved.status &= !STATUS_DRIVER);
    refused(&up, "does not have", &|saved| saved.driver_features |= 1);
    refused(&up, "does not have", &|saved| {
        saved.driver_features = F_EVENT_IDX;
    });
    refused(&up, "queues are sound", &|saved| {
        saved.status |= STATUS_NEEDS_RESET;
    });
    refused(&up, "another number", &|saved| {
        saved.queues.pop();
    });
    refused(&up, "another number", &|saved| {
        saved.queues.push(saved.queues[0].clone());
    });
    refused(&up, "not a power of two", &|saved| saved.queues[0].size = 3);
    refused(&up, "not aligned", &|saved| saved.queues[1].used += 2);
    refused(&up, "queue 1 of the saved", &|saved| {
        saved.queues[1].descriptors = MEMORY_LEN;
    });

    let fresh = Bench::new();
    refused(&fresh, "before its driver was ready", &|saved| {
        saved.status |= STATUS_NEEDS_RESET;
    });
    refused(&fresh, "before there was a driver", &|saved| {
        saved.driver_features = F_VERSION_1;
    });
    refused(&fresh, "set up before", &|saved| {
        saved.queues[0].ready = true;
    });
}

/// A store that a driver makes sooner or later.
fn store() -> impl Strategy<Value = (u32, u32)> {
    let status = prop::sample::select(vec![0, 1, 3, 11, 11, 15, 15, 0x80, 0x8f, 0x40]);
    let features = prop_oneof![Just(ALL_FEATURES as u32), Just(1), any::<u32>()];
    let address = prop_oneof![0_u32..0x1000, any::<u32>()].prop_map(|address| address << 4);
    let addresses = vec![
        reg::VIRTIO_MMIO_QUEUE_DESC_LOW,
        reg::VIRTIO_MMIO_QUEUE_AVAIL_LOW,
        reg::VIRTIO_MMIO_QUEUE_USED_LOW,
        reg::VIRTIO_MMIO_QUEUE_USED_HIGH,
    ];
    prop_oneof![
        6 => status.prop_map(|value| (reg::VIRTIO_MMIO_STATUS, value)),
        2 => (0_u32..3).prop_map(|value| (reg::VIRTIO_MMIO_DRIVER_FEATURES_SEL, value)),
        2 => (0_u32..3).prop_map(|value| (reg::VIRTIO_MMIO_DEVICE_FEATURES_SEL, value)),
        2 => features.prop_map(|value| (reg::VIRTIO_MMIO_DRIVER_FEATURES, value)),
        2 => (0_u32..3).prop_map(|value| (reg::VIRTIO_MMIO_QUEUE_SEL, value)),
        2 => (0_u32..34).prop_map(|value| (reg::VIRTIO_MMIO_QUEUE_NUM, value)),
        2 => (0_u32..2).prop_map(|value| (reg::VIRTIO_MMIO_QUEUE_READY, value)),
        2 => (prop::sample::select(addresses), address),
    ]
}

/// Up to where the driver may set up queues: the rest is for chance.
fn beginning() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let negotiated = vec![
        (reg::VIRTIO_MMIO_STATUS, 3),
        (reg::VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1),
        (
            reg::VIRTIO_MMIO_DRIVER_FEATURES,
            (ALL_FEATURES >> 32) as u32,
        ),
        (reg::VIRTIO_MMIO_STATUS, 11),
    ];
    prop_oneof![Just(vec![]), Just(negotiated)]
}

proptest! {
    #[test]
    fn whatever_a_driver_wrote_can_be_saved_and_restored_after_every_step(
        beginning in beginning(),
        stores in prop::collection::vec(store(), 0..60),
    ) {
        let bench = Bench::new();
        // What the restored device has is what the first one was given.
        for (register, value) in beginning.into_iter().chain(stores) {
            bench.driver.set(register, value);
            let saved = bench.transport.save();
            let decoded = SavedTransport::decode(&saved.encode());
            prop_assert_eq!(decoded.as_ref(), Ok(&saved));
            let (again, activation) = restore(&bench, &saved).unwrap();
            prop_assert_eq!(again.save(), saved);
            let live = bench.device.activation.lock().unwrap();
            prop_assert_eq!(
                activation.as_ref().map(|a| (a.features, format!("{:?}", a.queues))),
                live.as_ref().map(|a| (a.features, format!("{:?}", a.queues)))
            );
            drop(live);
            let register = reg::VIRTIO_MMIO_INTERRUPT_STATUS;
            let status = bench.driver.get(register);
            let driver = MockDriver::new(bench.mem.clone(), Arc::new(again));
            prop_assert_eq!(driver.get(register), status);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn a_changed_byte_is_refused_or_gives_registers_that_work(
        ready in any::<bool>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let bench = if ready { started() } else { Bench::new() };
        let mut bytes = bench.transport.save().encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let Ok(saved) = SavedTransport::decode(&bytes) else {
            return Ok(());
        };
        let Ok((again, _)) = restore(&bench, &saved) else {
            return Ok(());
        };
        prop_assert_eq!(again.save(), saved);
        MockDriver::new(bench.mem.clone(), Arc::new(again)).start(ALL_FEATURES);
    }
}

// The bytes of version 1. A later library reads them as what they were, or refuses them by name.
#[test]
fn the_bytes_of_version_1_are_what_they_were() {
    const BYTES: &str = "\
        8201860f01021b000000013000000001828510f51904001908001910008508f4000000";
    let saved = SavedTransport(TransportV1 {
        status: 15,
        device_features_sel: 1,
        driver_features_sel: 2,
        driver_features: ALL_FEATURES,
        queue_sel: 1,
        queues: vec![
            QueueRegistersV1 {
                size: 16,
                ready: true,
                descriptors: 0x400,
                available: 0x800,
                used: 0x1000,
            },
            QueueRegistersV1 {
                size: 8,
                ready: false,
                descriptors: 0,
                available: 0,
                used: 0,
            },
        ],
    });
    let bytes = saved.encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, BYTES);
    assert_eq!(SavedTransport::decode(&bytes), Ok(saved.clone()));
    let bench = Bench::new();
    assert!(restore(&bench, &saved).is_ok());
}
