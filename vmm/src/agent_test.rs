use std::sync::Mutex;

use forebay_virtio::{Doorbell, Interrupt};
use forebay_virtio_console::ConsoleSink;

use super::*;
use crate::stop::eventfd;

/// Everything the device needs besides the gate, and none of it does anything.
struct Nothing;

impl Interrupt for Nothing {
    fn signal_queue(&self) {}
}

impl Doorbell for Nothing {
    fn ring(&self) {}
}

impl ConsoleSink for Nothing {
    fn write(&self, _bytes: &[u8]) {}
}

/// Counts how often it was settled, and panics then if that is wanted.
#[derive(Default)]
struct Settler {
    settled: Mutex<u32>,
    panics: bool,
}

impl Gate for Settler {
    fn judge(&self, _head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        Verdict::Discard(rest)
    }

    fn deliver(&self, _payload: Vec<u8>) -> Result<(), &'static str> {
        Ok(())
    }

    fn next_to_guest(&self) -> Option<Outgoing> {
        None
    }

    fn opened(&self) {}

    fn closed(&self, _why: Closed) {}

    fn settle(&self) {
        *self.settled.lock().unwrap() += 1;
        assert!(!self.panics, "as the test wants it");
    }
}

fn transmitter(gate: Arc<dyn Gate>) -> (Transmitter, Arc<Lifecycle>) {
    let console = Console::new(
        gate,
        Arc::new(Nothing),
        Arc::new(Nothing),
        Arc::new(Nothing),
    );
    let lifecycle = Arc::new(Lifecycle::new(eventfd().unwrap()));
    let deadlines = Arc::new(Deadlines::new().unwrap());
    let transmitter = Transmitter::new(console, Arc::clone(&lifecycle), deadlines);
    (transmitter, lifecycle)
}

#[test]
fn a_panic_on_the_applications_thread_ends_the_vm_and_spares_the_application() {
    let gate = Arc::new(Settler {
        panics: true,
        ..Settler::default()
    });
    let (transmitter, lifecycle) = transmitter(gate);
    let called = std::thread::Builder::new()
        .name("application".into())
        .spawn(move || transmitter.transmit())
        .unwrap()
        .join();
    assert!(called.is_ok(), "the panic reached the application");
    assert_eq!(
        lifecycle.reason(),
        Some(StopReason::Internal {
            thread: "application".into(),
            message: "as the test wants it".into(),
        })
    );
}

#[test]
fn every_layer_passes_the_settling_on() {
    let gate = Arc::new(Settler::default());
    let clock = Arc::new(BootClock::start());
    let deadlines = Arc::new(Deadlines::new().unwrap());
    let alone = Arc::new(GateAlone(Arc::clone(&gate) as _));
    let threshold = Threshold::new(alone, clock, deadlines);
    let (transmitter, lifecycle) = transmitter(Arc::new(threshold));
    transmitter.transmit();
    assert_eq!(*gate.settled.lock().unwrap(), 1);
    assert_eq!(lifecycle.reason(), None);
}

#[test]
fn a_guest_that_opens_its_port_again_and_again_does_not_hurry_the_agents_clock() {
    let deadlines = Arc::new(Deadlines::new().unwrap());
    let clock = Arc::new(BootClock::start());
    let threshold = Threshold::new(Arc::new(NoAgent), clock, Arc::clone(&deadlines));
    threshold.opened();
    assert_eq!(deadlines.take_due().unwrap(), [Deadline::Agent]);
    for _ in 0..10 {
        threshold.closed(Closed::ByGuest);
        threshold.opened();
    }
    assert_eq!(deadlines.take_due().unwrap(), []);
}

#[test]
fn only_a_reset_is_looked_at_again_later() {
    let deadlines = Arc::new(Deadlines::new().unwrap());
    let clock = Arc::new(BootClock::start());
    let threshold = Threshold::new(Arc::new(NoAgent), clock, Arc::clone(&deadlines));
    threshold.opened();
    deadlines.take_due().unwrap();
    threshold.closed(Closed::ByGuest);
    std::thread::sleep(RESET_GRACE);
    assert_eq!(deadlines.take_due().unwrap(), []);
    threshold.opened();
    threshold.closed(Closed::Reset);
    std::thread::sleep(RESET_GRACE);
    assert_eq!(deadlines.take_due().unwrap(), [Deadline::Reset]);
}

#[test]
fn deadlines_of_executions_are_kept_by_the_earliest() {
    let (transmitter, lifecycle) = transmitter(Arc::new(NoAgent));
    let now = Instant::now();
    transmitter.expire_at(now);
    transmitter.expire_at(now + Duration::from_secs(1000));
    let due = transmitter.deadlines.take_due().unwrap();
    assert_eq!(due, [Deadline::Executions]);
    assert_eq!(lifecycle.reason(), None);
}
