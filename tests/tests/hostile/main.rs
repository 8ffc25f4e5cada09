//! A guest whose agent breaks the exec protocol over a real virtio port: who breaks a rule is cut
//! off, its neighbours keep every byte, and the host holds no more and works no longer for it.
//!
//! The agent is the guest program's `hostile-agent`, as PID 1 in place of ours; what a command runs
//! says which rule it breaks. All tests share one VM, booted by the first that needs it, except
//! those that the guest does not come out of.

mod connection;
mod deadline;
mod execution;
mod flood;
mod greeting;
mod neighbours;
mod rest;
mod silence;

use std::time::Duration;

use forebay::{ExecError, ExecEvent, VmBuilder};
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{
    CEILING, HELPER, SharedVm, TestVm, Within as _, assert_slots_in_use, builder,
    resident_beyond_guests,
};
use neighbours::Neighbours;
use rest::comes_to_rest;
use tokio::sync::OnceCell;

const MIB: u64 = 1024 * 1024;

/// For much data, on hardware.
const LONG: Duration = Duration::from_secs(60);

/// Unread output of one execution at most, by the default limits.
const WINDOW: u64 = MIB;

/// What a chunk of output costs of it beside its bytes.
const CHUNK_CHARGE: u32 = 256;

/// Threads that take output from the guest: vCPU and event loop. Each has a pool of the allocator
/// that may keep what it once held for one of them, for the next.
const ALLOCATING: u64 = 2;

/// Beside the allowances: the allocator, and what the test itself needs.
const NOISE: u64 = 3 * MIB;

/// Between two looks at something that is to come.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A guest with the hostile agent, which greets as it is told.
fn hostile(greeting: &str) -> VmBuilder {
    // The kernel hands words that it does not know to init.
    builder().cmdline(format!("rdinit={HELPER} hostile-agent {greeting}"))
}

/// The VM that the tests of this program share; a test has it for itself.
async fn shared() -> SharedVm {
    static SHARED: OnceCell<TestVm> = OnceCell::const_new();
    SharedVm::take(&SHARED, || hostile("honest")).await
}

/// Runs something honest that writes `bytes` bytes, and checks each as it comes: the test itself is
/// to hold next to nothing.
async fn assert_honest_work(vm: &TestVm, seed: u64, bytes: u64) {
    let exec = vm.exec("random", [seed.to_string(), bytes.to_string()]);
    let mut work = exec.spawn().within(CEILING).await.unwrap();
    let mut pattern = Pattern::new(seed);
    let mut seen = 0;
    let check = async {
        while let Some(event) = work.recv().await {
            match event {
                ExecEvent::Stdout(chunk) => {
                    assert_eq!(pattern.first_difference(&chunk), None, "after {seen}");
                    seen += chunk.len() as u64;
                }
                ExecEvent::Started { .. } => {}
                ExecEvent::Exited(status) => assert!(status.success(), "{status}"),
                other => panic!("{other:?}"),
            }
        }
    };
    check.within(LONG).await;
    assert_eq!(seen, bytes);
}

/// Ends what goes on without end in the guest.
async fn give_in(vm: &TestVm) {
    let status = vm.exec("give-in", [""; 0]).status().within(CEILING).await;
    assert!(status.unwrap().success());
}

/// Rules that the guest has broken so far, by the host's count.
fn faults(vm: &TestVm) -> u64 {
    vm.inspect().executions.faults
}

/// Fails unless this is an execution's own failure, by the rule that `why` is a part of.
fn assert_broke(error: &ExecError, rule: &str, why: &str) {
    match error {
        ExecError::Protocol(failure) => {
            assert_eq!(failure.stage, "protocol", "{rule}");
            assert!(failure.message.contains(why), "{rule}: {failure}");
        }
        other => panic!("{rule}: {other}"),
    }
}

/// Fails unless this is the end of the connection, by the rule that `why` is a part of.
fn assert_cut(error: &ExecError, rule: &str, why: &str) {
    match error {
        ExecError::VmGone { reason } => assert!(reason.contains(why), "{rule}: {reason}"),
        other => panic!("{rule}: {other}"),
    }
}

/// What the host holds beside its guests, against a moment before.
struct Held(u64);

impl Held {
    /// Once the allocator's pools are filled.
    async fn now(vm: &TestVm) -> Self {
        for seed in 0..4 {
            assert_honest_work(vm, seed, MIB).await;
        }
        Self(resident_beyond_guests())
    }

    /// Fails if it has grown by more than this many executions' unread output, and the usual noise.
    fn assert_flat(&self, windows: u64, what: &str) {
        let grown = resident_beyond_guests().saturating_sub(self.0);
        let allowed = windows * ALLOCATING * WINDOW + NOISE;
        assert!(
            grown <= allowed,
            "{what}: {grown} bytes more, {allowed} are allowed"
        );
    }
}
