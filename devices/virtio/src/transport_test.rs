use proptest::prelude::*;
use virtio_bindings::virtio_mmio as reg;

use super::*;
use crate::mock::MEMORY_LEN;
use crate::spec::QUEUE_NOTIFY;
use crate::test_device::{ALL_FEATURES, Bench, FROM_GUEST, TO_GUEST};

const ACKNOWLEDGED: u32 = STATUS_ACKNOWLEDGE | STATUS_DRIVER;

#[test]
fn identifies_itself_as_a_version_2_device() {
    let bench = Bench::new();
    assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_MAGIC_VALUE), 0x7472_6976);
    assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_VERSION), 2);
    assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_DEVICE_ID), 42);
    assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_QUEUE_NUM_MAX), 16);
    assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_CONFIG_GENERATION), 0);
    assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_SHM_LEN_LOW), u32::MAX);
}

#[test]
fn features_read_in_two_halves_and_nothing_beyond() {
    let bench = Bench::new();
    for (sel, expected) in [
        (0, ALL_FEATURES as u32),
        (1, (ALL_FEATURES >> 32) as u32),
        (2, 0),
        (u32::MAX, 0),
    ] {
        bench.driver.set(reg::VIRTIO_MMIO_DEVICE_FEATURES_SEL, sel);
        assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_DEVICE_FEATURES), expected);
    }
}

#[test]
fn a_driver_that_keeps_the_order_activates_the_device_with_its_queues() {
    let mut bench = Bench::new();
    bench.driver.start(ALL_FEATURES);
    let activation = bench.device.activation.lock().unwrap();
    let activation = activation.as_ref().expect("activated");
    assert_eq!(activation.features, ALL_FEATURES);
    assert!(activation.queues.iter().all(Option::is_some));
}

#[test]
fn a_queue_the_driver_left_out_is_absent() {
    let mut bench = Bench::new();
    assert!(bench.driver.negotiate(ALL_FEATURES));
    bench.driver.enable(FROM_GUEST);
    bench.driver.driver_ok();
    let activation = bench.device.activation.lock().unwrap();
    let queues = &activation.as_ref().expect("activated").queues;
    assert!(queues[usize::from(TO_GUEST)].is_none());
    assert!(queues[usize::from(FROM_GUEST)].is_some());
}

#[test]
fn features_that_were_not_offered_do_not_stick() {
    let mut bench = Bench::new();
    assert!(!bench.driver.negotiate(ALL_FEATURES | 1));
    assert_eq!(bench.transport.status(), ACKNOWLEDGED);
}

#[test]
fn a_legacy_driver_is_refused() {
    let mut bench = Bench::new();
    assert!(!bench.driver.negotiate(F_EVENT_IDX));
}

#[test]
fn status_bits_out_of_order_are_ignored() {
    let bench = Bench::new();
    for (write, expected) in [
        (STATUS_DRIVER, 0),
        (STATUS_DRIVER_OK, 0),
        (STATUS_ACKNOWLEDGE, STATUS_ACKNOWLEDGE),
        // Leaves a bit out that is set: not allowed but for a reset.
        (STATUS_DRIVER, STATUS_ACKNOWLEDGE),
        (ACKNOWLEDGED, ACKNOWLEDGED),
        (ACKNOWLEDGED | STATUS_DRIVER_OK, ACKNOWLEDGED),
        (STATUS_ACKNOWLEDGE, ACKNOWLEDGED),
        (0, 0),
    ] {
        bench.driver.set(reg::VIRTIO_MMIO_STATUS, write);
        assert_eq!(bench.transport.status(), expected, "after {write:#x}");
    }
    assert!(bench.device.activation.lock().unwrap().is_none());
}

#[test]
fn a_driver_that_gave_up_is_believed_until_it_resets() {
    let mut bench = Bench::new();
    assert!(bench.driver.negotiate(ALL_FEATURES));
    let status = bench.transport.status();
    bench
        .driver
        .set(reg::VIRTIO_MMIO_STATUS, status | STATUS_FAILED);
    bench.driver.driver_ok();
    assert_eq!(bench.transport.status(), status | STATUS_FAILED);
    assert!(bench.device.activation.lock().unwrap().is_none());
    bench.driver.start(ALL_FEATURES);
}

