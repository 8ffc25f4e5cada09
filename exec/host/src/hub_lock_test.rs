//! The application's code never runs under the hub's lock, nor inside a call of the device: not
//! the owner of a buffer that is dropped, and not a tracing subscriber. Each of them here looks
//! whether the lock is free.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use forebay_exec_proto::StdinError;
use tracing::span;
use tracing::subscriber::with_default;

use super::Hub;
use crate::fake_guest::{ByHand, FakeVm, inside, is_inside};
use crate::{ExecHandle, ExecSink, Limits, Stdin};

/// Counts what ran, and whether the locks were free each time.
#[derive(Default)]
struct Witness {
    ran: AtomicUsize,
    locked: AtomicBool,
}

impl Witness {
    fn look(&self, hub: &Hub) {
        self.ran.fetch_add(1, Ordering::SeqCst);
        if is_inside() || hub.inner.try_lock().is_err() {
            self.locked.store(true, Ordering::SeqCst);
        }
    }
}

/// The owner of an application's buffer.
struct Owner {
    bytes: Vec<u8>,
    hub: Arc<Hub>,
    witness: Arc<Witness>,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.witness.look(&self.hub);
    }
}

fn owned(vm: &FakeVm, witness: &Arc<Witness>) -> Bytes {
    Bytes::from_owner(Owner {
        bytes: vec![7; 1 << 20],
        hub: Arc::clone(&vm.hub),
        witness: Arc::clone(witness),
    })
}

fn piped(vm: &FakeVm) -> (ExecHandle, ExecSink) {
    let stall = vm.client.exec("stall", [""; 0]).stdin(Stdin::piped());
    let mut handle = vm.run(stall.spawn()).unwrap();
    let sink = handle.take_stdin().unwrap();
    (handle, sink)
}

/// Lets a write wait for room, does something to its execution, and lets it learn of that.
fn during_a_write(vm: &FakeVm, data: Bytes, act: impl FnOnce(&FakeVm, &ExecHandle)) {
    let (handle, sink) = piped(vm);
    let mut write = ByHand::new(sink.write(data));
    assert!(write.poll().is_pending());
    vm.settle();
    assert!(!write.woken.is_set(), "nobody reads it");
    act(vm, &handle);
    vm.settle();
    assert!(write.poll().is_ready());
}

