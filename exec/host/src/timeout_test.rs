//! Timeouts of commands. Time is what the tests say it is, except where a loop keeps it.

use std::future::{Future, IntoFuture as _};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;

use crate::clock;
use crate::fake_guest::{ByHand, FakeVm, without_deadlock};
use crate::{
    Exec, ExecError, ExecEvent, ExecHandle, ExecId, ExecOutput, FailureKind, Signal, Stdin,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits 5 s for a confirmation, and a little longer.
const LONGER: Duration = Duration::from_secs(6);

fn exec<const N: usize>(vm: &FakeVm, program: &str, args: [&str; N]) -> Exec {
    vm.client.exec(program, args).timeout(LIMIT)
}

fn spawn<const N: usize>(vm: &Arc<FakeVm>, program: &str, args: [&str; N]) -> ExecHandle {
    vm.run(exec(vm, program, args).spawn()).unwrap()
}

/// The time of all commands started until now is over.
fn expire(vm: &FakeVm) -> Duration {
    let now = clock::now() + LIMIT;
    vm.hub.expire_by(now);
    now
}

/// The same, and the time for the guest to confirm it.
fn overdue(vm: &FakeVm) {
    let now = expire(vm);
    vm.hub.expire_by(now + LONGER);
}

/// What a command that timed out wrote.
fn timed_out<T: std::fmt::Debug>(outcome: Result<T, ExecError>) -> ExecOutput {
    match outcome {
        Err(ExecError::TimedOut { limit, output }) => {
            assert_eq!(limit, LIMIT);
            assert!(output.status().timed_out());
            assert_eq!(output.status().signal(), Some(Signal::KILL));
            *output
        }
        other => panic!("{other:?}"),
    }
}

fn unconfirmed<T: std::fmt::Debug>(outcome: Result<T, ExecError>) -> (Vec<u8>, Vec<u8>) {
    match outcome {
        Err(ExecError::Unconfirmed {
            limit,
            stdout,
            stderr,
        }) => {
            assert_eq!(limit, LIMIT);
            (stdout, stderr)
        }
        other => panic!("{other:?}"),
    }
}

/// Polls what was woken; it must be, and then be ready.
fn ready<F: Future>(future: &mut ByHand<F>) -> F::Output {
    assert!(future.woken.is_set(), "nobody was woken");
    match future.poll() {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("not ready"),
    }
}

// B07
#[test]
fn what_a_command_wrote_before_its_timeout_comes_with_the_error() {
    let vm = FakeVm::new();
    let mut collect = ByHand::new(spawn(&vm, "write", ["5", "3"]).collect());
    let mut output = ByHand::new(exec(&vm, "write", ["40000", "0"]).output());
    let mut awaited = ByHand::new(exec(&vm, "chatter", []).into_future());
    assert!(collect.poll().is_pending());
    for _ in 0..5 {
        assert!(output.poll().is_pending());
        assert!(awaited.poll().is_pending());
        vm.round();
    }
    expire(&vm);
    vm.settle();
    let so_far = timed_out(ready(&mut collect));
    assert_eq!((so_far.stdout().len(), so_far.stderr().len()), (5, 3));
    let so_far = timed_out(vm.run(output.into_inner()));
    assert_eq!(so_far.stdout().len(), 40_000);
    assert!(!timed_out(vm.run(awaited.into_inner())).stdout().is_empty());
    assert_eq!(vm.client.active(), 0);
}

#[test]
fn a_wait_that_times_out_has_no_output_and_says_so_again() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "write", ["5", "3"]);
    let mut status = ByHand::new(exec(&vm, "stall", []).status());
    for _ in 0..5 {
        assert!(status.poll().is_pending());
        vm.round();
    }
    // Cancelling a wait does not stop the clock.
    let mut wait = ByHand::new(handle.wait());
    assert!(wait.poll().is_pending());
    drop(wait);
    expire(&vm);
    vm.settle();
    timed_out(ready(&mut status));
    for _ in 0..2 {
        let output = timed_out(vm.run(handle.wait()));
        assert_eq!((output.stdout(), output.stderr()), (&b""[..], &b""[..]));
    }
    assert_eq!(vm.client.active(), 0);
}

