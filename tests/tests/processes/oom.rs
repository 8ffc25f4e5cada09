//! B23: a command that the kernel killed for want of memory is told apart from all others that were
//! killed. In a guest of 128 MiB, without limits.

use std::time::Duration;

use forebay::{ExecError, ExitStatus, Signal};
use forebay_tests::{CEILING, HELPER, SharedVm, TestVm, Within as _, builder, rounds};
use tokio::sync::OnceCell;
use tokio::task::{JoinError, JoinSet};

use super::{LONG, answer, assert_answers};

async fn small() -> SharedVm {
    static SMALL: OnceCell<TestVm> = OnceCell::const_new();
    SharedVm::take(&SMALL, || builder().cpus(2).memory_mib(128)).await
}

/// Fails unless the kernel lives and has never chosen PID 1.
async fn assert_sound(vm: &TestVm) {
    assert_answers(vm).await;
    let console = vm.console().last_lines(1000);
    assert!(!console.contains("panic"), "{console}");
    assert_eq!(answer(vm, "cat /proc/1/comm").await, "init");
}

async fn status(vm: &TestVm, script: &str) -> ExitStatus {
    vm.shell(script).status().within(LONG).await.unwrap()
}

#[tokio::test]
async fn a_command_that_takes_all_memory_is_told_as_such_and_the_next_one_is_not() {
    let vm = &*small().await;
    for _ in 0..2 {
        let hog = vm.exec(HELPER, ["hog", "1024"]).status();
        let hog = hog.within(LONG).await.unwrap();
        assert_eq!(hog.signal(), Some(Signal::KILL));
        assert_eq!(hog.oom_killed(), Some(true));
        let next = status(vm, "true").await;
        assert!(next.success());
        assert_eq!(next.oom_killed(), Some(false));
    }
    assert_sound(vm).await;
}

#[tokio::test]
async fn other_kills_and_codes_that_look_like_one_are_not_told_as_such() {
    let vm = &*small().await;
    let suicide = status(vm, "kill -9 $$").await;
    assert_eq!(suicide.signal(), Some(Signal::KILL));
    assert_eq!(suicide.oom_killed(), Some(false));

    let looks_like_it = status(vm, "exit 137").await;
    assert_eq!(looks_like_it.code(), Some(137));
    assert_eq!(looks_like_it.oom_killed(), Some(false));

    let mut ours = vm
        .shell("sleep 1000")
        .spawn()
        .within(CEILING)
        .await
        .unwrap();
    ours.kill();
    let ours = ours.wait().within(CEILING).await.unwrap();
    assert_eq!(ours.signal(), Some(Signal::KILL));
    assert_eq!(ours.oom_killed(), Some(false));

    let late = vm.shell("sleep 1000").timeout(Duration::from_millis(200));
    match late.output().within(LONG).await {
        Err(ExecError::TimedOut { output, .. }) => {
            assert!(output.status().timed_out());
            assert_eq!(output.status().oom_killed(), Some(false));
        }
        other => panic!("{other:?}"),
    }
    assert_sound(vm).await;
}

#[tokio::test]
async fn a_shell_whose_child_was_killed_for_want_of_memory_lives_and_the_kill_is_told() {
    let vm = &*small().await;
    let shell = status(vm, &format!("{HELPER} hog 1024; [ $? = 137 ] && exit 1")).await;
    assert_eq!(shell.code(), Some(1));
    assert_eq!(shell.oom_killed(), Some(true));
    assert_sound(vm).await;
}

#[tokio::test]
async fn eight_hogs_at_once_end_as_told_while_other_commands_go_on() {
    let vm = &*small().await;
    let mut hogs = JoinSet::new();
    let begin = |hogs: &mut JoinSet<_>| {
        let hog = vm.exec(HELPER, ["hog", "1024"]);
        hogs.spawn(async move { hog.status().await });
    };
    let ended_as_told = |ended: Result<Result<ExitStatus, ExecError>, JoinError>| {
        let ended = ended.unwrap().unwrap();
        assert_eq!(ended.signal(), Some(Signal::KILL));
        assert_eq!(ended.oom_killed(), Some(true));
    };
    for _ in 0..8 {
        begin(&mut hogs);
    }
    // The place of each that ends is taken while others are answered.
    for _ in 0..rounds(50) {
        assert_answers(vm).await;
        while let Some(ended) = hogs.try_join_next() {
            ended_as_told(ended);
            begin(&mut hogs);
        }
    }
    while let Some(ended) = hogs.join_next().within(LONG).await {
        ended_as_told(ended);
    }
    assert_sound(vm).await;
}

// A file that stays in memory after the command is charged to it, and must not be held against the
// next.
#[tokio::test]
async fn files_left_in_memory_are_nobody_elses() {
    let vm = &*small().await;
    for n in 0..rounds(40) {
        let left = format!("head -c 2000000 /dev/zero > /tmp/left-{}", n % 10);
        let left = status(vm, &left).await;
        assert!(left.success());
        assert_eq!(left.oom_killed(), Some(false));
        let peak = left.usage().peak_memory.unwrap();
        assert!(peak >= 2_000_000, "{peak}");
        let next = status(vm, "true").await.usage().peak_memory.unwrap();
        assert!(next < 2_000_000, "{next}");
    }
    answer(vm, "rm /tmp/left-*").await;
    assert_sound(vm).await;
}
