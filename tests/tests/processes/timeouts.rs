//! Deadlines: what a command wrote before comes with the timeout, everything that it started ends,
//! and nobody has to wait for it, or to poll anything.

use std::time::Duration;

use forebay::{ExecError, ExecOutput, Signal};
use forebay_tests::{CEILING, Seed, TestVm, Within as _, rounds, scaled};
use tokio::task::JoinSet;

use super::{LONG, answer, assert_slots_come_free, shared, to_its_exit};

/// For what has to get somewhere first, on hardware.
const ENOUGH: Duration = Duration::from_millis(500);
/// For what has nothing to do before, anywhere.
const SHORT: Duration = Duration::from_millis(300);

/// The output that comes with a timeout.
fn timed_out(result: Result<impl std::fmt::Debug, ExecError>, expected: Duration) -> ExecOutput {
    match result {
        Err(ExecError::TimedOut { limit, output }) => {
            assert_eq!(limit, expected);
            assert!(output.status().timed_out());
            assert_eq!(output.status().signal(), Some(Signal::KILL));
            assert_eq!(output.status().code(), None);
            *output
        }
        other => panic!("{other:?}"),
    }
}

/// Waits until processes are gone from the guest.
async fn gone(vm: &TestVm, pids: &[u32]) {
    let there = pids.iter().map(|pid| format!("[ -d /proc/{pid} ]"));
    let any = there.collect::<Vec<_>>().join(" || ");
    answer(vm, &format!("while {any}; do sleep .05; done")).await;
}

// B07
#[tokio::test]
async fn what_was_written_before_the_deadline_comes_with_the_timeout() {
    let vm = &*shared().await;
    let limit = scaled(ENOUGH);
    let script = "echo CRITICAL; echo warn >&2; sleep 1000";
    let collect = vm.shell(script).timeout(limit).output();
    let stream = async {
        let mut command = vm.shell(script).timeout(limit).spawn().await.unwrap();
        let (stdout, stderr, status) = to_its_exit(&mut command).await;
        assert_eq!(
            (&stdout[..], &stderr[..]),
            (&b"CRITICAL\n"[..], &b"warn\n"[..])
        );
        assert!(status.timed_out());
        assert_eq!((status.code(), status.signal()), (None, Some(Signal::KILL)));
        // Asked once more, and differently: the same end, and nothing is left to give.
        let again = timed_out(command.wait().await, limit);
        assert_eq!(*again.status(), status);
        assert_eq!(again.stdout(), b"");
    };
    let (collected, ()) = async { tokio::join!(collect, stream) }.within(LONG).await;
    let output = timed_out(collected, limit);
    assert_eq!(output.stdout(), b"CRITICAL\n");
    assert_eq!(output.stderr(), b"warn\n");
}

// B07
#[tokio::test]
async fn an_end_at_about_the_deadline_is_an_exit_or_a_timeout_and_never_both() {
    const AT_ONCE: usize = 10;
    let vm = &*shared().await;
    let limit = Duration::from_secs(1);
    let mut seed = Seed::announced("when commands end");
    let (mut running, mut exits, mut timeouts) = (JoinSet::new(), 0, 0);
    let mut begun = 0;
    while begun < rounds(200) || !running.is_empty() {
        if begun < rounds(200) && running.len() < AT_ONCE {
            begun += 1;
            // A start takes longer here than there.
            let script = format!("sleep 0.{:03}; echo done", 600 + seed.below(400));
            running.spawn(vm.shell(script).timeout(limit).output());
            continue;
        }
        match running.join_next().within(LONG).await.unwrap().unwrap() {
            Ok(output) => {
                assert_eq!(output.status().code(), Some(0));
                assert!(!output.status().timed_out());
                assert_eq!(output.stdout(), b"done\n");
                exits += 1;
            }
            late => {
                // It may have written, and been killed before it could exit.
                let output = timed_out(late, limit);
                assert!([&b""[..], b"done\n"].contains(&output.stdout()));
                timeouts += 1;
            }
        }
    }
    println!("{exits} exits and {timeouts} timeouts");
    assert_eq!(exits + timeouts, rounds(200));
    assert_slots_come_free(vm).await;
}

