//! One short line and the end, in great number, while the guest's processors have other things to
//! do: the line is never missing and the end is always last.

use forebay::Client;
use forebay_tests::{CEILING, HELPER, Within as _, rounds};

use super::{assert_slots_come_free, shared, to_its_exit};

const RUNS: u32 = 3000;
const AT_ONCE: u32 = 16;

/// Runs one command that prints a line of its own, and reads all that comes of it.
async fn says_its_line(client: &Client, number: u32, redirection: &str) {
    let script = format!("echo running-{number} {redirection}");
    let mut command = client.shell(script).spawn().within(CEILING).await.unwrap();
    let (stdout, stderr, status) = to_its_exit(&mut command).await;
    let line = format!("running-{number}\n").into_bytes();
    let expected = match redirection {
        "" => (line, Vec::new()),
        _ => (Vec::new(), line),
    };
    assert_eq!((stdout, stderr), expected, "run {number}");
    assert_eq!(status.code(), Some(0), "run {number}");
}

async fn every_run_says_its_line(redirection: &'static str) {
    let vm = &*shared().await;
    let busy = vm.exec(HELPER, ["spin"]).spawn().within(CEILING).await;
    let busy = busy.unwrap();
    for number in 0..rounds(RUNS) {
        says_its_line(vm.client(), number, redirection).await;
    }
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|task| {
            let client = vm.client().clone();
            tokio::spawn(async move {
                for number in (task..rounds(RUNS)).step_by(AT_ONCE as usize) {
                    says_its_line(&client, number, redirection).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    busy.kill();
    drop(busy);
    assert_slots_come_free(vm).await;
}

// B01
#[tokio::test]
async fn a_line_on_stdout_is_never_missing_beside_a_busy_processor() {
    every_run_says_its_line("").await;
}

// B01
#[tokio::test]
async fn a_line_on_stderr_is_never_missing_beside_a_busy_processor() {
    every_run_says_its_line(">&2").await;
}
