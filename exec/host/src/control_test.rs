use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use crate::fake_guest::{ByHand, FakeVm};
use crate::{ControlError, ExecHandle, Signal};

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
    vm.run(vm.client.exec("stall", [""; 0]).spawn()).unwrap()
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
