//! Limits of one execution's control group: each is set, holds, and stops nothing else.

use forebay::{ExecHandle, Signal};
use forebay_tests::{CEILING, HELPER, TestVm, Within as _, builder};

use super::{LONG, answer, assert_answers, shared, to_its_exit};

const MIB: u64 = 1 << 20;

/// Prints the limits of the group that it runs in.
const SHOW: &str = "cd /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); \
                    for f in memory.max memory.swap.max pids.max cpu.weight cpu.max; do \
                    [ ! -e $f ] || echo $f $(cat $f); done";

#[tokio::test]
async fn each_limit_is_set_before_the_command_runs() {
    let vm = &*shared().await;
    let limited = vm
        .shell(SHOW)
        .memory_limit(64 * MIB)
        .process_limit(20)
        .cpu_weight(50)
        .cpu_limit(1.5);
    let out = limited.within(CEILING).await.unwrap();
    let shown = out.stdout_str().unwrap();
    for limit in [
        "memory.max 67108864\n",
        "pids.max 20\n",
        "cpu.weight 50\n",
        "cpu.max 150000 100000\n",
    ] {
        assert!(shown.contains(limit), "{limit:?} is not in {shown:?}");
    }
    if shown.contains("memory.swap.max") {
        assert!(shown.contains("memory.swap.max 0\n"), "{shown:?}");
    }
    // One limit does not bring the others along.
    let out = vm
        .shell(SHOW)
        .process_limit(7)
        .within(CEILING)
        .await
        .unwrap();
    let shown = out.stdout_str().unwrap();
    assert!(shown.contains("memory.max max\n"), "{shown:?}");
    assert!(shown.contains("pids.max 7\n"), "{shown:?}");
    assert!(shown.contains("cpu.max max 100000\n"), "{shown:?}");
}

#[tokio::test]
async fn what_the_vm_sets_holds_where_a_request_does_not_say() {
    let vm = TestVm::start(
        builder()
            .exec_memory_limit(48 * MIB)
            .exec_process_limit(30)
            .exec_cpu_weight(200)
            .exec_cpu_limit(0.5),
    )
    .await;
    let shown = answer(&vm, SHOW).await;
    for limit in [
        "memory.max 50331648",
        "pids.max 30",
        "cpu.weight 200",
        "cpu.max 50000 100000",
    ] {
        assert!(shown.lines().any(|line| line == limit), "{shown}");
    }
    let out = vm
        .shell(SHOW)
        .memory_limit(32 * MIB)
        .cpu_weight(10)
        .within(CEILING)
        .await
        .unwrap();
    let shown = out.stdout_str().unwrap();
    for limit in [
        "memory.max 33554432",
        "pids.max 30",
        "cpu.weight 10",
        "cpu.max 50000 100000",
    ] {
        assert!(shown.lines().any(|line| line == limit), "{shown}");
    }
}

#[tokio::test]
async fn a_memory_limit_ends_what_exceeds_it_and_is_told() {
    let vm = &*shared().await;
    let limit = 32 * MIB;
    let hog = vm.exec(HELPER, ["hog", "64"]).memory_limit(limit);
    let status = hog.status().within(LONG).await.unwrap();
    assert_eq!(status.signal(), Some(Signal::KILL));
    assert_eq!(status.oom_killed(), Some(true));
    let peak = status.usage().peak_memory.unwrap();
    assert!((limit / 2..limit + MIB).contains(&peak), "{peak}");
    // What fits runs.
    let fits = vm
        .shell("head -c 8000000 /dev/zero | tail -c 8000000 | wc -c")
        .memory_limit(limit);
    let out = fits.within(LONG).await.unwrap();
    assert_eq!(out.stdout(), b"8000000\n");
    assert_eq!(out.status().oom_killed(), Some(false));
}

#[tokio::test]
async fn a_process_limit_stops_forks_and_nothing_else() {
    let vm = &*shared().await;
    let full = "i=0; while [ $i -lt 20 ]; do sleep 1000 & i=$((i+1)); done";
    let full = vm.shell(full).process_limit(10);
    let out = full.within(LONG).await.unwrap();
    assert!(!out.status().success(), "{}", out.status());
    assert!(
        out.stderr_str().unwrap().contains("fork"),
        "{:?}",
        out.stderr_str()
    );
    assert_answers(vm).await;
    answer(vm, "pkill -9 sleep; :").await;
}

