//! Who is woken, and that waking, or dropping a waker, may do anything.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use forebay_exec_proto::host::COALESCED_WITHIN;
use forebay_exec_proto::{FRAME_MAX, HEADER_LEN};

use crate::clock;
use crate::fake_guest::{ByHand, FakeVm, inside, without_deadlock};
use crate::{
    ControlError, ExecError, ExecEvent, ExecHandle, ExecId, FailureKind, Signal, Stdin, WriteError,
};

/// A command that has started, and writes what it is told to.
fn started(vm: &FakeVm) -> ExecHandle {
    let mut stall = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    let first = vm.run(stall.recv());
    assert!(matches!(first, Some(ExecEvent::Started { .. })));
    stall
}

/// Its reader, which found nothing.
fn asleep(stall: &mut ExecHandle) -> ByHand<impl Future<Output = Option<ExecEvent>>> {
    let mut recv = ByHand::new(stall.recv());
    assert!(recv.poll().is_pending());
    recv.woken.take();
    recv
}

/// It writes as much as fills a write of the guest.
fn writes_bulk(vm: &FakeVm, id: ExecId) {
    let chain = FRAME_MAX - 2 * HEADER_LEN;
    vm.command(id, |command| command.out[0].extend(vec![0; chain]));
    vm.settle();
}

#[test]
fn a_sleeping_reader_of_bulk_is_woken_in_time_though_nothing_follows() {
    let vm = FakeVm::new();
    let mut stall = started(&vm);
    let id = stall.id();
    let mut recv = asleep(&mut stall);
    assert!(vm.alarms().is_empty());

    writes_bulk(&vm, id);
    assert!(!recv.woken.is_set(), "more of it may come");
    writes_bulk(&vm, id);
    assert!(!recv.woken.is_set());
    let alarms = vm.alarms();
    assert_eq!(alarms.len(), 1, "one for both");
    assert!(alarms[0] <= std::time::Instant::now() + COALESCED_WITHIN);
    clock::advance(COALESCED_WITHIN);
    assert_eq!(vm.hub.expire(), None);
    assert!(recv.woken.is_set());
    assert!(matches!(
        recv.poll(),
        Poll::Ready(Some(ExecEvent::Stdout(_)))
    ));
}

#[test]
fn a_sleeping_reader_of_bulk_is_woken_when_the_guest_stands_still() {
    let vm = FakeVm::new();
    let mut stall = started(&vm);
    let id = stall.id();
    let recv = asleep(&mut stall);
    writes_bulk(&vm, id);
    assert!(!recv.woken.is_set());
    vm.hub.hold_time();
    assert!(recv.woken.is_set());
}

#[test]
fn every_waiting_caller_wakes_with_the_reason_when_the_vm_is_gone() {
    let vm = FakeVm::new();
    let stall = || {
        vm.run(
            vm.client
                .exec("stall", [""; 0])
                .stdin(Stdin::piped())
                .spawn(),
        )
        .unwrap()
    };
    let (mut a, mut b, c, mut d, e) = (stall(), stall(), stall(), stall(), stall());
    let sink = d.take_stdin().unwrap();
    let mut parts = e.split();
    vm.hold.store(true, Ordering::Relaxed);

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
        ("the signal behind it", &queued.woken),
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
    let gone =
        |error: &ExecError| matches!(error, ExecError::VmGone { reason } if reason == REASON);
    assert!(matches!(
        signal.poll(),
        Poll::Ready(Err(ControlError::VmGone { reason })) if reason == REASON
    ));
    assert!(matches!(
        queued.poll(),
        Poll::Ready(Err(ControlError::VmGone { .. }))
    ));
    let Poll::Ready(Some(ExecEvent::Failed(failure))) = recv.poll() else {
        panic!()
    };
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::VmGone, REASON)
    );
    assert!(matches!(wait.poll(), Poll::Ready(Err(error)) if gone(&error)));
    assert!(matches!(collect.poll(), Poll::Ready(Err(error)) if gone(&error)));
    assert!(matches!(
        write.poll(),
        Poll::Ready(Err(WriteError::VmGone { reason })) if reason == REASON
    ));
    drop(write);
    assert!(close.woken.is_set(), "its turn came when the write gave up");
    assert!(matches!(
        close.poll(),
        Poll::Ready(Err(WriteError::VmGone { .. }))
    ));
    assert!(matches!(exit.poll(), Poll::Ready(Err(error)) if gone(&error)));
    assert!(matches!(start.poll(), Poll::Ready(Err(error)) if gone(&error)));
    let late = vm.run(vm.client.exec("exit", ["0"]).spawn()).unwrap_err();
    assert!(gone(&late), "{late}");
}

