//! One execution between a client that leaves it and the VM.

use std::time::Duration;

use forebay_exec_proto::Timeout;

use super::super::bell::{Bell, Cause};
use super::*;
use crate::fake_guest::{ByHand, FakeVm};
use crate::{ExecEvent, ExecHandle};

const NONE: [&str; 0] = [];

/// An execution that does not start before it is told to, and that nobody has started to read.
fn late(vm: &FakeVm) -> (ExecId, Relayed) {
    let mut late = ByHand::new(vm.client.exec("late", NONE).spawn());
    assert!(late.poll().is_pending());
    vm.settle();
    let id = ExecId::new(1).unwrap();
    vm.hub.step(|inner| inner.leave(id)).unwrap();
    // It is nobody's, so that the drop of this ends nothing.
    std::mem::forget(late);
    let bell = Bell::new().unwrap();
    let ringer = Ringer::new(Cause::Exec(1, id), &bell);
    let (relayed, _) = Relayed::adopt(&vm.hub, id, ringer).unwrap();
    (id, relayed)
}

fn start(vm: &FakeVm, id: ExecId) {
    vm.command(id, |command| command.hold_start = false);
    vm.hub.ping(1);
    vm.settle();
}

fn is_told_of_its_start(vm: &FakeVm, mut handle: ExecHandle) -> bool {
    let event = vm.run(handle.recv());
    matches!(event, Some(ExecEvent::Started { .. }))
}

#[test]
fn a_start_that_comes_while_a_client_leaves_is_told_to_whoever_adopts() {
    for held in [false, true] {
        let vm = FakeVm::new();
        let mut guest = guest::Conn::for_relay();
        let (id, mut relayed) = late(&vm);
        relayed.service(id, &mut guest);
        start(&vm, id);
        relayed.leave(Leave { timeout: None });
        if held {
            relayed.hold_leave(true);
            relayed.service(id, &mut guest);
            assert!(!relayed.is_over());
            relayed.hold_leave(false);
        }
        relayed.service(id, &mut guest);
        assert!(relayed.is_over());
        let adopted = Hub::adopt(&vm.hub, id).unwrap();
        assert!(is_told_of_its_start(&vm, adopted.handle));
    }
}

#[test]
fn a_deadline_runs_from_the_question_on_and_lets_nothing_be_said_after_it() {
    let vm = FakeVm::new();
    let mut guest = guest::Conn::for_relay();
    let (id, mut relayed) = late(&vm);
    start(&vm, id);
    relayed.service(id, &mut guest);
    assert_eq!(vm.hub.expire(), None);
    let hour = Duration::from_secs(3600);
    let timeout = Timeout {
        limit: hour,
        left: hour,
        at_start: hour,
    };
    relayed.hold_leave(true);
    relayed.leave(Leave {
        timeout: Some(timeout),
    });
    relayed.service(id, &mut guest);
    assert!(!relayed.is_over());
    assert!(vm.hub.expire().is_some(), "it is kept already");
    vm.hub.expire_by(crate::clock::now() + hour);
    relayed.service(id, &mut guest);
    assert!(relayed.is_over(), "nobody would heed what holds it");
}
