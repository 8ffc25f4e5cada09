//! Starting many at once: each has its own result, and PID 1 is afterwards as it was.

use forebay::{Signal, Stdin};
use forebay_tests::{Held, TestVm, Within as _};
use tokio::task::JoinSet;

use super::{LONG, assert_answers, assert_slots_come_free, shared};

/// Starts as many as there are slots in the same moment. Each takes its own stdin, has its own
/// environment, writes to both streams, and ends in its own way.
async fn all_at_once(vm: &TestVm) {
    let most = vm.client().limits().max_executions;
    let mut running = JoinSet::new();
    for k in 0..most {
        let script = "read line; echo out $k $line; echo err $k >&2; \
                      [ $((k % 4)) = 3 ] && kill $$; exit $k";
        let exec = vm.shell(script).env("k", k.to_string());
        let exec = exec.stdin(Stdin::bytes(format!("line of {k}\n")));
        running.spawn(async move { (k, exec.output().await) });
    }
    let mut ended = 0;
    while let Some(next) = running.join_next().within(LONG).await {
        let (k, out) = next.unwrap();
        let out = out.unwrap();
        assert_eq!(out.stdout_str().unwrap(), format!("out {k} line of {k}\n"));
        assert_eq!(out.stderr_str().unwrap(), format!("err {k}\n"));
        if k % 4 == 3 {
            assert_eq!(out.status().signal(), Some(Signal::TERM), "{k}");
        } else {
            assert_eq!(out.status().code(), i32::try_from(k).ok());
        }
        ended += 1;
    }
    assert_eq!(ended, most);
    assert_slots_come_free(vm).await;
}

#[tokio::test]
async fn all_slots_started_in_the_same_moment_have_their_own_results_and_pid_1_is_as_before() {
    let vm = &*shared().await;
    assert_slots_come_free(vm).await;
    // What the agent allocates for so many at once, it keeps for the next time.
    all_at_once(vm).await;
    let before = Held::now(vm).await;
    all_at_once(vm).await;
    all_at_once(vm).await;
    before.assert_no_more(vm).await;
    assert_answers(vm).await;
}

// B22
#[tokio::test]
async fn starts_that_fail_in_great_number_cost_pid_1_nothing() {
    let vm = &*shared().await;
    let most = vm.client().limits().max_executions;
    let fail = async || {
        let mut running = JoinSet::new();
        for k in 0..most {
            let exec = match k % 3 {
                0 => vm.exec("nosuch", [""; 0]),
                1 => vm.exec("true", [""; 0]).current_dir("/nosuch"),
                _ => vm.exec("/etc", [""; 0]),
            };
            running.spawn(exec.spawn());
        }
        while let Some(next) = running.join_next().within(LONG).await {
            let failed = next.unwrap();
            assert!(
                matches!(failed, Err(forebay::ExecError::NotStarted(_))),
                "{failed:?}"
            );
        }
        assert_eq!(vm.client().active(), 0);
    };
    fail().await;
    let before = Held::now(vm).await;
    fail().await;
    fail().await;
    before.assert_no_more(vm).await;
}
