use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use crate::fake_guest::{ByHand, FakeVm, pattern};
use crate::{
    Adopted, ControlError, ExecError, ExecEvent, ExecHandle, ExecId, Hub, Renewal, RestoreOptions,
    SaveError, SavedConn, Secret, Signal, Stdin, TerminalSize, clock,
};

const LIMIT: Duration = Duration::from_secs(3);
const NONE: [&str; 0] = [];

fn spawn(vm: &FakeVm, words: &[&str]) -> ExecHandle {
    let exec = vm.client.exec(words[0], &words[1..]);
    vm.run(exec.stdin(Stdin::piped()).spawn()).unwrap()
}

fn adopt(vm: &FakeVm, id: ExecId) -> Adopted {
    vm.hub.adopt(id).expect("nobody has decided on it")
}

#[test]
fn an_adopted_execution_goes_on_at_the_byte_at_which_the_source_stood() {
    let vm = FakeVm::new();
    let mut cat = spawn(&vm, &["cat"]);
    let id = cat.id();
    let input: Vec<u8> = (0..900).map(pattern).collect();
    let sink = cat.take_stdin().unwrap();
    vm.run(sink.write(input[..300].to_vec())).unwrap();
    let mut stdout = cat.split().stdout;
    let mut read = vec![0; 100];
    vm.run(stdout.read_exact(&mut read)).unwrap();
    // These are on their way, or pending, at the cut.
    vm.hold.store(true, Ordering::Relaxed);
    let mut write = ByHand::new(sink.write(input[300..600].to_vec()));
    assert!(write.poll().is_pending());
    let copy = vm.restored();
    copy.hold.store(false, Ordering::Relaxed);
    let Adopted {
        mut handle,
        progress,
        ..
    } = adopt(&copy, id);
    assert_eq!((handle.id(), handle.pid()), (id, 1));
    assert_eq!(progress.stdin_accepted, 600);
    assert_eq!(
        (progress.stdout_consumed, progress.stderr_consumed),
        (100, 0)
    );
    let sink = handle.take_stdin().unwrap();
    copy.run(sink.write(input[600..].to_vec())).unwrap();
    copy.run(sink.close()).unwrap();
    let output = copy.run(handle.collect()).unwrap();
    read.extend(output.stdout());
    assert_eq!(read, input, "every byte once and in order");
    assert_eq!(copy.hub.active(), 0);
    // The source never noticed.
    assert_eq!(vm.hub.active(), 1);
}

#[test]
fn an_adopted_execution_is_killed_signalled_and_resized_as_any() {
    let vm = FakeVm::new();
    let size = |rows, cols| TerminalSize { rows, cols };
    let on_terminal = vm.client.exec("stall", NONE).terminal(size(24, 80));
    let on_terminal = vm.run(on_terminal.spawn()).unwrap();
    let plain = spawn(&vm, &["stall"]);
    let copy = vm.restored();
    let handle = adopt(&copy, plain.id()).handle;
    let refused = copy.run(handle.resize(size(9, 9)));
    assert!(matches!(refused, Err(ControlError::NoTerminal)));
    drop(handle);
    copy.settle();
    assert_eq!(copy.hub.active(), 1, "the last handle is gone");
    let mut handle = adopt(&copy, on_terminal.id()).handle;
    copy.run(handle.resize(size(9, 7))).unwrap();
    copy.run(handle.signal(Signal::USR1)).unwrap();
    copy.settle();
    copy.command(handle.id(), |command| {
        assert_eq!(command.sizes, [(9, 7)]);
        assert_eq!(command.signals, [10]);
    });
    handle.kill();
    assert_eq!(
        copy.run(handle.wait()).unwrap().signal(),
        Some(Signal::KILL)
    );
    assert_eq!(copy.hub.active(), 0);
}

#[test]
fn what_was_told_in_the_source_is_not_told_again_and_the_rest_is() {
    let vm = FakeVm::new();
    let ended = spawn(&vm, &["write", "300", "0", "3"]);
    vm.settle();
    // One that has not started, and one of which the guest has not heard.
    let mut late = ByHand::new(vm.client.exec("late", NONE).spawn());
    assert!(late.poll().is_pending());
    vm.settle();
    vm.hold.store(true, Ordering::Relaxed);
    let mut unsent = ByHand::new(vm.client.exec("missing", NONE).spawn());
    assert!(unsent.poll().is_pending());
    let copy = vm.restored();
    copy.hold.store(false, Ordering::Relaxed);
    let ids = copy.hub.adoptable();
    assert_eq!(ids.len(), 3);
    let mut handles: Vec<ExecHandle> = ids.iter().map(|id| adopt(&copy, *id).handle).collect();
    assert_eq!(copy.hub.adoptable(), []);
    assert_eq!(handles[0].id(), ended.id());
    let event = copy.run(handles[0].recv());
    assert!(matches!(event, Some(ExecEvent::Stdout(data)) if data.len() == 300));
    let event = copy.run(handles[0].recv());
    assert!(matches!(event, Some(ExecEvent::Exited(status)) if status.code() == Some(3)));
    assert!(copy.run(handles[0].recv()).is_none());
    assert_eq!(copy.run(handles[0].wait()).unwrap().code(), Some(3));
    assert_eq!(handles[1].pid(), 0);
    copy.command(ids[1], |command| command.hold_start = false);
    let event = copy.run(handles[1].recv());
    assert!(matches!(event, Some(ExecEvent::Started { pid: 2 })));
    assert_eq!(handles[1].pid(), 2);
    let missing = copy.run(handles[2].wait());
    assert!(matches!(missing, Err(ExecError::NotStarted(_))));
}

