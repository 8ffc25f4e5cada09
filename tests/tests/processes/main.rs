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

use forebay_tests::{
    SharedVm, TestVm, Within as _, assert_answers, assert_slots_come_free, builder, to_its_exit,
};
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
