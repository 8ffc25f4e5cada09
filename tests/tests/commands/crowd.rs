//! As many commands at once as there are slots, some with readers that pause: each reader sees its
//! own command's lines, all of them, in order.

use std::time::Duration;

use forebay::ExecError;
use forebay_tests::{CEILING, Within as _};
use tokio::time::sleep;

use super::{LONG, assert_slots_come_free, shared};

const LINES: u32 = 2000;
/// Readers that have other things to do first.
const LATE: usize = 20;

/// Prints `k:i` for each line to stdout and `k!i` for every tenth to stderr.
fn script(k: usize) -> String {
    let last = LINES - 1;
    format!("seq 0 {last} | sed s/^/{k}:/; seq 0 10 {last} | sed s/^/{k}!/ >&2")
}

fn expected(k: usize) -> (String, String) {
    let out = (0..LINES).map(|i| format!("{k}:{i}\n")).collect();
    let err = (0..LINES).step_by(10).map(|i| format!("{k}!{i}\n"));
    (out, err.collect())
}

// B32
#[tokio::test]
async fn every_slot_in_use_and_each_reader_sees_its_own_lines() {
    let vm = &*shared().await;
    assert_slots_come_free(vm).await;
    let most = vm.client().limits().max_executions;
    let mut running = Vec::new();
    for k in 0..most as usize {
        let spawned = vm.shell(script(k)).spawn().within(LONG).await;
        running.push((k, spawned.unwrap()));
    }
    // Nobody has read yet, so all hold their slots, ended or not.
    match vm.exec("true", [""; 0]).spawn().within(CEILING).await {
        Err(ExecError::AtCapacity { limit, active, .. }) => {
            assert_eq!((limit, active), (most, most))
        }
        other => panic!("{other:?}"),
    }
    // One is read to its end: a new one fits, and no second.
    let (last, handle) = running.pop().unwrap();
    let out = handle.collect().within(LONG).await.unwrap();
    assert_eq!(out.stdout_str().unwrap(), expected(last).0);
    let new = vm.exec("sleep", ["1000"]).spawn().within(CEILING).await;
    let new = new.unwrap();
    let refused = vm.exec("true", [""; 0]).spawn().within(CEILING).await;
    assert!(
        matches!(refused, Err(ExecError::AtCapacity { .. })),
        "{refused:?}"
    );

    let readers: Vec<_> = running
        .into_iter()
        .map(|(k, handle)| {
            tokio::spawn(async move {
                if k < LATE {
                    sleep(Duration::from_secs(3)).await;
                }
                (k, handle.collect().within(LONG).await.unwrap())
            })
        })
        .collect();
    for reader in readers {
        let (k, out) = reader.await.unwrap();
        let (stdout, stderr) = expected(k);
        assert!(out.stdout() == stdout.as_bytes(), "stdout of {k}");
        assert!(out.stderr() == stderr.as_bytes(), "stderr of {k}");
    }
    drop(new);
    assert_slots_come_free(vm).await;
}