#[test]
fn an_execution_is_decided_on_once() {
    let vm = FakeVm::new();
    let ids = [0; 3].map(|_| spawn(&vm, &["stall"]).detach());
    let kept = [0; 3].map(|_| spawn(&vm, &["stall"]));
    let copy = vm.restored();
    let [a, b, c] = [&kept[0], &kept[1], &kept[2]].map(ExecHandle::id);
    assert_eq!(copy.hub.adoptable(), [a, b, c], "nobody held the others");
    for id in ids {
        assert!(copy.hub.adopt(id).is_none() && !copy.hub.discard(id) && !copy.hub.kill(id));
    }
    let adopted = adopt(&copy, a);
    assert!(copy.hub.kill(b) && copy.hub.discard(c));
    for id in [a, b, c] {
        assert!(copy.hub.adopt(id).is_none() && !copy.hub.discard(id) && !copy.hub.kill(id));
    }
    copy.settle();
    assert_eq!(copy.hub.active(), 5);
    assert!(!copy.guest_knows(b), "it was killed");
    drop(adopted);
    copy.settle();
    assert!(!copy.guest_knows(a));
}

#[test]
fn killing_the_rest_reaches_those_that_nobody_held_and_spares_the_adopted() {
    let vm = FakeVm::new();
    let detached = spawn(&vm, &["stall"]).detach();
    let [adopted, discarded, held] = [(); 3].map(|()| spawn(&vm, &["stall"]));
    let copy = vm.restored();
    assert!(copy.hub.discard(discarded.id()));
    let copy = copy.restored();
    let kept = adopt(&copy, adopted.id());
    copy.hub.kill_rest();
    copy.settle();
    for id in [detached, discarded.id(), held.id()] {
        assert!(!copy.guest_knows(id), "{id} lives");
    }
    assert!(copy.guest_knows(kept.handle.id()));
    assert_eq!(copy.hub.active(), 1);
}

#[test]
fn what_nobody_adopts_is_drained_and_ends_by_itself() {
    let vm = FakeVm::new();
    let writer = spawn(&vm, &["write", "3000000", "0", "0"]);
    let cat = spawn(&vm, &["cat"]);
    vm.settle();
    vm.hold.store(true, Ordering::Relaxed);
    let mut unsent = ByHand::new(vm.client.exec("stall", NONE).spawn());
    assert!(unsent.poll().is_pending());
    let copy = vm.restored();
    copy.hold.store(false, Ordering::Relaxed);
    assert_eq!(copy.hub.active(), 3);
    let ids = copy.hub.adoptable();
    assert!(copy.hub.discard(ids[2]), "what it would do nobody wants");
    assert_eq!(copy.hub.active(), 2);
    copy.settle();
    assert!(!copy.guest_knows(ids[2]));
    assert!(copy.guest_knows(writer.id()), "its window is full");
    copy.hub.discard_rest();
    copy.settle();
    assert!(!copy.guest_knows(writer.id()) && !copy.guest_knows(cat.id()));
    assert_eq!(copy.hub.active(), 0);
    assert!(copy.hub.inspect().executions.is_empty());
}

#[test]
fn admission_counts_the_restored_and_their_ids_are_not_used_again() {
    let vm = FakeVm::with_limits(crate::Limits {
        max_executions: 2,
        ..crate::Limits::default()
    });
    let both = [0; 2].map(|_| spawn(&vm, &["stall"]));
    let copy = vm.restored();
    let refused = copy.run(copy.client.exec("echo", NONE).spawn());
    assert!(matches!(
        refused,
        Err(ExecError::AtCapacity {
            limit: 2,
            active: 2,
            ..
        })
    ));
    assert!(copy.hub.kill(both[0].id()));
    copy.settle();
    let next = spawn(&copy, &["stall"]);
    assert!(next.id() > both[1].id());
}

#[test]
fn a_copy_of_a_quiesced_guest_goes_on_when_it_was_renewed() {
    let vm = FakeVm::new();
    let cat = spawn(&vm, &["cat"]);
    let ticket = vm.run(vm.hub.quiesce(LIMIT)).unwrap();
    let copies = [vm.restored(), vm.restored().restored()];
    for (n, copy) in (1..).zip(&copies) {
        assert!(copy.hub.is_quiesced());
        let mut handle = adopt(copy, cat.id()).handle;
        let sink = handle.take_stdin().unwrap();
        copy.run(sink.write("in")).unwrap();
        copy.settle();
        copy.command(cat.id(), |command| assert_eq!(command.written, 0));
        let renewal = Renewal {
            entropy: Secret([n; 32]),
            generation: [n; 16],
            hostname: None,
        };
        copy.run(copy.hub.renew(renewal, LIMIT)).unwrap();
        drop(sink);
        assert_eq!(copy.run(handle.collect()).unwrap().stdout(), b"in");
    }
    vm.hub.thaw(ticket);
    vm.settle();
    vm.with_agent(|agent| assert!(!agent.frozen));
}

