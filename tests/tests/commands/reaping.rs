//! PID 1 collects what others leave behind, and never takes an exit that belongs to an execution.

use forebay::Signal;
use forebay_tests::{CEILING, HELPER, Held, TestVm, Within as _, rounds};
use tokio::task::JoinSet;

use super::{LONG, assert_slots_come_free, number, shared};

// B21
#[tokio::test]
async fn orphans_do_not_cost_a_command_its_exit_code() {
    let vm = &*shared().await;
    let rate = rounds(200).to_string();
    let mut orphans = vm
        .exec(HELPER, ["orphans", &rate, "1000"])
        .spawn()
        .within(CEILING)
        .await
        .unwrap();
    let mut running = JoinSet::new();
    let mut right = 0;
    for n in 0..rounds(5000) {
        if running.len() == 32 {
            right += u32::from(joined(&mut running).await);
        }
        let command = vm.client().shell(format!("exit {}", n % 250));
        running.spawn(async move { (n % 250, command.status().await) });
    }
    while !running.is_empty() {
        right += u32::from(joined(&mut running).await);
    }
    assert_eq!(right, rounds(5000));
    orphans.kill();
    assert_eq!(
        orphans.wait().within(CEILING).await.unwrap().signal(),
        Some(Signal::KILL)
    );
}

type Ended = (u32, Result<forebay::ExitStatus, forebay::ExecError>);

async fn joined(running: &mut JoinSet<Ended>) -> bool {
    let (asked, status) = running.join_next().within(LONG).await.unwrap().unwrap();
    let code = status.unwrap().code();
    assert_eq!(code, i32::try_from(asked).ok(), "exit {asked}");
    true
}

// B22
#[tokio::test]
async fn no_zombie_is_left_by_any_end_and_pid_1_holds_what_it_held() {
    let vm = &*shared().await;
    fill_its_stores(vm).await;
    let held = Held::now(vm).await;
    for _ in 0..rounds(500) {
        let left = vm
            .shell("(sleep .05 &) ; true")
            .status()
            .within(CEILING)
            .await
            .unwrap();
        assert!(left.success());
    }
    assert_no_zombies(vm).await;
    for _ in 0..rounds(100) {
        let missing = vm.exec("nosuch", [""; 0]).within(CEILING).await;
        assert!(missing.is_err());
    }
    assert_no_zombies(vm).await;
    for _ in 0..rounds(100) {
        let mut killed = vm
            .shell("sleep 1000 & wait")
            .spawn()
            .within(CEILING)
            .await
            .unwrap();
        killed.kill();
        assert_eq!(
            killed.wait().within(CEILING).await.unwrap().signal(),
            Some(Signal::KILL)
        );
    }
    assert_no_zombies(vm).await;
    for _ in 0..rounds(100) {
        drop(
            vm.shell("sleep 1000 & wait")
                .spawn()
                .within(CEILING)
                .await
                .unwrap(),
        );
    }
    assert_slots_come_free(vm).await;
    assert_no_zombies(vm).await;
    assert_no_leaf_is_left(vm).await;
    held.assert_no_more(vm).await;
}

/// Runs more at once than the agent keeps anything in store for.
async fn fill_its_stores(vm: &TestVm) {
    let mut running = Vec::new();
    for _ in 0..32 {
        let waits = vm.exec("sleep", ["1000"]).spawn();
        running.push(waits.within(CEILING).await.unwrap());
    }
    drop(running);
    assert_slots_come_free(vm).await;
    assert_no_leaf_is_left(vm).await;
}

#[tokio::test]
async fn ten_thousand_starts_in_a_row_leave_pid_1_as_it_was() {
    let vm = &*shared().await;
    fill_its_stores(vm).await;
    let held = Held::now(vm).await;
    for n in 0..rounds(10_000) {
        // One in ten never runs.
        let program = if n % 10 == 9 { "nosuch" } else { "true" };
        let status = vm.exec(program, [""; 0]).status().within(CEILING).await;
        assert_eq!(status.is_ok_and(|status| status.success()), n % 10 != 9);
    }
    assert_no_zombies(vm).await;
    assert_no_leaf_is_left(vm).await;
    held.assert_no_more(vm).await;
    // Nor does the kernel hold what ended.
    let groups = "awk '$1 ~ /descendants/ { n += $2 } END { print n }' \
                  /sys/fs/cgroup/forebay/cgroup.stat";
    let groups = number(&vm.shell(groups).within(CEILING).await.unwrap());
    assert!(groups < 100, "{groups} control groups are left");
}

/// Waits for the number of zombies to be zero: an orphan may just have ended.
async fn assert_no_zombies(vm: &TestVm) {
    let gone = async {
        loop {
            let out = vm.exec(HELPER, ["zombies"]).await.unwrap();
            if number(&out) == 0 {
                break;
            }
        }
    };
    gone.within(CEILING).await;
}

/// Waits until the cgroups of ended executions are gone, which have their numbers; the one that looks
/// has its own.
async fn assert_no_leaf_is_left(vm: &TestVm) {
    let gone = async {
        loop {
            let out = vm
                .shell("find /sys/fs/cgroup/forebay -type d -name '[0-9]*' | wc -l")
                .await
                .unwrap();
            if number(&out) == 1 {
                break;
            }
        }
    };
    gone.within(CEILING).await;
}