#[test]
fn recv_reports_the_exit_of_a_command_that_timed_out() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "write", ["5", "0"]);
    vm.settle();
    expire(&vm);
    let mut events = Vec::new();
    while let Some(event) = vm.run(handle.recv()) {
        events.push(event);
    }
    match &events[..] {
        [
            ExecEvent::Started { .. },
            ExecEvent::Stdout(data),
            ExecEvent::Exited(status),
        ] => {
            assert_eq!(data.len(), 5);
            assert!(status.timed_out());
            assert_eq!(status.signal(), Some(Signal::KILL));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_readers_of_a_command_that_timed_out_come_to_their_end() {
    let vm = FakeVm::new();
    let mut parts = spawn(&vm, "write", ["5", "7"]).split();
    vm.settle();
    expire(&vm);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    vm.run(parts.stdout.read_to_end(&mut stdout)).unwrap();
    vm.run(parts.stderr.read_to_end(&mut stderr)).unwrap();
    assert_eq!((stdout.len(), stderr.len()), (5, 7));
    timed_out(vm.run(parts.exit.wait()));
}

// B07
#[test]
fn a_command_that_ends_by_itself_as_its_time_is_over_has_its_own_exit() {
    let vm = FakeVm::new();
    for killed_first in [false, true] {
        let mut handle = spawn(&vm, "stall", []);
        // The guest reads the kill when it has told the exit.
        vm.hold.store(true, Ordering::Relaxed);
        if killed_first {
            expire(&vm);
        }
        vm.command(handle.id(), |command| command.exit = Some(0));
        vm.round();
        if !killed_first {
            expire(&vm);
        }
        vm.hold.store(false, Ordering::Relaxed);
        vm.settle();
        let status = vm.run(handle.wait()).unwrap();
        assert!(status.success() && !status.timed_out());
        assert_eq!(vm.client.active(), 0);
    }
}

#[test]
fn an_end_that_the_guest_does_not_confirm_is_told_after_the_bound_and_holds_its_slot() {
    let vm = FakeVm::new();
    let mut waits = spawn(&vm, "stall", []);
    let id = waits.id();
    let collects = spawn(&vm, "write", ["5", "3"]);
    let mut receives = spawn(&vm, "stall", []);
    assert!(vm.run(receives.recv()).is_some());
    vm.settle();
    vm.hold.store(true, Ordering::Relaxed);
    let mut wait = ByHand::new(waits.wait());
    let mut collect = ByHand::new(collects.collect());
    let mut recv = ByHand::new(receives.recv());
    assert!(wait.poll().is_pending() && collect.poll().is_pending() && recv.poll().is_pending());
    let expired = expire(&vm);
    vm.settle();
    assert!(wait.poll().is_pending() && collect.poll().is_pending() && recv.poll().is_pending());
    vm.hub.expire_by(expired + LONGER);
    assert_eq!(unconfirmed(ready(&mut wait)), (vec![], vec![]));
    let (stdout, stderr) = unconfirmed(ready(&mut collect));
    assert_eq!((stdout.len(), stderr.len()), (5, 3));
    assert!(recv.poll().is_pending(), "the exit may still come");
    drop((wait, collect));
    unconfirmed(vm.run(waits.wait()));
    assert_eq!(vm.client.active(), 3, "what may run holds its slot");
    assert!(vm.guest_knows(id));
    // The guest confirms it after all, and every waiter is told what is true.
    vm.hold.store(false, Ordering::Relaxed);
    vm.settle();
    assert_eq!(vm.client.active(), 0);
    assert!(matches!(ready(&mut recv), Some(ExecEvent::Exited(status)) if status.timed_out()));
    timed_out(vm.run(waits.wait()));
}

#[test]
fn all_that_has_come_by_the_bound_is_in_the_error() {
    let vm = FakeVm::new();
    // More chunks than one batch takes, in less than the allowance.
    let mut collect = ByHand::new(spawn(&vm, "write", ["900000", "0"]).collect());
    vm.settle();
    vm.hold.store(true, Ordering::Relaxed);
    overdue(&vm);
    let (stdout, _) = unconfirmed(ready(&mut collect));
    assert_eq!(stdout.len(), 900_000);
}

#[test]
fn a_reader_that_is_late_makes_no_end_unconfirmed() {
    let vm = FakeVm::new();
    // The allowance is used up, so nothing can come, and nobody polls.
    let mut collect = ByHand::new(spawn(&vm, "chatter", []).collect());
    vm.settle();
    vm.hold.store(true, Ordering::Relaxed);
    overdue(&vm);
    assert!(collect.poll().is_pending());
    vm.hold.store(false, Ordering::Relaxed);
    vm.settle();
    assert!(!timed_out(ready(&mut collect)).stdout().is_empty());
}

#[test]
fn the_end_of_the_vm_is_told_instead_of_a_timeout() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "stall", []);
    vm.hold.store(true, Ordering::Relaxed);
    overdue(&vm);
    vm.hub.vm_gone("stopped");
    let error = vm.run(handle.wait()).unwrap_err();
    assert!(matches!(error, ExecError::VmGone { .. }), "{error}");
    assert_eq!(vm.hub.expire(), None);
}

