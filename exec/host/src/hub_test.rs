use std::sync::{Arc, Barrier, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::{Hub, Link};
use crate::fake_guest::{ByHand, FakeVm};
use crate::{Config, ControlError, ExecError, ExecEvent, ExecHandle, Limits, Signal, Stdin};
use crate::{FailureKind, WriteError};

#[test]
fn limits_that_cannot_work_are_refused_by_name() {
    let limits = Limits { input_limit: 0, ..Limits::default() };
    let error = Hub::new(Config { limits, ..Config::default() }).unwrap_err();
    assert_eq!(error.field, "input_limit");
}

#[test]
fn nothing_is_sent_and_nothing_starts_before_the_guest_opens_its_port() {
    let vm = FakeVm::before_open(Limits::default());
    assert!(vm.hub.next_to_guest().is_none());
    let error = vm.run(vm.client.exec("exit", ["0"]).spawn()).unwrap_err();
    assert!(matches!(error, ExecError::NotReady), "{error}");
    assert_eq!(vm.client.active(), 0);
}

#[test]
fn ready_waits_for_the_agents_answer() {
    let vm = FakeVm::before_open(Limits::default());
    let mut ready = ByHand::new(vm.hub.ready());
    assert!(ready.poll().is_pending());
    vm.hub.opened();
    assert!(!ready.woken.is_set());
    vm.settle();
    assert!(ready.woken.is_set());
    assert!(matches!(ready.poll(), Poll::Ready(Ok(answer)) if answer.version == "fake"));
}

#[test]
fn ready_fails_with_the_reason_when_the_connection_ends_first() {
    let vm = FakeVm::before_open(Limits::default());
    vm.hub.opened();
    let mut ready = ByHand::new(vm.hub.ready());
    assert!(ready.poll().is_pending());
    vm.hub.vm_gone("the guest panicked");
    assert!(ready.woken.is_set());
    let Poll::Ready(Err(ExecError::VmGone { reason })) = ready.poll() else { panic!() };
    assert_eq!(reason, "the guest panicked");
}

#[test]
fn the_link_is_kicked_when_idle_becomes_pending_and_not_again_before_it_was_drained() {
    let vm = FakeVm::new();
    let before = vm.kicks();
    let mut starts: Vec<_> =
        (0..5).map(|_| ByHand::new(vm.client.exec("stall", [""; 0]).spawn())).collect();
    for start in &mut starts {
        assert!(start.poll().is_pending());
    }
    assert_eq!(vm.kicks(), before + 1);
    assert!(vm.hub.next_to_guest().is_some());
    starts.push(ByHand::new(vm.client.exec("stall", [""; 0]).spawn()));
    assert!(starts[5].poll().is_pending());
    assert_eq!(vm.kicks(), before + 1, "whoever pulls will come to the new one, too");
    while vm.hub.next_to_guest().is_some() {}
    starts.push(ByHand::new(vm.client.exec("stall", [""; 0]).spawn()));
    assert!(starts[6].poll().is_pending());
    assert_eq!(vm.kicks(), before + 2);
}

#[test]
fn a_link_that_comes_late_is_kicked_for_what_waits() {
    struct Flag(Mutex<u32>);
    impl Link for Flag {
        fn transmit(&self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let hub = Hub::new(Config::default()).unwrap();
    hub.opened();
    let link = Arc::new(Flag(Mutex::new(0)));
    let weak: Weak<Flag> = Arc::downgrade(&link);
    hub.set_link(weak);
    assert_eq!(*link.0.lock().unwrap(), 1);
}

#[test]
fn admission_is_atomic_over_threads_and_the_refusal_names_both_numbers() {
    let vm = FakeVm::new();
    let barrier = Barrier::new(16);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let attempt = |_| {
                        let mut start = ByHand::new(vm.client.exec("stall", [""; 0]).spawn());
                        let refused = match start.poll() {
                            Poll::Pending => None,
                            Poll::Ready(outcome) => Some(outcome.unwrap_err()),
                        };
                        (start, refused)
                    };
                    (0..20).map(attempt).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let refused: Vec<_> = outcomes.iter().filter_map(|(_, refused)| refused.as_ref()).collect();
    assert_eq!(outcomes.len() - refused.len(), 128);
    assert_eq!(refused.len(), 16 * 20 - 128);
    for error in refused {
        let ExecError::AtCapacity { limit, active } = error else { panic!("{error}") };
        assert_eq!((*limit, *active), (128, 128));
    }
    assert_eq!(vm.client.active(), 128);
    drop(outcomes);
    vm.settle();
    assert_eq!(vm.client.active(), 0);
}

/// Each path by which an execution can end gives back its one slot, and gives it back once.
#[test]
fn every_path_frees_its_slot_exactly_once() {
    type Path = (&'static str, fn(&FakeVm));
    let paths: [Path; 9] = [
        ("exit and read", |vm| {
            vm.run(vm.client.exec("echo", ["hi"]).output()).unwrap();
        }),
        ("exit, unread, then dropped", |vm| {
            let handle = vm.run(vm.client.exec("echo", ["hi"]).spawn()).unwrap();
            vm.settle();
            drop(handle);
        }),
        ("dropped while it runs", |vm| {
            drop(vm.run(vm.client.exec("chatter", [""; 0]).spawn()).unwrap());
        }),
        ("killed", |vm| {
            let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
            handle.kill();
            vm.run(handle.wait()).unwrap();
        }),
        ("failed start", |vm| {
            vm.run(vm.client.exec("missing", [""; 0]).spawn()).unwrap_err();
        }),
        ("start dropped before it was sent", |vm| {
            let mut start = ByHand::new(vm.client.exec("stall", [""; 0]).spawn());
            assert!(start.poll().is_pending());
        }),
        ("start dropped after it was sent", |vm| {
            let mut start = ByHand::new(vm.client.exec("late", [""; 0]).spawn());
            assert!(start.poll().is_pending());
            vm.settle();
        }),
        ("detached", |vm| {
            vm.run(vm.client.exec("echo", ["hi"]).spawn()).unwrap().detach();
        }),
        ("connection closed", |vm| {
            let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
            vm.hub.closed("the port was closed");
            assert!(matches!(vm.run(handle.wait()), Err(ExecError::VmGone { .. })));
            drop(handle);
        }),
    ];
    for (name, path) in paths {
        let vm = FakeVm::with_limits(Limits { max_executions: 3, ..Limits::default() });
        // A second execution shows a slot that is given back twice.
        let other = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
        path(&vm);
        vm.settle();
        let expected = u32::from(name != "connection closed");
        assert_eq!(vm.client.active(), expected, "{name}");
        drop(other);
        vm.settle();
        assert_eq!(vm.client.active(), 0, "{name}");
        assert!(vm.hub.inspect().executions.is_empty(), "{name}: entries are left");
    }
}

#[test]
fn a_finished_execution_with_unread_output_keeps_its_slot() {
    let vm = FakeVm::with_limits(Limits { max_executions: 1, ..Limits::default() });
    let mut handle = vm.run(vm.client.exec("echo", ["hi"]).spawn()).unwrap();
    vm.settle();
    assert_eq!(vm.client.active(), 1);
    let refused = vm.run(vm.client.exec("exit", ["0"]).spawn());
    assert!(matches!(refused, Err(ExecError::AtCapacity { limit: 1, active: 1 })));
    assert!(matches!(vm.run(handle.recv()), Some(ExecEvent::Started { .. })));
    assert!(matches!(vm.run(handle.recv()), Some(ExecEvent::Stdout(_))));
    assert_eq!(vm.client.active(), 0, "exited and read, whether or not the handle lives");
    assert!(vm.run(vm.client.exec("exit", ["0"]).status()).unwrap().success());
    assert!(matches!(vm.run(handle.recv()), Some(ExecEvent::Exited(_))));
    assert_eq!(vm.run(handle.recv()), None);
}

#[test]
fn every_waiting_caller_wakes_with_the_reason_when_the_vm_is_gone() {
    let vm = FakeVm::new();
    let stall = || vm.run(vm.client.exec("stall", [""; 0]).stdin(Stdin::piped()).spawn()).unwrap();
    let (mut a, mut b, c, mut d, e) = (stall(), stall(), stall(), stall(), stall());
    let sink = d.take_stdin().unwrap();
    let mut parts = e.split();
    vm.hold.store(true, std::sync::atomic::Ordering::Relaxed);

    let controls: Vec<_> = (0..16).map(|_| a.control()).collect();
    for control in &controls {
        vm.run(control.signal(Signal::USR1)).unwrap();
    }
    let control = a.control();
    let mut signal = ByHand::new(control.signal(Signal::USR1));
    let mut queued = ByHand::new(control.signal(Signal::USR2));
    assert!(matches!(vm.run(a.recv()), Some(ExecEvent::Started { .. })));
    let mut recv = ByHand::new(a.recv());
    let mut wait = ByHand::new(b.wait());
    let mut collect = ByHand::new(c.collect());
    let mut write = ByHand::new(sink.write(vec![0; 1 << 20]));
    let mut close = ByHand::new(sink.close());
    let mut exit = ByHand::new(parts.exit.wait());
    let mut start = ByHand::new(vm.client.exec("stall", [""; 0]).spawn());
    assert!(signal.poll().is_pending());
    assert!(queued.poll().is_pending());
    assert!(recv.poll().is_pending());
    assert!(wait.poll().is_pending());
    assert!(collect.poll().is_pending());
    assert!(write.poll().is_pending());
    assert!(close.poll().is_pending());
    assert!(exit.poll().is_pending());
    assert!(start.poll().is_pending());

    vm.hub.vm_gone("the guest powered off");
    for (name, woken) in [
        ("signal", &signal.woken),
        ("recv", &recv.woken),
        ("wait", &wait.woken),
        ("collect", &collect.woken),
        ("write", &write.woken),
        ("exit", &exit.woken),
        ("start", &start.woken),
    ] {
        assert!(woken.is_set(), "{name} was not woken");
    }
    const REASON: &str = "the guest powered off";
    let gone = |error: &ExecError| matches!(error, ExecError::VmGone { reason } if reason == REASON);
    assert!(matches!(
        signal.poll(),
        Poll::Ready(Err(ControlError::VmGone { reason })) if reason == REASON
    ));
    assert!(queued.woken.is_set(), "its turn came when the one before gave up");
    assert!(matches!(queued.poll(), Poll::Ready(Err(ControlError::VmGone { .. }))));
    let Poll::Ready(Some(ExecEvent::Failed(failure))) = recv.poll() else { panic!() };
    assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::VmGone, REASON));
    assert!(matches!(wait.poll(), Poll::Ready(Err(error)) if gone(&error)));
    assert!(matches!(collect.poll(), Poll::Ready(Err(error)) if gone(&error)));
    assert!(matches!(
        write.poll(),
        Poll::Ready(Err(WriteError::VmGone { reason })) if reason == REASON
    ));
    drop(write);
    assert!(close.woken.is_set(), "its turn came when the write gave up");
    assert!(matches!(close.poll(), Poll::Ready(Err(WriteError::VmGone { .. }))));
    assert!(matches!(exit.poll(), Poll::Ready(Err(error)) if gone(&error)));
    assert!(matches!(start.poll(), Poll::Ready(Err(error)) if gone(&error)));
    let late = vm.run(vm.client.exec("exit", ["0"]).spawn()).unwrap_err();
    assert!(gone(&late), "{late}");
}

#[test]
fn a_port_that_opens_again_begins_anew_and_one_of_a_vm_that_is_gone_does_not() {
    let vm = FakeVm::new();
    let mut old = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    vm.hub.closed("the guest closed its agent port");
    let error = vm.run(vm.client.exec("exit", ["0"]).spawn()).unwrap_err();
    assert!(error.to_string().contains("closed its agent port"), "{error}");
    vm.agent(|conn| *conn = Default::default());
    vm.hub.opened();
    vm.settle();
    assert!(vm.run(vm.client.exec("exit", ["0"]).status()).unwrap().success());
    assert!(matches!(vm.run(old.wait()), Err(ExecError::VmGone { .. })));

    vm.hub.vm_gone("stopped");
    vm.hub.vm_gone("a later reason");
    vm.hub.opened();
    assert!(vm.hub.next_to_guest().is_none());
    let error = vm.run(vm.client.exec("exit", ["0"]).spawn()).unwrap_err();
    assert!(matches!(error, ExecError::VmGone { reason } if reason == "stopped"));
}

/// A waker that owns a handle, as the waker of a task owns what the task owns.
struct Owner(Mutex<Option<ExecHandle>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_replaced_waker_may_drop_a_handle() {
    let vm = FakeVm::new();
    let owned = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    let id = owned.id();
    let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    vm.run(handle.recv());
    let mut recv = Box::pin(handle.recv());
    let waker = Waker::from(Arc::new(Owner(Mutex::new(Some(owned)))));
    assert!(recv.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert!(recv.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    vm.settle();
    assert!(!vm.guest_knows(id), "the owned handle was dropped, so its command is killed");
}

#[test]
fn a_waker_that_drops_a_handle_while_the_link_pulls_does_not_kick_the_link() {
    let vm = FakeVm::new();
    let owned = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    let id = owned.id();
    let mut cat = vm.run(vm.client.exec("drain", [""; 0]).stdin(Stdin::piped()).spawn()).unwrap();
    let sink = cat.take_stdin().unwrap();
    let mut write = Box::pin(sink.write("abc"));
    let waker = Waker::from(Arc::new(Owner(Mutex::new(Some(owned)))));
    assert!(write.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    // The last pull of the write's bytes wakes, and thereby drops the handle; the link of these
    // tests panics if it is kicked then.
    vm.settle();
    assert!(!vm.guest_knows(id), "the kill left all the same");
    assert!(write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn a_guest_that_breaks_the_rules_of_one_execution_fails_that_one_alone() {
    let vm = FakeVm::new();
    let mut bad = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    let good = vm.run(vm.client.exec("cat", [""; 0]).stdin(Stdin::bytes("fine")).spawn()).unwrap();
    // A stdout frame of one byte more than a chunk may have.
    let mut chain = vec![0x01, 0x40, 0, 0, 0x91, 0, 0, 0];
    chain.extend(bad.id().get().to_le_bytes());
    chain.extend([0; 0x4001]);
    assert_eq!(vm.from_guest(&chain), None);
    let error = vm.run(bad.wait()).unwrap_err();
    let ExecError::Protocol(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.kind, FailureKind::Protocol);
    assert_eq!(failure.stage, "protocol");
    assert_eq!(vm.run(good.collect()).unwrap().stdout(), b"fine");
    vm.settle();
    assert_eq!(vm.client.active(), 0, "the guest confirmed the kill");
}

#[test]
fn broken_framing_ends_every_execution_with_the_reason() {
    let vm = FakeVm::new();
    let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    let reason = vm.from_guest(&[0xff; 16]).unwrap();
    let error = vm.run(handle.wait()).unwrap_err();
    assert!(matches!(&error, ExecError::VmGone { reason: told } if told == reason), "{error}");
}

#[test]
fn a_ping_is_answered_and_refused_when_there_is_no_connection() {
    let vm = FakeVm::new();
    assert_eq!(vm.hub.last_pong(), None);
    assert!(vm.hub.ping(7));
    vm.settle();
    assert_eq!(vm.hub.last_pong(), Some(7));
    vm.hub.closed("gone");
    assert!(!vm.hub.ping(8));
}