#[test]
fn a_device_is_activated_once_however_often_the_driver_says_so() {
    let mut bench = Bench::new();
    bench.driver.start(ALL_FEATURES);
    // The test device panics on a second activation.
    bench.driver.driver_ok();
    bench.driver.driver_ok();
}

#[test]
fn queue_registers_are_deaf_outside_of_configuration_and_while_ready() {
    let mut bench = Bench::new();
    // Before FEATURES_OK.
    bench.driver.set(reg::VIRTIO_MMIO_QUEUE_READY, 1);
    assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_QUEUE_READY), 0);
    assert!(bench.driver.negotiate(ALL_FEATURES));
    bench.driver.enable(FROM_GUEST);
    // While ready: a broken size and address must not get through.
    bench.driver.set(reg::VIRTIO_MMIO_QUEUE_NUM, 3);
    bench.driver.set(reg::VIRTIO_MMIO_QUEUE_DESC_LOW, 7);
    assert_eq!(bench.driver.driver_ok() & STATUS_NEEDS_RESET, 0);
    // After DRIVER_OK.
    bench.driver.set(reg::VIRTIO_MMIO_QUEUE_READY, 0);
    assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_QUEUE_READY), 1);
}

#[test]
fn registers_of_a_queue_that_does_not_exist_read_zero_and_take_nothing() {
    let mut bench = Bench::new();
    assert!(bench.driver.negotiate(ALL_FEATURES));
    for queue in [2, 77, u32::MAX] {
        bench.driver.set(reg::VIRTIO_MMIO_QUEUE_SEL, queue);
        assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_QUEUE_NUM_MAX), 0);
        bench.driver.set(reg::VIRTIO_MMIO_QUEUE_READY, 1);
        assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_QUEUE_READY), 0);
    }
}

// B44: ring addresses unaligned, overlapping the end of memory, or nonsense.
#[test]
fn a_queue_that_cannot_live_leaves_the_device_dead_until_reset() {
    let size_register = reg::VIRTIO_MMIO_QUEUE_NUM;
    let end = MEMORY_LEN as u32;
    for (register, value) in [
        (size_register, 0),
        (size_register, 3),
        (size_register, 32),
        (size_register, 0x1_0010),
        (reg::VIRTIO_MMIO_QUEUE_DESC_LOW, 0x1_0008),
        (reg::VIRTIO_MMIO_QUEUE_AVAIL_LOW, 0x1_0001),
        (reg::VIRTIO_MMIO_QUEUE_USED_LOW, 0x1_0002),
        (reg::VIRTIO_MMIO_QUEUE_DESC_LOW, end - 0x10),
        (reg::VIRTIO_MMIO_QUEUE_AVAIL_LOW, end - 2),
        (reg::VIRTIO_MMIO_QUEUE_USED_LOW, end),
        (reg::VIRTIO_MMIO_QUEUE_DESC_HIGH, u32::MAX),
        (reg::VIRTIO_MMIO_QUEUE_USED_HIGH, 1),
    ] {
        let mut bench = Bench::new();
        assert!(bench.driver.negotiate(ALL_FEATURES));
        bench.driver.enable(FROM_GUEST);
        bench.driver.enable(TO_GUEST);
        bench.driver.set(reg::VIRTIO_MMIO_QUEUE_READY, 0);
        bench.driver.set(register, value);
        bench.driver.set(reg::VIRTIO_MMIO_QUEUE_READY, 1);
        let status = bench.driver.driver_ok();
        let case = format!("{value:#x} in register {register:#x}");
        assert_ne!(status & STATUS_NEEDS_RESET, 0, "{case}");
        assert!(bench.device.activation.lock().unwrap().is_none(), "{case}");
        assert_eq!(bench.interrupt.take(), 1, "{case}");
        assert_eq!(
            bench.driver.get(reg::VIRTIO_MMIO_INTERRUPT_STATUS),
            INTERRUPT_VRING | INTERRUPT_CONFIG,
        );
        // Dead means dead.
        bench.driver.driver_ok();
        assert!(bench.device.activation.lock().unwrap().is_none(), "{case}");
        // And a reset cures it.
        bench.driver.start(ALL_FEATURES);
        assert_eq!(bench.transport.status() & STATUS_NEEDS_RESET, 0, "{case}");
        assert_eq!(
            bench.driver.get(reg::VIRTIO_MMIO_INTERRUPT_STATUS),
            INTERRUPT_VRING,
        );
    }
}