#[test]
fn a_start_that_comes_after_the_timeout_is_killed_then() {
    let vm = FakeVm::new();
    let mut start = ByHand::new(exec(&vm, "late", []).spawn());
    assert!(start.poll().is_pending());
    vm.settle();
    expire(&vm);
    vm.settle();
    let id = vm.hub.inspect().executions[0].id;
    // A kill would have made it start.
    assert!(
        vm.command(id, |command| command.hold_start),
        "killed before it started"
    );
    vm.command(id, |command| command.hold_start = false);
    vm.settle();
    let mut handle = ready(&mut start).unwrap();
    timed_out(vm.run(handle.wait()));
}

#[test]
fn a_start_that_never_comes_is_given_up_after_the_bound() {
    let vm = FakeVm::new();
    let mut start = ByHand::new(exec(&vm, "late", []).spawn());
    assert!(start.poll().is_pending());
    vm.settle();
    overdue(&vm);
    assert_eq!(unconfirmed(ready(&mut start)), (vec![], vec![]));
    drop(start);
    // Nobody holds it any more, so it is killed like any other.
    vm.settle();
    assert_eq!(vm.client.active(), 0);
}

#[test]
fn a_request_that_the_guest_has_not_taken_in_time_is_not_sent() {
    let vm = FakeVm::new();
    vm.hold.store(true, Ordering::Relaxed);
    let mut start = ByHand::new(exec(&vm, "stall", []).spawn());
    assert!(start.poll().is_pending());
    expire(&vm);
    match ready(&mut start) {
        Err(ExecError::NotStarted(failure)) => {
            assert_eq!(failure.kind, FailureKind::Other);
            assert!(failure.is_timeout(), "{failure}");
            let error = io::Error::from(ExecError::NotStarted(failure));
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(vm.client.active(), 0);
    vm.hold.store(false, Ordering::Relaxed);
    vm.settle();
    assert!(!vm.guest_knows(ExecId::new(1).unwrap()));
}

#[test]
fn a_timeout_holds_whatever_became_of_the_handle() {
    let vm = FakeVm::new();
    spawn(&vm, "chatter", []).detach();
    let handle = spawn(&vm, "chatter", []);
    let control = handle.control();
    drop(handle);
    let mut piped = vm
        .run(exec(&vm, "stall", []).stdin(Stdin::piped()).spawn())
        .unwrap();
    let sink = piped.take_stdin().unwrap();
    drop(piped);
    for _ in 0..20 {
        vm.round();
    }
    assert_eq!(vm.client.active(), 3);
    expire(&vm);
    vm.settle();
    assert_eq!(vm.client.active(), 0);
    assert!(vm.run(control.signal(Signal::USR1)).is_err());
    assert!(vm.run(sink.write("x")).is_err());
}

#[test]
fn a_timeout_that_cannot_be_kept_is_refused_before_anything_is_sent() {
    let vm = FakeVm::new();
    let kicks = vm.kicks();
    for limit in [Duration::ZERO, Duration::MAX] {
        let refused = vm.run(vm.client.exec("stall", [""; 0]).timeout(limit).spawn());
        match refused {
            Err(ExecError::InvalidRequest { field, why }) => {
                assert_eq!(field, "timeout");
                assert!(why.contains(&format!("{limit:?}")), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((vm.kicks(), vm.client.active()), (kicks, 0));
}

#[test]
fn a_later_timeout_replaces_the_one_before() {
    let vm = FakeVm::new();
    let exec = exec(&vm, "stall", []).timeout(LIMIT * 100);
    let handle = vm.run(exec.spawn()).unwrap();
    expire(&vm);
    vm.settle();
    assert!(vm.guest_knows(handle.id()));
}

#[test]
fn the_link_is_told_of_deadlines_that_come_before_those_it_knows() {
    let vm = FakeVm::new();
    let start = |limit| {
        let exec = vm.client.exec("stall", [""; 0]).timeout(limit);
        vm.run(exec.spawn()).unwrap()
    };
    let before = Instant::now();
    let _first = start(LIMIT);
    let [first] = vm.alarms()[..] else {
        panic!("{:?}", vm.alarms())
    };
    assert!(first >= before + LIMIT && first <= Instant::now() + LIMIT);
    let _later = start(LIMIT * 2);
    assert_eq!(vm.alarms().len(), 1, "it will ask at the first one");
    let sooner = start(LIMIT / 2);
    assert_eq!(vm.alarms().len(), 2);
    assert!(vm.alarms()[1] < first);
    drop(sooner);
    vm.settle();
    // Too early a call changes nothing, and whoever calls has been told.
    assert_eq!(vm.hub.expire(), Some(first));
    let _between = start(LIMIT * 3 / 2);
    assert_eq!(vm.alarms().len(), 2);
}

#[test]
fn timeouts_are_kept_while_nobody_polls() {
    // B07: the runtime does nothing; the VM's loop does it all.
    without_deadlock(|| {
        let vm = FakeVm::new();
        let vm_loop = vm.spawn_loop();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let spawn = |millis| {
            let exec = vm.client.exec("chatter", [""; 0]);
            let exec = exec.timeout(Duration::from_millis(millis));
            runtime.block_on(exec.spawn()).unwrap()
        };
        // Each sets the timer for its own time.
        let handles = [3000, 1000, 2000].map(spawn);
        let ids = [0, 1, 2].map(|at: usize| handles[at].id());
        while ids.iter().any(|id| vm.guest_knows(*id)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for handle in handles {
            let outcome = runtime.block_on(handle.collect());
            assert!(
                matches!(outcome, Err(ExecError::TimedOut { .. })),
                "{outcome:?}"
            );
        }
        drop(vm_loop);
    });
}

#[test]
fn errors_of_timeouts_are_timeouts_to_io_too() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "stall", []);
    vm.hold.store(true, Ordering::Relaxed);
    overdue(&vm);
    let unconfirmed = vm.run(handle.wait()).unwrap_err();
    let text = unconfirmed.to_string();
    assert!(
        text.contains("60s") && text.contains("may still run"),
        "{text}"
    );
    vm.hold.store(false, Ordering::Relaxed);
    let timed_out = vm.run(async {
        loop {
            match handle.recv().await {
                Some(_) => {}
                None => return handle.wait().await.unwrap_err(),
            }
        }
    });
    assert!(timed_out.to_string().contains("60s"), "{timed_out}");
    for error in [unconfirmed, timed_out] {
        let error = io::Error::from(error);
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.downcast::<ExecError>().is_ok());
    }
}