#[test]
fn nothing_is_saved_while_the_guest_owes_an_answer() {
    let before = FakeVm::before_open(crate::Limits::default());
    assert_eq!(before.hub.save().map(drop), Err(SaveError::NotReady));
    let vm = FakeVm::new();
    let mut quiesce = ByHand::new(vm.hub.quiesce(LIMIT));
    assert!(quiesce.poll().is_pending());
    let error = vm.hub.save().map(drop).unwrap_err();
    assert_eq!(error, SaveError::Quiescing);
    vm.run(quiesce.into_inner()).unwrap();
    assert!(vm.hub.save().unwrap().is_frozen());
}

#[test]
fn a_restored_hub_is_ready_at_once_and_sends_what_was_due() {
    let vm = FakeVm::new();
    let writer = spawn(&vm, &["write", "3000000", "0", "0"]);
    vm.settle();
    let saved = SavedConn::decode(&vm.hub.save().unwrap().encode()).unwrap();
    let hub = Hub::restore(saved, RestoreOptions::default()).unwrap();
    assert!(matches!(
        ByHand::new(hub.ready()).poll(),
        Poll::Ready(Ok(_))
    ));
    assert!(hub.discard(writer.id()));
    let link = crate::fake_guest::counted(&hub);
    assert_eq!(link(), 1, "the acknowledgement waits");
    assert!(hub.next_to_guest().is_some());
}

#[test]
fn time_for_which_the_guest_stood_still_shortens_nothing() {
    let vm = FakeVm::new();
    let limit = Duration::from_secs(100);
    let exec = vm.client.exec("stall", NONE).timeout(limit);
    let mut handle = vm.run(exec.spawn()).unwrap();
    vm.hub.hold_time();
    clock::advance(10 * limit);
    assert_eq!(vm.hub.expire(), None);
    vm.hub.release_time();
    assert!(vm.hub.expire().is_some());
    vm.settle();
    assert!(vm.guest_knows(handle.id()));
    clock::advance(limit);
    vm.hub.expire();
    let ended = vm.run(handle.wait());
    assert!(matches!(ended, Err(ExecError::TimedOut { .. })));
}

#[test]
fn the_link_is_told_anew_when_the_guest_goes_on() {
    let vm = FakeVm::new();
    let timed = |limit| vm.client.exec("stall", NONE).timeout(limit);
    let long = Duration::from_secs(100);
    let _first = vm.run(timed(long).spawn()).unwrap();
    let told = vm.alarms().len();
    vm.hub.hold_time();
    clock::advance(10 * long);
    let short = long / 2;
    let mut second = ByHand::new(timed(short).spawn());
    assert!(second.poll().is_pending());
    let mut quiesce = ByHand::new(vm.hub.quiesce(LIMIT));
    assert!(quiesce.poll().is_pending());
    assert_eq!(vm.alarms().len(), told, "nothing can be due");
    clock::advance(10 * long);
    let before = clock::now();
    vm.hub.release_time();
    let after = clock::now();
    // The first to be due is the question.
    let within = LIMIT + Duration::from_secs(2);
    let [alarm] = vm.alarms()[told..] else {
        panic!("it is told once");
    };
    let at = |now| clock::instant(now + within).unwrap();
    assert!((at(before)..=at(after)).contains(&alarm));
    vm.with_agent(|agent| agent.at_quiesce = None);
    vm.settle();
    assert!(quiesce.poll().is_pending());
    clock::advance(within);
    vm.hub.expire();
    assert!(matches!(quiesce.poll(), Poll::Ready(Err(_))));
}

#[test]
fn the_time_of_a_restored_hub_begins_when_its_guest_goes_on() {
    let vm = FakeVm::new();
    let limit = Duration::from_secs(100);
    let exec = vm.client.exec("stall", NONE).timeout(limit);
    let kept = vm.run(exec.spawn()).unwrap();
    let hub = Hub::restore(vm.hub.save().unwrap(), RestoreOptions::default()).unwrap();
    clock::advance(10 * limit);
    assert_eq!(hub.expire(), None);
    hub.release_time();
    let next = hub.expire().unwrap();
    assert!(next > clock::instant(clock::now()).unwrap());
    assert!(next <= clock::instant(clock::now() + limit).unwrap());
    drop(kept);
}

#[test]
fn handles_of_a_copy_outlive_whoever_restored_it() {
    let vm = FakeVm::new();
    let id = spawn(&vm, &["stall"]).detach();
    let kept = spawn(&vm, &["stall"]);
    let copy = vm.restored();
    let handle = adopt(&copy, kept.id()).handle;
    assert!(Arc::strong_count(&copy.hub) > 1);
    assert_ne!(handle.id(), id);
    drop(handle);
}
