use super::super::RecordProblem;
use super::*;
use crate::agent::NoAgent;
use crate::testing::{SPIN, run};
use std::sync::Arc;

/// `None`, with a note, where there is no KVM.
fn saved() -> Option<Records> {
    let machine = run(&[&SPIN], Arc::new(NoAgent))?;
    Some(machine.pause().unwrap().save().unwrap().records)
}

fn platform(records: &Records) -> PlatformV1 {
    let bytes = records.clone().take(PLATFORM, VERSION).unwrap();
    form::decode(PLATFORM, &bytes).unwrap()
}

fn with(records: &Records, platform: &PlatformV1) -> Records {
    let mut records = records.clone();
    records.take(PLATFORM, VERSION).unwrap();
    records.put(PLATFORM, VERSION, form::encode(platform));
    records
}

#[test]
fn what_is_taken_is_what_was_put() {
    let Some(records) = saved() else { return };
    let serial = SerialState {
        baud_divisor_low: 1,
        baud_divisor_high: 2,
        interrupt_enable: 3,
        interrupt_identification: 4,
        line_control: 5,
        line_status: 6,
        modem_control: 7,
        modem_status: 8,
        scratch: 9,
        in_buffer: vec![10, 11],
    };
    let devices = SavedDevices {
        serial,
        panicked: true,
        ..SavedDevices::take(&mut records.clone()).unwrap()
    };
    let mut again = Records::default();
    devices.put(&mut again);
    assert_eq!(
        form::encode(&platform(&again)),
        [
            &[0x83, 0x49, 1, 2, 3, 4, 5, 6, 7, 8, 9][..],
            &[0x42, 10, 11, 0xf5]
        ]
        .concat(),
        "the form of version 1"
    );
    assert_eq!(SavedDevices::take(&mut again).unwrap(), devices);
    again.finish().unwrap();
}

#[test]
fn a_serial_device_holds_what_it_has_room_for_and_no_more() {
    let Some(records) = saved() else { return };
    let mut full = platform(&records);
    full.serial_fifo = vec![b'x'; SERIAL_FIFO];
    let devices = SavedDevices::take(&mut with(&records, &full)).unwrap();
    let sink = crate::bus::SerialInterrupt(crate::stop::eventfd().unwrap());
    let events = vm_superio::serial::NoEvents;
    vm_superio::Serial::from_state(&devices.serial, sink, events, std::io::sink()).unwrap();
    full.serial_fifo.push(b'x');
    match SavedDevices::take(&mut with(&records, &full)) {
        Err(RestoreError::Record { record, problem }) => {
            assert_eq!(record, PLATFORM);
            assert!(matches!(problem, RecordProblem::Rule(_)), "{problem}");
        }
        other => panic!("{other:?}"),
    }
}
