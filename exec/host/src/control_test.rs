use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use crate::fake_guest::{ByHand, FakeVm};
use crate::{ControlError, ExecHandle, Signal, TerminalSize};

/// Controls that wait for the guest at most.
const LINE: usize = 16;

/// A VM with an execution whose signals fill the line, and a guest that does not read.
fn full() -> (Arc<FakeVm>, ExecHandle) {
    let vm = FakeVm::new();
    let busy = stall(&vm);
    vm.hold.store(true, Ordering::Relaxed);
    for _ in 0..LINE {
        vm.run(busy.signal(Signal::USR1)).unwrap();
    }
    (vm, busy)
}

fn stall(vm: &FakeVm) -> ExecHandle {
    let exec = vm.client.exec("stall", [""; 0]);
    vm.run(exec.terminal(TerminalSize::default()).spawn())
        .unwrap()
}

#[test]
fn a_signal_that_nobody_polls_on_delays_no_other_signal() {
    let (vm, busy) = full();
    let mut idle = ByHand::new(busy.signal(Signal::USR1));
    assert!(idle.poll().is_pending());
    vm.hold.store(false, Ordering::Relaxed);
    vm.settle();
    let other = stall(&vm);
    vm.run(other.signal(Signal::USR2)).unwrap();
    vm.run(busy.signal(Signal::HUP)).unwrap();
    vm.settle();
    assert!(idle.woken.is_set());
    assert_eq!(vm.command(other.id(), |c| c.signals.clone()), [12]);
    assert_eq!(
        vm.command(busy.id(), |c| c.signals.last().copied()),
        Some(1)
    );
    assert!(matches!(idle.poll(), Poll::Ready(Ok(()))));
}

#[test]
fn a_signal_that_waits_learns_of_its_executions_end_whoever_waits_before_it() {
    let vm = FakeVm::new();
    let (busy, ends) = (stall(&vm), stall(&vm));
    vm.hold.store(true, Ordering::Relaxed);
    for _ in 0..LINE {
        vm.run(busy.signal(Signal::USR1)).unwrap();
    }
    let mut before = ByHand::new(busy.signal(Signal::USR1));
    let mut waits = ByHand::new(ends.signal(Signal::USR1));
    assert!(before.poll().is_pending());
    assert!(waits.poll().is_pending());
    vm.command(ends.id(), |command| command.exit = Some(0));
    vm.settle();
    assert!(waits.woken.is_set());
    assert!(matches!(
        waits.poll(),
        Poll::Ready(Err(ControlError::Ended))
    ));
    assert!(before.poll().is_pending(), "there is still no room");
}

#[test]
fn every_signal_that_waits_leaves_in_its_order_and_a_dropped_one_does_not() {
    let (vm, busy) = full();
    let number = |n: u32| Signal::new(n).unwrap();
    // More than twice the line, and none that ends the command.
    let mut waiting: Vec<_> = (32..=64)
        .map(|n| ByHand::new(busy.signal(number(n))))
        .collect();
    for future in &mut waiting {
        assert!(future.poll().is_pending());
    }
    drop(waiting.remove(0));
    vm.hold.store(false, Ordering::Relaxed);
    while !waiting.is_empty() {
        vm.settle();
        let before = waiting.len();
        waiting.retain_mut(|future| !(future.woken.is_set() && future.poll().is_ready()));
        assert!(waiting.len() < before, "nobody was woken for the room");
    }
    vm.settle();
    let expected: Vec<u32> = [10; LINE].into_iter().chain(33..=64).collect();
    assert_eq!(vm.command(busy.id(), |c| c.signals.clone()), expected);
}

#[test]
fn sizes_arrive_in_their_order_from_the_handle_its_parts_and_its_controls() {
    let vm = FakeVm::new();
    let handle = stall(&vm);
    let (id, control) = (handle.id(), handle.control());
    let size = |rows| TerminalSize { rows, cols: 80 };
    vm.run(handle.resize(size(1))).unwrap();
    vm.run(control.resize(size(2))).unwrap();
    let parts = handle.split();
    vm.run(parts.exit.resize(size(3))).unwrap();
    vm.settle();
    let sizes = vm.command(id, |command| command.sizes.clone());
    assert_eq!(sizes, [(1, 80), (2, 80), (3, 80)]);
    parts.exit.kill();
    vm.settle();
    let late = vm.run(control.resize(size(4)));
    assert!(matches!(late, Err(ControlError::Ended)), "{late:?}");
}

#[test]
fn a_size_for_no_terminal_or_that_none_has_is_refused_and_not_sent() {
    let vm = FakeVm::new();
    let handle = stall(&vm);
    for (rows, cols) in [(0, 80), (24, 0)] {
        let refused = vm
            .run(handle.resize(TerminalSize { rows, cols }))
            .unwrap_err();
        assert!(
            matches!(refused, ControlError::InvalidSize { .. }),
            "{refused}"
        );
    }
    let plain = vm.client.exec("stall", [""; 0]);
    let plain = vm.run(plain.spawn()).unwrap();
    let refused = vm.run(plain.resize(TerminalSize::default())).unwrap_err();
    assert!(matches!(refused, ControlError::NoTerminal), "{refused}");
    vm.settle();
    for id in [handle.id(), plain.id()] {
        assert!(vm.command(id, |command| command.sizes.is_empty()));
    }
}

#[test]
fn a_size_waits_for_room_as_a_signal_does() {
    let (vm, busy) = full();
    let mut waits = ByHand::new(busy.resize(TerminalSize::default()));
    assert!(waits.poll().is_pending());
    vm.hold.store(false, Ordering::Relaxed);
    vm.settle();
    assert!(waits.woken.is_set());
    assert!(matches!(waits.poll(), Poll::Ready(Ok(()))));
    vm.settle();
    assert_eq!(vm.command(busy.id(), |c| c.sizes.clone()), [(24, 80)]);
}