#[tokio::test]
async fn a_cpu_limit_holds_a_busy_command_back() {
    let vm = &*shared().await;
    let script = format!(
        "{HELPER} spin & cd /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); \
         until grep -q '^nr_throttled [1-9]' cpu.stat; do sleep .1; done; kill -9 $!; echo held"
    );
    let out = vm.shell(script).cpu_limit(0.2).within(LONG).await.unwrap();
    assert_eq!(out.stdout(), b"held\n");
}

/// Waits for the first line of a command that has one to say.
async fn says(command: &mut ExecHandle, line: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(line) {
        match command.recv().within(LONG).await {
            Some(forebay::ExecEvent::Stdout(chunk)) => seen.extend_from_slice(&chunk),
            Some(forebay::ExecEvent::Started { .. } | forebay::ExecEvent::Stderr(_)) => {}
            other => panic!("{line:?} did not come but {other:?}"),
        }
    }
}

/// Ends a command that has nothing more to say, and what it started.
async fn killed(mut command: ExecHandle) {
    command.kill();
    let (_, _, status) = to_its_exit(&mut command).await;
    assert_eq!(status.signal(), Some(Signal::KILL));
}

#[tokio::test]
async fn a_fork_bomb_within_a_limit_is_hardly_noticed_and_can_be_killed() {
    let vm = &*shared().await;
    let bomb = vm.exec(HELPER, ["fork-bomb"]).process_limit(24);
    let mut bomb = bomb.spawn().within(CEILING).await.unwrap();
    says(&mut bomb, "forking").await;
    for _ in 0..3 {
        assert_answers(vm).await;
    }
    killed(bomb).await;
    answer(vm, "while pidof forebay-guest-helper; do sleep .1; done").await;
}

#[tokio::test]
async fn the_agent_kills_what_took_all_processes_and_all_memory_and_starts_anew() {
    let vm = TestVm::start(builder().cpus(2).memory_mib(128)).await;
    // All memory, over and over.
    let hogs = format!("while :; do {HELPER} hog 1024; echo killed; done");
    let mut hogs = vm.shell(&hogs).spawn().within(CEILING).await.unwrap();
    says(&mut hogs, "killed").await;
    killed(hogs).await;
    assert_answers(&vm).await;
    // Processes without end, whose leader is the last that the kernel would choose, and beside them
    // one that wants all memory.
    let bomb = format!(
        "echo -900 > /proc/$$/oom_score_adj; \
         sh -c 'echo 500 > /proc/$$/oom_score_adj; exec {HELPER} fork-bomb' & wait"
    );
    let mut bomb = vm.shell(&bomb).spawn().within(CEILING).await.unwrap();
    says(&mut bomb, "forking").await;
    let hog = vm.exec(HELPER, ["hog", "1024"]).spawn().within(LONG).await;
    killed(bomb).await;
    // It may not even have been started.
    if let Ok(hog) = hog {
        killed(hog).await;
    }
    assert_answers(&vm).await;
    let console = vm.console().last_lines(1000);
    assert!(!console.contains("panic"), "{console}");
}

// A VM of its own: what is mounted there stays, and so do the jobs that see to it.
#[tokio::test]
async fn what_a_command_mounts_over_groups_holds_up_nobody() {
    let vm = &TestVm::boot().await;
    // More groups than one are ready for the next command.
    let mut at_once = Vec::new();
    for _ in 0..3 {
        let exec = vm.shell("sleep 1");
        at_once.push(exec.spawn().within(CEILING).await.unwrap());
    }
    for command in &mut at_once {
        to_its_exit(command).await;
    }
    let group = "g=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); ";
    let hang = |over: &str| {
        format!(
            "{group} for over in {over}; do sleep 100000 | {HELPER} hang $over & \
             until grep -q \"^hang $over \" /proc/mounts; do sleep .1; done; done"
        )
    };
    // Whoever opens this pipe by its name waits for ever.
    let pipe = format!(
        "{group} mkfifo /tmp/pipe; mount -o bind /tmp/pipe $g/cgroup.events; sleep 100000 &"
    );
    let accounts = hang("/sys/fs/cgroup/forebay/account-*");
    for script in [pipe, hang("$g"), accounts] {
        // The job that it leaves keeps its group, which is looked at again with each end.
        answer(vm, &script).await;
        for _ in 0..5 {
            assert_answers(vm).await;
        }
    }
}
