//! Leaving and adopting in the program that has the VM.

use crate::fake_guest::{ByHand, FakeVm, pattern};
use crate::{AdoptError, Adopted, ExecEvent, ExecHandle, ExecId, LeaveError, Stdin};

const NONE: [&str; 0] = [];

fn spawn(vm: &FakeVm, words: &[&str]) -> ExecHandle {
    let exec = vm.client.exec(words[0], &words[1..]);
    vm.run(exec.stdin(Stdin::piped()).spawn()).unwrap()
}

fn leave(vm: &FakeVm, handle: ExecHandle) -> ExecId {
    vm.run(handle.leave()).unwrap()
}

fn adopt(vm: &FakeVm, id: ExecId) -> Adopted {
    vm.run(vm.client.adopt(id)).unwrap()
}

fn adoptable(vm: &FakeVm) -> Vec<ExecId> {
    vm.run(vm.client.adoptable()).unwrap()
}

#[test]
fn what_is_left_goes_on_at_the_next_byte_for_whoever_adopts_it() {
    let vm = FakeVm::new();
    let mut cat = spawn(&vm, &["cat"]);
    let input: Vec<u8> = (0..900).map(pattern).collect();
    let sink = cat.take_stdin().unwrap();
    vm.run(sink.write(input[..300].to_vec())).unwrap();
    let Some(ExecEvent::Started { .. }) = vm.run(cat.recv()) else {
        panic!("it runs");
    };
    let Some(ExecEvent::Stdout(mut read)) = vm.run(cat.recv()) else {
        panic!("it copies");
    };
    vm.run(sink.write(input[300..600].to_vec())).unwrap();
    vm.settle();
    // Whoever still holds the sink could write into somebody else's.
    let refused = vm.run(cat.leave()).unwrap_err();
    assert!(matches!(refused, LeaveError::Shared(_)), "{refused}");
    let mut cat = refused.into_handle();
    cat.put_stdin_back(sink).unwrap();
    let (id, accepted) = (cat.id(), 600);
    assert_eq!(adoptable(&vm), []);
    assert_eq!(leave(&vm, cat), id);
    vm.settle();
    assert_eq!(adoptable(&vm), [id]);
    assert_eq!(vm.hub.active(), 1);
    let marked = vm.hub.inspect().executions.into_iter();
    assert_eq!(marked.filter(|exec| exec.adoptable).count(), 1);

    let Adopted {
        handle, progress, ..
    } = adopt(&vm, id);
    assert_eq!(handle.id(), id);
    assert_eq!(progress.stdin_accepted, accepted);
    assert_eq!(progress.stdout_consumed, read.len() as u64);
    assert_eq!(adoptable(&vm), []);
    let output = vm.run(handle.collect()).unwrap();
    read = [&read[..], output.stdout()].concat().into();
    assert_eq!(read, input[..600], "every byte once and in order");
    assert_eq!(vm.hub.active(), 0);
}

#[test]
fn stdin_stays_open_for_whoever_adopts() {
    let vm = FakeVm::new();
    let id = leave(&vm, spawn(&vm, &["cat"]));
    vm.settle();
    vm.command(id, |command| assert!(!command.eof));
    let mut handle = adopt(&vm, id).handle;
    let sink = handle.take_stdin().unwrap();
    vm.run(sink.write("more")).unwrap();
    vm.run(sink.close()).unwrap();
    assert_eq!(vm.run(handle.collect()).unwrap().stdout(), b"more");
}

#[test]
fn what_is_left_blocks_at_its_allowance_and_holds_its_slot_after_its_end() {
    let vm = FakeVm::new();
    let chatty = leave(&vm, spawn(&vm, &["chatter"]));
    let silent = leave(&vm, spawn(&vm, &["exit", "3"]));
    vm.settle();
    let view = vm.hub.inspect().executions;
    let limit = u64::from(vm.hub.limits().output_limit);
    assert!(view[0].output_received <= limit);
    assert!(view[0].output_received > limit - 16_384 - 256);
    assert_eq!((view[1].phase, vm.hub.active()), ("ended", 2));
    let mut handle = adopt(&vm, silent).handle;
    assert_eq!(vm.run(handle.wait()).unwrap().code(), Some(3));
    assert_eq!(vm.hub.active(), 1);
    drop(handle);
    // Adopting and letting go is how one that nobody wants is ended.
    drop(adopt(&vm, chatty).handle);
    vm.settle();
    assert_eq!(vm.hub.active(), 0);
    assert!(vm.hub.inspect().executions.is_empty());
}

#[test]
fn only_what_was_left_can_be_adopted_and_only_once() {
    let vm = FakeVm::new();
    let held = spawn(&vm, &["stall"]);
    let detached = spawn(&vm, &["stall"]).detach();
    let left = leave(&vm, spawn(&vm, &["stall"]));
    let unknown = ExecId::new(77).unwrap();
    let refusal = |id| vm.run(vm.client.adopt(id)).map(|_| ()).unwrap_err();
    assert!(matches!(refusal(held.id()), AdoptError::Held { id } if id == held.id()));
    assert!(matches!(refusal(detached), AdoptError::Discarded { id } if id == detached));
    assert!(matches!(refusal(unknown), AdoptError::Unknown { id } if id == unknown));
    let adopted = adopt(&vm, left).handle;
    assert!(matches!(refusal(left), AdoptError::Held { .. }));
    assert_eq!(leave(&vm, adopted), left, "and left again");
    assert_eq!(adoptable(&vm), [left]);
}

#[test]
fn an_end_that_was_read_leaves_nothing_to_leave() {
    let vm = FakeVm::new();
    let mut done = spawn(&vm, &["exit", "4"]);
    assert_eq!(vm.run(done.wait()).unwrap().code(), Some(4));
    let refused = vm.run(done.leave()).unwrap_err();
    assert!(matches!(refused, LeaveError::Ended(_)), "{refused}");
    let mut done = refused.into_handle();
    assert_eq!(vm.run(done.wait()).unwrap().code(), Some(4));
    assert_eq!(adoptable(&vm), []);
}

#[test]
fn what_was_left_can_be_adopted_in_a_copy() {
    let vm = FakeVm::new();
    let id = leave(&vm, spawn(&vm, &["write", "300", "0", "3"]));
    vm.settle();
    let copy = vm.restored();
    assert_eq!(adoptable(&copy), [id]);
    assert_eq!(copy.hub.active(), 1);
    let output = copy.run(adopt(&copy, id).handle.collect()).unwrap();
    assert_eq!(
        (output.stdout().len(), output.status().code()),
        (300, Some(3))
    );
    assert_eq!(adoptable(&vm), [id], "the source never noticed");
}

#[test]
fn a_leave_that_is_never_polled_kills_as_any_drop() {
    let vm = FakeVm::new();
    let handle = spawn(&vm, &["stall"]);
    drop(ByHand::new(handle.leave()));
    vm.settle();
    assert_eq!(vm.hub.active(), 0);
    let exec = vm.client.exec("stall", NONE);
    drop(vm.run(exec.spawn()).unwrap());
}
