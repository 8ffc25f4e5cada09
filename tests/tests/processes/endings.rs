//! Each way in which a command ends is what the documentation of `ExecOutput` shows, and its result
//! is read again as it was written.

use std::time::Duration;

use forebay::{ExecError, ExecOutput, FailureKind, Resource, Signal, Stdin};
use forebay_tests::{CEILING, TestVm, Within as _, scaled};

use super::{LONG, shared};

/// Its result, after it was written as JSON and read again.
fn written_and_read(output: &ExecOutput) -> ExecOutput {
    let text = serde_json::to_string(output).unwrap();
    serde_json::from_str(&text).unwrap()
}

// B08, B23
#[tokio::test]
async fn each_ending_is_what_the_documentation_shows() {
    let vm = &*shared().await;

    let exited = vm
        .shell("echo no such user >&2; exit 3")
        .within(LONG)
        .await
        .unwrap();
    assert_eq!(exited.status().code(), Some(3));
    assert_eq!(exited.stderr_str(), Ok("no such user\n"));

    let sleep = vm
        .exec("sleep", ["1000"])
        .spawn()
        .within(LONG)
        .await
        .unwrap();
    sleep.signal(Signal::TERM).within(CEILING).await.unwrap();
    let signalled = sleep.collect().within(LONG).await.unwrap();
    assert_eq!(signalled.status().signal(), Some(Signal::TERM));
    assert_eq!(signalled.status().code(), None);
    assert_eq!(signalled.status().to_string(), "ended by SIGTERM");

    let hog = vm.exec("tail", ["/dev/zero"]).memory_limit(32 << 20);
    let starved = hog.within(LONG).await.unwrap();
    assert_eq!(starved.status().oom_killed(), Some(true));
    assert_eq!(
        starved.status().to_string(),
        "ended by SIGKILL (out of memory)"
    );

    let limit = scaled(Duration::from_secs(1));
    let slow = vm.shell("echo begun; sleep 1000").timeout(limit);
    let Err(ExecError::TimedOut { output: late, .. }) = slow.within(LONG).await else {
        panic!("it has not timed out");
    };
    assert!(late.status().timed_out());
    assert_eq!(late.stdout(), b"begun\n");
    assert_eq!(late.status().to_string(), "ended by SIGKILL (timed out)");

    let missing = vm.exec("frobnicate", ["--fast"]).within(LONG).await;
    let Err(ExecError::NotStarted(failure)) = missing else {
        panic!("{missing:?}");
    };
    assert_eq!(failure.kind, FailureKind::NotFound);

    for output in [exited, signalled, starved, *late] {
        assert_eq!(written_and_read(&output), output);
    }
}

#[tokio::test]
async fn the_end_of_a_vm_claims_no_exit() {
    let vm = TestVm::boot().await;
    let mut running = vm
        .exec("sleep", ["1000"])
        .spawn()
        .within(LONG)
        .await
        .unwrap();
    drop(vm);
    let end = running.wait().within(CEILING).await;
    let Err(ExecError::VmGone { reason }) = end else {
        panic!("{end:?}");
    };
    assert!(!reason.is_empty());
}

#[tokio::test]
async fn a_request_with_everything_in_it_runs_as_it_asked() {
    let vm = &*shared().await;
    let out = vm
        .exec("sort", ["-u"])
        .stdin(Stdin::bytes("b\na\nb\n"))
        .env("LC_ALL", "C")
        .current_dir("/tmp")
        .user("nobody:nogroup")
        .rlimit(Resource::Nofile, 64, 64)
        .memory_limit(64 << 20)
        .process_limit(16)
        .timeout(scaled(Duration::from_secs(5)))
        .within(LONG)
        .await
        .unwrap();
    assert_eq!(out.stdout(), b"a\nb\n", "{}", out.status());
}
