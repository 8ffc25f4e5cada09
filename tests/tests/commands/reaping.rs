//! PID 1 collects what others leave behind, and never takes an exit that belongs to an execution.

use forebay::Signal;
use forebay_tests::{CEILING, HELPER, TestVm, Within as _, rounds};
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
    let held = pid_1(vm).await;
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
    let (descriptors, threads) = pid_1(vm).await;
    assert!(
        descriptors.abs_diff(held.0) <= 2,
        "PID 1 held {} descriptors, now {descriptors}",
        held.0
    );
    assert_eq!(threads, held.1);
}

/// Open descriptors and threads of PID 1.
async fn pid_1(vm: &TestVm) -> (u64, u64) {
    let count = |what| {
        vm.shell(format!("ls /proc/1/{what} | wc -l"))
            .within(CEILING)
    };
    (
        number(&count("fd").await.unwrap()),
        number(&count("task").await.unwrap()),
    )
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

/// Waits until the cgroups of ended executions are gone; the one that looks has its own.
async fn assert_no_leaf_is_left(vm: &TestVm) {
    let gone = async {
        loop {
            let out = vm
                .shell("ls -d /sys/fs/cgroup/forebay/*/ | wc -l")
                .await
                .unwrap();
            if number(&out) == 1 {
                break;
            }
        }
    };
    gone.within(CEILING).await;
}