type Path = (&'static str, fn(&FakeVm, Bytes));

const PATHS: [Path; 14] = [
    ("written whole", |vm, data| {
        let drain = vm.client.exec("drain", [""; 0]).stdin(Stdin::piped());
        let mut handle = vm.run(drain.spawn()).unwrap();
        let sink = handle.take_stdin().unwrap();
        vm.run(sink.write(data)).unwrap();
    }),
    ("fixed bytes sent whole", |vm, data| {
        let drain = vm.client.exec("drain", [""; 0]).stdin(Stdin::bytes(data));
        vm.run(drain.output()).unwrap();
    }),
    ("start refused at capacity", |vm, data| {
        let _both = (piped(vm), piped(vm));
        let third = vm.client.exec("drain", [""; 0]).stdin(Stdin::bytes(data));
        vm.run(third.spawn()).unwrap_err();
    }),
    ("start refused without a connection", |vm, data| {
        vm.hub.closed("the port was closed");
        let start = vm.client.exec("drain", [""; 0]).stdin(Stdin::bytes(data));
        vm.run(start.spawn()).unwrap_err();
    }),
    ("start refused for its size", |vm, data| {
        let start = vm.client.exec("drain", ["x".repeat(2 << 20)]);
        vm.run(start.stdin(Stdin::bytes(data)).spawn()).unwrap_err();
    }),
    ("program not found", |vm, data| {
        let start = vm.client.exec("missing", [""; 0]).stdin(Stdin::bytes(data));
        vm.run(start.spawn()).unwrap_err();
    }),
    ("handle dropped", |vm, data| {
        let start = vm.client.exec("stall", [""; 0]).stdin(Stdin::bytes(data));
        drop(vm.run(start.spawn()).unwrap());
    }),
    ("write cancelled", |vm, data| {
        let (_handle, sink) = piped(vm);
        let mut write = ByHand::new(sink.write(data));
        assert!(write.poll().is_pending());
    }),
    ("write refused", |vm, data| {
        let (_handle, sink) = piped(vm);
        vm.run(sink.close()).unwrap();
        vm.run(sink.write(data)).unwrap_err();
    }),
    ("killed during a write", |vm, data| {
        during_a_write(vm, data, |_, handle| handle.kill());
    }),
    ("stdin closed by the command during a write", |vm, data| {
        during_a_write(vm, data, |vm, handle| {
            let error = StdinError {
                errno: 32,
                name: "EPIPE".to_owned(),
                message: "Broken pipe".to_owned(),
            };
            vm.agent(|conn| conn.stdin_error(handle.id(), error));
        });
    }),
    ("a rule broken during a write", |vm, data| {
        during_a_write(vm, data, |vm, handle| {
            // A stdout frame of one byte more than a chunk may have.
            let mut chain = vec![0x01, 0x40, 0, 0, 0x91, 0, 0, 0];
            chain.extend(handle.id().get().to_le_bytes());
            chain.extend([0; 0x4001]);
            assert_eq!(vm.deliver_chain(&chain), None);
        });
    }),
    ("connection lost during a write", |vm, data| {
        during_a_write(vm, data, |vm, _| vm.hub.closed("the port was closed"));
    }),
    ("VM gone during a write", |vm, data| {
        during_a_write(vm, data, |vm, _| vm.hub.vm_gone("stopped"));
    }),
];

#[test]
fn a_buffers_owner_is_dropped_once_and_outside_the_locks_on_every_path() {
    for (name, path) in PATHS {
        let vm = FakeVm::with_limits(Limits {
            max_executions: 2,
            ..Limits::default()
        });
        let witness = Arc::<Witness>::default();
        path(&vm, owned(&vm, &witness));
        vm.settle();
        assert_eq!(witness.ran.load(Ordering::SeqCst), 1, "{name}");
        assert!(!witness.locked.load(Ordering::SeqCst), "{name}");
    }
}

#[test]
fn no_buffer_is_kept_for_a_device_that_pulls_no_more() {
    type End = (&'static str, fn(&FakeVm));
    let ends: [End; 2] = [
        ("closed", |vm| {
            inside(|| vm.hub.closed("the port was closed"))
        }),
        ("opened again", |vm| inside(|| vm.hub.opened())),
    ];
    for (name, end) in ends {
        let vm = FakeVm::new();
        let witness = Arc::<Witness>::default();
        let (_handle, sink) = piped(&vm);
        let data = owned(&vm, &witness).slice(..100);
        let mut write = ByHand::new(sink.write(data));
        assert!(write.poll().is_pending());
        assert!(inside(|| vm.hub.next_to_guest()).is_some());
        assert_eq!(witness.ran.load(Ordering::SeqCst), 0, "{name}: lent");
        end(&vm);
        vm.hub.settle();
        assert_eq!(witness.ran.load(Ordering::SeqCst), 1, "{name}: returned");
        assert!(!witness.locked.load(Ordering::SeqCst), "{name}");
    }
}

#[test]
fn a_buffer_that_the_device_is_placing_is_kept_at_the_vms_end() {
    type Back = fn(&FakeVm);
    let ways: [Back; 2] = [
        |vm| drop(inside(|| vm.hub.next_to_guest())),
        |vm| inside(|| vm.hub.closed("the device is reset")),
    ];
    for back in ways {
        let vm = FakeVm::new();
        let witness = Arc::<Witness>::default();
        let (handle, sink) = piped(&vm);
        let data = owned(&vm, &witness).slice(..100);
        let mut write = ByHand::new(sink.write(data));
        assert!(write.poll().is_pending());
        let frame = inside(|| vm.hub.next_to_guest()).unwrap();
        vm.hub.vm_gone("stopped");
        drop(write);
        drop((handle, sink));
        vm.hub.settle();
        inside(|| drop(frame));
        assert_eq!(witness.ran.load(Ordering::SeqCst), 0, "dropped in there");
        back(&vm);
        vm.hub.settle();
        assert_eq!(witness.ran.load(Ordering::SeqCst), 1, "returned");
        assert!(!witness.locked.load(Ordering::SeqCst));
    }
}

/// A subscriber that takes every event.
struct Listener {
    hub: Arc<OnceLock<Arc<Hub>>>,
    witness: Arc<Witness>,
}

impl tracing::Subscriber for Listener {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        if let Some(hub) = self.hub.get() {
            self.witness.look(hub);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_subscriber_hears_of_every_turn_outside_the_locks() {
    let hub = Arc::<OnceLock<Arc<Hub>>>::default();
    let witness = Arc::<Witness>::default();
    let listener = Listener {
        hub: Arc::clone(&hub),
        witness: Arc::clone(&witness),
    };
    with_default(listener, || {
        let heard = |expected, what| {
            assert_eq!(witness.ran.load(Ordering::SeqCst), expected, "{what}");
            assert!(!witness.locked.load(Ordering::SeqCst), "{what}");
        };
        let vm = FakeVm::before_open(Limits::default());
        hub.get_or_init(|| Arc::clone(&vm.hub));
        vm.hub.opened();
        vm.settle();
        heard(1, "ready");
        let handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
        heard(3, "admitted and started");
        vm.hub.closed("the port was closed");
        vm.settle();
        heard(4, "connection lost");
        vm.hub.vm_gone("stopped");
        vm.settle();
        heard(5, "VM gone");
        drop(handle);
    });
}
