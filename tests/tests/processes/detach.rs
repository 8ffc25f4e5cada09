//! Who keeps a command running: B24, for handles of the library.

use forebay::{ControlError, Signal, Stdin};
use forebay_tests::{CEILING, TestVm, Within as _, rounds};

use super::{answer, assert_slots_come_free, shared};

/// A loop that can be seen to run.
fn heart(file: &str) -> String {
    format!("while :; do echo beat | tee -a {file}; sleep .1; done")
}

/// Waits until the loop has written once more.
async fn beats(vm: &TestVm, file: &str) {
    let script = format!("rm -f {file}; until [ -s {file} ]; do sleep .1; done");
    answer(vm, &script).await;
}

/// Fails if a loop still writes.
async fn stands_still(vm: &TestVm, file: &str) {
    let script = format!("rm -f {file}; sleep 1; [ ! -e {file} ] && echo still");
    assert_eq!(answer(vm, &script).await, "still");
}

/// Waits until no process has this number.
async fn is_gone(vm: &TestVm, pid: u32) {
    answer(vm, &format!("while [ -d /proc/{pid} ]; do sleep .1; done")).await;
}

#[tokio::test]
async fn a_command_runs_as_long_as_a_control_of_it_lives() {
    let vm = &*shared().await;
    let file = "/tmp/heart-control";
    let command = vm.shell(heart(file)).spawn().within(CEILING).await.unwrap();
    let (first, second) = (command.control(), command.control());
    drop(command);
    // Nobody reads it, and it does not wait for that.
    beats(vm, file).await;
    drop(first);
    beats(vm, file).await;
    drop(second);
    assert_slots_come_free(vm).await;
    stands_still(vm, file).await;
}

#[tokio::test]
async fn a_control_whose_handle_is_gone_still_signals() {
    let vm = &*shared().await;
    let script = "trap 'echo caught > /tmp/caught' USR1; rm -f /tmp/caught; echo ready; \
                  until [ -e /tmp/caught ]; do sleep .1; done";
    let mut command = vm.shell(script).spawn().within(CEILING).await.unwrap();
    while !matches!(
        command.recv().within(CEILING).await,
        Some(forebay::ExecEvent::Stdout(_))
    ) {}
    let control = command.control();
    drop(command);
    control.signal(Signal::USR1).within(CEILING).await.unwrap();
    assert_slots_come_free(vm).await;
    assert_eq!(answer(vm, "cat /tmp/caught").await, "caught");
    let late = control.signal(Signal::USR1).within(CEILING).await;
    assert!(matches!(late, Err(ControlError::Ended)), "{late:?}");
}

#[tokio::test]
async fn a_command_runs_as_long_as_its_stdin_is_held() {
    let vm = &*shared().await;
    let script = "rm -f /tmp/fed; read line; echo $line > /tmp/fed; sleep 1000";
    let command = vm.shell(script).stdin(Stdin::piped());
    let mut command = command.spawn().within(CEILING).await.unwrap();
    let pid = command.pid();
    let stdin = command.take_stdin().unwrap();
    drop(command);
    stdin.write("held\n").within(CEILING).await.unwrap();
    let look = "until [ -s /tmp/fed ]; do sleep .1; done; cat /tmp/fed";
    assert_eq!(answer(vm, look).await, "held");
    drop(stdin);
    is_gone(vm, pid).await;
    assert_slots_come_free(vm).await;
}

#[tokio::test]
async fn a_detached_command_runs_to_its_end_and_frees_its_slot_then() {
    let vm = &*shared().await;
    let script = "rm -f /tmp/detached-go /tmp/detached-end; \
                  until [ -e /tmp/detached-go ]; do sleep .1; done; \
                  head -c 3000000 /dev/zero; echo done > /tmp/detached-end";
    let command = vm.shell(script).spawn().within(CEILING).await.unwrap();
    let control = command.control();
    let id = command.detach();
    assert_eq!(control.id(), id);
    // A control still reaches it, and dropping it kills no more.
    control.signal(Signal::CONT).within(CEILING).await.unwrap();
    drop(control);
    assert_eq!(vm.client().active(), 1);
    // It writes more than the host would keep, and nobody reads it.
    let script = "touch /tmp/detached-go; until [ -e /tmp/detached-end ]; do sleep .1; done; \
                  cat /tmp/detached-end";
    assert_eq!(answer(vm, script).await, "done");
    assert_slots_come_free(vm).await;
}

#[tokio::test]
async fn a_terminals_command_can_be_detached_too() {
    let vm = &*shared().await;
    let file = "/tmp/heart-terminal";
    let command = vm
        .shell(heart(file))
        .terminal(forebay::TerminalSize::default());
    let command = command.stdin(Stdin::piped());
    let command = command.spawn().within(CEILING).await.unwrap();
    let control = command.control();
    command.detach();
    beats(vm, file).await;
    control.kill();
    assert_slots_come_free(vm).await;
    stands_still(vm, file).await;
}

// B24: more of them than there are slots.
#[tokio::test]
async fn handles_dropped_one_after_another_leave_no_loop_and_no_slot_behind() {
    let vm = &*shared().await;
    let file = "/tmp/heart-many";
    for round in 0..rounds(300).max(150) {
        let command = vm.shell(heart(file)).stdin(Stdin::piped());
        let command = command.spawn().within(CEILING).await.unwrap();
        match round % 4 {
            0 => drop(command),
            1 => drop(command.split()),
            // Cancelled in the middle of a wait.
            2 => {
                let task = tokio::spawn(command.collect());
                tokio::task::yield_now().await;
                task.abort();
            }
            // In another order: the control last.
            _ => {
                let control = command.control();
                drop(command);
                drop(control);
            }
        }
    }
    assert_slots_come_free(vm).await;
    stands_still(vm, file).await;
}