/// A waker that owns a handle, as the waker of a task owns what the task owns.
struct Owner {
    _handle: Mutex<ExecHandle>,
}

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

fn owner(handle: ExecHandle) -> Waker {
    Waker::from(Arc::new(Owner {
        _handle: Mutex::new(handle),
    }))
}

#[test]
fn a_replaced_waker_may_drop_a_handle() {
    without_deadlock(|| {
        let vm = FakeVm::new();
        let owned = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
        let id = owned.id();
        let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
        vm.run(handle.recv());
        let mut recv = Box::pin(handle.recv());
        let waker = owner(owned);
        assert!(
            recv.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(waker);
        assert!(
            recv.as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        vm.settle();
        assert!(
            !vm.guest_knows(id),
            "the owned handle was dropped, so its command is killed"
        );
    });
}

#[test]
fn a_waker_that_drops_a_handle_while_the_link_pulls_does_not_kick_the_link() {
    without_deadlock(|| {
        let vm = FakeVm::new();
        let owned = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
        let id = owned.id();
        let drain = vm.client.exec("drain", [""; 0]).stdin(Stdin::piped());
        let mut drain = vm.run(drain.spawn()).unwrap();
        let sink = drain.take_stdin().unwrap();
        let mut write = Box::pin(sink.write("abc"));
        let waker = owner(owned);
        assert!(
            write
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(waker);
        // The pull of the write's last byte wakes, and thereby drops the handle; the link of
        // these tests panics if it is kicked then.
        vm.settle();
        assert!(!vm.guest_knows(id), "the kill left all the same");
        assert!(
            write
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
        );
    });
}

#[test]
fn room_that_appears_without_a_frame_wakes_and_what_the_waker_causes_leaves_too() {
    without_deadlock(|| {
        let vm = FakeVm::new();
        let spawn = || vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
        let (ends, lives, owned) = (spawn(), spawn(), spawn());
        let id = owned.id();
        vm.hold.store(true, Ordering::Relaxed);
        for _ in 0..16 {
            vm.run(ends.signal(Signal::USR1)).unwrap();
        }
        let mut signal = Box::pin(lives.signal(Signal::USR2));
        vm.command(ends.id(), |command| command.exit = Some(0));
        vm.settle();
        let waker = owner(owned);
        assert!(
            signal
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(waker);
        // The signals in line are for an execution that has ended: pulling drops them all and
        // gives no frame.
        vm.hold.store(false, Ordering::Relaxed);
        vm.settle();
        assert!(!vm.guest_knows(id), "woken, and the kill left");
        assert!(
            signal
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
        );
    });
}

#[test]
fn the_calls_of_the_device_wake_nobody_before_it_has_let_go_of_its_locks() {
    let vm = FakeVm::new();
    let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    let mut wait = ByHand::new(handle.wait());
    assert!(wait.poll().is_pending());
    let kicks = vm.kicks();
    inside(|| vm.hub.closed("the guest closed its agent port"));
    assert!(!wait.woken.is_set(), "woken with the device's locks held");
    vm.hub.settle();
    assert!(wait.woken.is_set());
    assert!(matches!(
        wait.poll(),
        Poll::Ready(Err(ExecError::VmGone { .. }))
    ));
    // A new connection has something to send, which the device looks for by itself.
    vm.agent(|conn| *conn = Default::default());
    inside(|| vm.hub.opened());
    assert!(inside(|| vm.hub.next_to_guest()).is_some());
    vm.hub.settle();
    assert_eq!(vm.kicks(), kicks);
}

#[test]
fn an_applications_step_wakes_whom_the_device_has_noted() {
    let vm = FakeVm::new();
    let mut handle = vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    let mut wait = ByHand::new(handle.wait());
    assert!(wait.poll().is_pending());
    inside(|| vm.hub.closed("the guest closed its agent port"));
    assert!(!vm.hub.ping(1), "there is no connection");
    assert!(wait.woken.is_set());
}

#[test]
fn a_waker_that_panics_keeps_nobody_else_from_being_woken() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let vm = FakeVm::new();
    let spawn = || vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap();
    let (mut first, mut second) = (spawn(), spawn());
    let mut broken = Box::pin(first.wait());
    let waker = Waker::from(Arc::new(Panics));
    assert!(
        broken
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let mut wait = ByHand::new(second.wait());
    assert!(wait.poll().is_pending());
    inside(|| vm.hub.closed("the guest closed its agent port"));
    vm.hub.settle();
    assert!(wait.woken.is_set());
}
