//! What a command leaves running: it holds up no result, loses no pipe, and dies with its
//! execution when that is killed.

use forebay::{ExecEvent, ExecHandle, Signal};
use forebay_tests::{CEILING, TestVm, Within as _};

use super::{LONG, answer, assert_slots_come_free, shared, to_its_exit};

/// Three loops in the command's group, one in a session of its own, and a leader that ignores
/// SIGTERM; all of them write to `file`.
fn loops(file: &str) -> String {
    format!(
        "rm -f {file}; for i in 1 2 3; do (while :; do echo $i >> {file}; sleep .1; done) & done; \
         setsid sh -c 'while :; do echo apart >> {file}; sleep .1; done' & \
         trap '' TERM; until grep -q apart {file} && grep -q 3 {file}; do sleep .1; done; \
         echo running; while :; do wait; done"
    )
}

async fn until_it_says_something(command: &mut ExecHandle) {
    while !matches!(
        command.recv().within(LONG).await,
        Some(ExecEvent::Stdout(_))
    ) {}
}

/// Fails if anything writes to `file` any more.
async fn nothing_writes(vm: &TestVm, file: &str) {
    let script = format!("a=$(wc -c < {file}); sleep 1; b=$(wc -c < {file}); echo $((b - a))");
    assert_eq!(answer(vm, &script).await, "0", "{file} grows");
}

// B19
#[tokio::test]
async fn a_kill_ends_every_loop_whatever_session_it_is_in() {
    let vm = &*shared().await;
    for round in 0..3 {
        for by_signal in [false, true] {
            let file = format!("/tmp/loops-{round}-{by_signal}");
            let mut command = vm
                .shell(loops(&file))
                .spawn()
                .within(CEILING)
                .await
                .unwrap();
            until_it_says_something(&mut command).await;
            if by_signal {
                let sent = command.signal(Signal::KILL).within(CEILING).await;
                sent.unwrap();
            } else {
                command.kill();
            }
            let status = command.wait().within(CEILING).await.unwrap();
            assert_eq!(status.signal(), Some(Signal::KILL));
            nothing_writes(vm, &file).await;
        }
    }
}

// B19: any other signal goes to the process group. Who ignores it goes on, and so does who has
// left the group.
#[tokio::test]
async fn a_signal_reaches_the_group_and_not_another_session() {
    let vm = &*shared().await;
    let file = "/tmp/loops-term";
    let mut command = vm.shell(loops(file)).spawn().within(CEILING).await.unwrap();
    until_it_says_something(&mut command).await;
    command.signal(Signal::TERM).within(CEILING).await.unwrap();
    let script = format!(
        "n=0; while [ $n -lt 50 ] && sleep .2; do n=$((n + 1)); : > {file}; sleep .5; \
         grep -q '[123]' {file} || break; done; sort -u {file}"
    );
    assert_eq!(answer(vm, &script).await, "apart");
    command.kill();
    let status = command.wait().within(CEILING).await.unwrap();
    assert_eq!(status.signal(), Some(Signal::KILL), "the leader ignores 15");
    nothing_writes(vm, file).await;
}

// B20 (a)
#[tokio::test]
async fn a_job_that_holds_the_pipes_does_not_hold_the_result() {
    let vm = &*shared().await;
    // Far beyond every ceiling.
    let out = vm
        .shell("sleep 100000 & echo $!; exit 3")
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(out.status().code(), Some(3));
    let job = out.stdout_str().unwrap().trim();
    answer(vm, &format!("kill -9 {job}")).await;
}

// B20 (b, c): what a job writes after the exit is nobody's, and the job lives on.
#[tokio::test]
async fn a_job_writes_on_after_the_exit_and_nobody_gets_it() {
    let vm = &*shared().await;
    for (name, to) in [("pipe", ""), ("null", ">/dev/null 2>&1")] {
        let script = format!(
            "rm -f /tmp/go-{name} /tmp/alive-{name}; \
             (while [ ! -e /tmp/go-{name} ]; do sleep .1; done; \
             head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; \
             echo alive > /tmp/alive-{name}) {to} & echo STARTED"
        );
        let out = vm.shell(script).within(CEILING).await.unwrap();
        assert_eq!(out.stdout(), b"STARTED\n", "{name}");
        assert_eq!(out.stderr(), b"", "{name}");
        let script = format!(
            "touch /tmp/go-{name}; while [ ! -e /tmp/alive-{name} ]; do sleep .1; done; \
             cat /tmp/alive-{name}"
        );
        assert_eq!(answer(vm, &script).await, "alive", "{name}");
    }
    assert_slots_come_free(vm).await;
}

// B20 (d)
#[tokio::test]
async fn all_that_the_leader_wrote_is_there_though_a_job_holds_the_pipe() {
    let vm = &*shared().await;
    let script = "sleep 100000 & echo $! >&2; head -c 200000 /dev/zero; printf END";
    let mut command = vm.shell(script).spawn().within(CEILING).await.unwrap();
    let (stdout, stderr, status) = to_its_exit(&mut command).await;
    assert!(status.success(), "{status}");
    assert_eq!(stdout.len(), 200_003);
    assert!(stdout.ends_with(b"\0END"));
    let job = String::from_utf8(stderr).unwrap();
    answer(vm, &format!("kill -9 {}", job.trim())).await;
}

// What outlives an execution's end is out of its reach: its group is another's by then.
#[tokio::test]
async fn a_kill_after_the_exit_reaches_no_job() {
    let vm = &*shared().await;
    let script = "sleep 100000 >/dev/null 2>&1 & echo $!";
    let mut command = vm.shell(script).spawn().within(CEILING).await.unwrap();
    let (stdout, _, status) = to_its_exit(&mut command).await;
    assert!(status.success(), "{status}");
    command.kill();
    let late = command.signal(Signal::TERM).within(CEILING).await;
    assert!(late.is_err());
    drop(command);
    let job = String::from_utf8(stdout).unwrap();
    let script = format!("sleep .5; kill -9 {} && echo lived", job.trim());
    assert_eq!(answer(vm, &script).await, "lived");
}

/// Pipes that the guest keeps for jobs, at most.
const LINGERING_MAX: usize = 128;

#[tokio::test]
async fn beyond_the_pipes_that_are_kept_the_oldest_is_closed() {
    const JOBS: usize = LINGERING_MAX + 4;
    let vm = &*shared().await;
    answer(vm, "rm -f /tmp/gate /tmp/wrote-*; mkfifo /tmp/gate").await;
    for n in 0..JOBS {
        // One pipe each, from the beginning: a job that gave up its stderr only after the shell's end
        // would have two. What cannot write dies of it before it leaves its mark.
        let script = format!(
            "exec 2>/dev/null; \
             (read x < /tmp/gate; echo late; echo alive > /tmp/wrote-{n}) & echo $!"
        );
        let out = vm.shell(script).within(CEILING).await.unwrap();
        assert!(out.status().success(), "{}", out.status());
    }
    // All wait at the gate, or are about to: there is a line for each, whenever it comes for it.
    let kept = JOBS - LINGERING_MAX..JOBS;
    let script = format!(
        "exec 3<> /tmp/gate; yes '' | head -n {JOBS} >&3; \
         until [ $(ls /tmp | grep -c wrote-) -ge {LINGERING_MAX} ]; do sleep .1; done; sleep .5; \
         ls /tmp | grep wrote- | sed s/wrote-// | sort -n | tr '\\n' ' '"
    );
    let expected: Vec<String> = kept.map(|n| n.to_string()).collect();
    assert_eq!(answer(vm, &script).await, expected.join(" "));
}