// B19
#[tokio::test]
async fn a_deadline_ends_everything_that_the_command_started() {
    let vm = &*shared().await;
    let limit = scaled(ENOUGH);
    // Three loops, one of which has left the session, and a leader that ignores what it can.
    let script = |file: &str| {
        format!(
            "rm -f {file}; beat='while :; do echo x >> {file}; sleep .1; done'; \
             sh -c \"$beat\" & sh -c \"$beat\" & setsid sh -c \"$beat\" & \
             trap '' TERM; while :; do wait; done"
        )
    };
    let files = ["/tmp/beat-1", "/tmp/beat-2", "/tmp/beat-3"];
    let mut running = JoinSet::new();
    for file in files {
        running.spawn(vm.shell(script(file)).timeout(limit).status());
    }
    while let Some(ended) = running.join_next().within(LONG).await {
        timed_out(ended.unwrap(), limit);
    }
    let sizes = format!("wc -c {}", files.join(" "));
    let before = answer(vm, &sizes).await;
    for line in before.lines() {
        assert!(
            !line.trim_start().starts_with("0 "),
            "no loop ran: {before}"
        );
    }
    assert_eq!(answer(vm, &format!("sleep 1; {sizes}")).await, before);
    let left = "grep -l '[b]eat-' /proc/[0-9]*/cmdline | wc -l";
    assert_eq!(answer(vm, left).await, "0");
}

#[tokio::test]
async fn a_deadline_needs_nobody_who_waits() {
    let vm = &*shared().await;
    let limit = scaled(ENOUGH);
    let sleeper = || {
        vm.exec("sleep", ["1000"])
            .timeout(limit)
            .spawn()
            .within(CEILING)
    };
    let mut waited = sleeper().await.unwrap();
    // A wait that is cancelled before the time is over; after that nobody polls for any of them.
    let cancelled = tokio::time::timeout(Duration::ZERO, waited.wait()).await;
    assert!(cancelled.is_err(), "{cancelled:?}");
    let (controlled, detached) = (sleeper().await.unwrap(), sleeper().await.unwrap());
    let pids = [waited.pid(), controlled.pid(), detached.pid()];
    let control = controlled.control();
    drop(controlled);
    detached.detach();
    gone(vm, &pids).await;
    timed_out(waited.wait().within(CEILING).await, limit);
    drop((control, waited));
    assert_slots_come_free(vm).await;
}

#[tokio::test]
async fn a_deadline_passes_while_the_only_thread_of_the_runtime_is_blocked() {
    let vm = &*shared().await;
    // Not over before the thread is blocked.
    let limit = scaled(ENOUGH);
    let late = vm.exec("sleep", ["1000"]).timeout(limit);
    let mut late = late.spawn().within(CEILING).await.unwrap();
    // The guest itself notes in which order things happened.
    let note = format!(
        "rm -f /tmp/order; echo ready; while [ -d /proc/{} ]; do sleep .05; done; \
         echo killed >> /tmp/order",
        late.pid()
    );
    let mut watcher = vm.shell(note).spawn().within(CEILING).await.unwrap();
    while !matches!(
        watcher.recv().within(CEILING).await,
        Some(forebay::ExecEvent::Stdout(_))
    ) {}
    std::thread::sleep(2 * limit);
    answer(vm, "echo asked >> /tmp/order").await;
    assert!(watcher.wait().within(CEILING).await.unwrap().success());
    assert_eq!(answer(vm, "cat /tmp/order").await, "killed\nasked");
    timed_out(late.wait().within(CEILING).await, limit);
}

#[tokio::test]
async fn a_command_that_ends_in_time_is_none_the_worse_for_its_deadline() {
    let vm = &*shared().await;
    let out = vm.shell("echo in time; exit 3").timeout(LONG * 20);
    let out = out.within(CEILING).await.unwrap();
    assert_eq!(
        (out.stdout(), out.status().code()),
        (&b"in time\n"[..], Some(3))
    );
    assert!(!out.status().timed_out());
    // Killed by somebody else: that is no timeout.
    let killed = vm.shell("kill -9 $$").timeout(LONG * 20);
    let status = killed.status().within(CEILING).await.unwrap();
    assert_eq!(status.signal(), Some(Signal::KILL));
    assert!(!status.timed_out());
}

// B22
#[tokio::test]
async fn timeouts_in_great_number_leave_nothing_behind() {
    const AT_ONCE: usize = 10;
    const GROUPS: &str = "ls -d /sys/fs/cgroup/forebay/*/ | wc -l";
    let vm = &*shared().await;
    // Jobs that other commands left keep theirs.
    let before = answer(vm, GROUPS).await;
    let (mut running, mut begun) = (JoinSet::new(), 0);
    while begun < rounds(100) || !running.is_empty() {
        if begun < rounds(100) && running.len() < AT_ONCE {
            begun += 1;
            running.spawn(vm.shell("sleep 1000 & wait").timeout(SHORT).status());
            continue;
        }
        timed_out(
            running.join_next().within(LONG).await.unwrap().unwrap(),
            SHORT,
        );
    }
    assert_slots_come_free(vm).await;
    // An orphan that was killed with the others may not have been collected yet, nor its group.
    let still = format!(
        "while [ $({GROUPS}) -gt {before} ]; do sleep .05; done; \
         while grep -q '^State:.Z' /proc/[0-9]*/status; do sleep .05; done"
    );
    answer(vm, &still).await;
}