#[test]
fn a_kick_reaches_the_device_in_any_width_and_only_for_its_queues() {
    let bench = Bench::new();
    let transport = &bench.transport;
    transport.write(QUEUE_NOTIFY, &1_u32.to_le_bytes());
    transport.write(QUEUE_NOTIFY, &[1]);
    transport.write(QUEUE_NOTIFY, &0_u16.to_le_bytes());
    transport.write(QUEUE_NOTIFY, &1_u64.to_le_bytes());
    for stray in [2, 0xffff, u32::MAX] {
        transport.write(QUEUE_NOTIFY, &stray.to_le_bytes());
    }
    transport.write(QUEUE_NOTIFY, &(1_u64 << 32).to_le_bytes());
    transport.write(QUEUE_NOTIFY, &[1; 9]);
    assert_eq!(*bench.device.kicks.lock().unwrap(), [1, 1, 0, 1]);
}

#[test]
fn reset_in_the_middle_forgets_everything() {
    let mut bench = Bench::new();
    bench.driver.start(ALL_FEATURES);
    bench.driver.set(reg::VIRTIO_MMIO_STATUS, 0);
    assert_eq!(bench.transport.status(), 0);
    assert!(bench.device.activation.lock().unwrap().is_none());
    assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_QUEUE_READY), 0);
    bench.driver.start(ALL_FEATURES);
    assert!(bench.device.activation.lock().unwrap().is_some());
}

#[test]
fn the_interrupt_status_is_constant_whatever_is_acknowledged() {
    let bench = Bench::new();
    for _ in 0..2 {
        assert_eq!(bench.driver.get(reg::VIRTIO_MMIO_INTERRUPT_STATUS), 1);
        bench.driver.set(reg::VIRTIO_MMIO_INTERRUPT_ACK, u32::MAX);
    }
}

#[test]
fn configuration_space_reads_in_any_width_and_zero_beyond() {
    let bench = Bench::new();
    let mut byte = [0xff; 1];
    bench.transport.read(0x103, &mut byte);
    assert_eq!(byte, [0x13]);
    let mut long = [0xff; 8];
    bench.transport.read(0x104, &mut long);
    assert_eq!(long, [0x14, 0x15, 0x16, 0x17, 0, 0, 0, 0]);
    bench.transport.read(u64::MAX, &mut long);
    assert_eq!(long, [0; 8]);
}

#[test]
fn registers_in_another_width_read_zero_and_take_nothing() {
    let bench = Bench::new();
    for width in [1, 2, 3, 8] {
        let mut data = vec![0xff; width];
        bench.transport.read(0, &mut data);
        assert_eq!(data, vec![0; width]);
    }
    bench.transport.read(0, &mut []);
    bench.transport.write(0x70, &[1]);
    bench.transport.write(0x70, &[1, 0, 0, 0, 0, 0, 0, 0]);
    bench.transport.write(0x70, &[]);
    assert_eq!(bench.transport.status(), 0);
}

proptest! {
    #[test]
    fn no_sequence_of_accesses_panics_or_spoils_the_device(
        accesses in prop::collection::vec(
            (any::<bool>(), 0_u64..0x120, 0_usize..10, any::<u64>(), any::<bool>()),
            0..200,
        )
    ) {
        let mut bench = Bench::new();
        for (is_write, offset, width, value, small) in accesses {
            let value = if small { value & 0xf } else { value };
            let offset = if small { offset & !3 } else { offset };
            let mut data = [0; 10];
            data[..8].copy_from_slice(&value.to_le_bytes());
            let width = if small { 4 } else { width };
            if is_write {
                bench.transport.write(offset, &data[..width]);
            } else {
                bench.transport.read(offset, &mut data[..width]);
            }
        }
        bench.driver.start(ALL_FEATURES);
    }
}
