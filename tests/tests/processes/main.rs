//! How processes in a guest are started, limited, timed and ended: users, limits, terminals,
//! deadlines, descendants, and what is told of each end.
//!
//! All share one VM, booted by the first that needs it, except those that need values of their own.
//! One command's trouble must not reach the next: sharing is part of the test.

mod descendants;
mod detach;
mod devices;
mod endings;
mod keys;
mod limits;
mod oom;
mod rlimits;
mod spawn_errors;
mod starts;
mod terminal;
mod timeouts;
mod usage;
mod users;

use std::time::Duration;

use forebay::{ExecEvent, ExecHandle, ExitStatus};
use forebay_tests::{CEILING, SharedVm, TestVm, Within as _, builder};
use tokio::sync::OnceCell;

/// For commands in great number, or that take their time, on hardware.
const LONG: Duration = Duration::from_secs(60);

/// The VM that the tests of this program share; a test has it for itself.
async fn shared() -> SharedVm {
    static SHARED: OnceCell<TestVm> = OnceCell::const_new();
    SharedVm::take(&SHARED, || builder().cpus(2).memory_mib(512)).await
}

/// What a script prints, trimmed. It has to succeed.
async fn answer(vm: &TestVm, script: &str) -> String {
    let out = vm.shell(script).within(LONG).await.unwrap();
    let stdout = out.stdout_str().unwrap().trim().to_owned();
    let stderr = out.stderr_str().unwrap();
    assert!(
        out.status().success(),
        "{script}: {}: {stdout} {stderr}",
        out.status()
    );
    stdout
}

/// All that comes of a command from now on: its stdout, its stderr, and how it exited. Its exit is the
/// last event.
async fn to_its_exit(command: &mut ExecHandle) -> (Vec<u8>, Vec<u8>, ExitStatus) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = loop {
        match command.recv().within(LONG).await {
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
async fn assert_answers(vm: &TestVm) {
    assert_eq!(answer(vm, "echo alive").await, "alive");
}

/// Waits until no execution holds a slot: ends are confirmed by the guest, a moment after a drop.
async fn assert_slots_come_free(vm: &TestVm) {
    let wait = async {
        while vm.client().active() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    wait.within(CEILING).await;
}
