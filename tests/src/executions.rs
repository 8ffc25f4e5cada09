//! What tests of executions ask again and again: how one goes on, and whether the VM is as before.

use std::time::Duration;

use forebay::{ExecEvent, ExecHandle, ExitStatus};

use crate::pace::{CEILING, Within as _};
use crate::vm::TestVm;

/// For one event of a command that may have to run for long before it, on hardware.
const NEXT_EVENT: Duration = Duration::from_secs(60);

/// All that comes of a command from now on: its stdout, its stderr, and how it exited. Its exit is the
/// last event.
pub async fn to_its_exit(command: &mut ExecHandle) -> (Vec<u8>, Vec<u8>, ExitStatus) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = loop {
        match command.recv().within(NEXT_EVENT).await {
            Some(ExecEvent::Started { .. }) => {}
            Some(ExecEvent::Stdout(chunk)) => stdout.extend_from_slice(&chunk),
            Some(ExecEvent::Stderr(chunk)) => stderr.extend_from_slice(&chunk),
            Some(ExecEvent::Exited(status)) => break status,
            other => panic!("{other:?}"),
        }
    };
    assert!(command.recv().within(CEILING).await.is_none());
    (stdout, stderr, status)
}

/// Fails unless the guest still answers.
pub async fn assert_answers(vm: &TestVm) {
    let out = vm.exec("echo", ["alive"]).within(CEILING).await.unwrap();
    assert_eq!(
        (out.stdout(), out.status().code()),
        (&b"alive\n"[..], Some(0))
    );
}

/// Waits until so many executions hold a slot: ends are confirmed by the guest, a moment after a drop.
pub async fn assert_slots_in_use(vm: &TestVm, number: u32) {
    let wait = async {
        while vm.client().active() != number {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    wait.within(CEILING).await;
}

/// Waits until no execution holds a slot.
pub async fn assert_slots_come_free(vm: &TestVm) {
    assert_slots_in_use(vm, 0).await;
}
