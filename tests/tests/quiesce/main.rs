//! A guest that stands still for a snapshot, and goes on as itself or as another.

use std::time::{Duration, SystemTime};

use forebay::{
    Exec, ExecError, ExecEvent, ExecHandle, QuiesceError, Quiesced, Renewal, Secret, Signal, Stdin,
};
use forebay_tests::{
    CEILING, COUNT, Counters, SharedVm, TestVm, Within as _, assert_answers, assert_counts,
    assert_slots_come_free, builder, rounds, scaled,
};
use tokio::sync::OnceCell;

/// For commands in great number, or much data, on hardware.
const LONG: Duration = Duration::from_secs(60);

async fn shared() -> SharedVm {
    static SHARED: OnceCell<TestVm> = OnceCell::const_new();
    SharedVm::take(&SHARED, || builder().cpus(1).memory_mib(256)).await
}

async fn quiesce(vm: &TestVm) -> Quiesced<'_> {
    let limit = scaled(CEILING);
    let quiesced = vm.quiesce(limit).within(CEILING + Duration::from_secs(5));
    quiesced.await.unwrap()
}

fn renewal(n: u8) -> Renewal {
    Renewal {
        entropy: Secret([n; 32]),
        generation: [n; 16],
        hostname: None,
    }
}

async fn spawn(exec: Exec) -> ExecHandle {
    exec.spawn().within(CEILING).await.unwrap()
}

async fn answer(exec: Exec) -> String {
    let out = exec.within(CEILING).await.unwrap();
    assert!(out.status().success(), "{out:?}");
    out.stdout_str().unwrap().trim().to_owned()
}

/// The next of what it writes.
async fn chunk(command: &mut ExecHandle) -> Vec<u8> {
    loop {
        match command.recv().within(CEILING).await {
            Some(ExecEvent::Stdout(data)) => return data.to_vec(),
            Some(ExecEvent::Started { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Takes what a frozen command had written, until nothing comes for a while.
async fn drain(command: &mut ExecHandle, output: &mut Vec<u8>) {
    let pause = scaled(Duration::from_millis(50));
    while let Ok(event) = tokio::time::timeout(pause, command.recv()).await {
        match event {
            Some(ExecEvent::Stdout(data)) => output.extend_from_slice(&data),
            Some(ExecEvent::Started { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_quiesced_command_does_nothing_and_goes_on_where_it_was() {
    let vm = shared().await;
    let mut counter = spawn(vm.shell(COUNT)).await;
    let mut output = chunk(&mut counter).await;
    let quiesced = quiesce(&vm).await;
    drain(&mut counter, &mut output).await;
    // What the pipes held has come, and nothing follows it.
    let stood = output.len();
    drain(&mut counter, &mut output).await;
    assert_eq!(output.len(), stood);
    quiesced.thaw().within(CEILING).await;
    output.extend(chunk(&mut counter).await);
    output.extend(chunk(&mut counter).await);
    assert_counts(&output);
    drop(counter);
    assert_slots_come_free(&vm).await;
}

#[tokio::test]
async fn what_stands_still_can_be_killed_and_timed_out() {
    let vm = shared().await;
    let busy = "echo up; while :; do :; done";
    let mut killed = spawn(vm.shell(busy)).await;
    let mut timed = spawn(vm.shell(busy).timeout(scaled(Duration::from_secs(3)))).await;
    chunk(&mut killed).await;
    chunk(&mut timed).await;
    let quiesced = quiesce(&vm).await;
    killed.kill();
    let status = killed.wait().within(CEILING).await.unwrap();
    assert_eq!(status.signal(), Some(Signal::KILL));
    let timed = timed.wait().within(CEILING).await;
    assert!(
        matches!(timed, Err(ExecError::TimedOut { .. })),
        "{timed:?}"
    );
    quiesced.thaw().within(CEILING).await;
    assert_answers(&vm).await;
    assert_slots_come_free(&vm).await;
}

#[tokio::test]
async fn what_is_started_or_fed_while_the_guest_stands_still_goes_on_at_the_thaw() {
    let vm = shared().await;
    let mut cat = spawn(vm.exec("cat", ["-"]).stdin(Stdin::piped())).await;
    let quiesced = quiesce(&vm).await;
    let again = vm.quiesce(CEILING).within(CEILING).await;
    assert!(matches!(again, Err(QuiesceError::Busy)), "{again:?}");
    let sink = cat.take_stdin().unwrap();
    sink.write("fed").within(CEILING).await.unwrap();
    sink.close().within(CEILING).await.unwrap();
    let late = vm.exec("echo", ["late"]).output();
    let late = tokio::spawn(late);
    while vm.client().active() < 2 {
        tokio::task::yield_now().await;
    }
    quiesced.thaw().within(CEILING).await;
    let late = late.within(CEILING).await.unwrap().unwrap();
    assert_eq!(late.stdout(), b"late\n");
    let fed = cat.collect().within(CEILING).await.unwrap();
    assert_eq!(fed.stdout(), b"fed");
    assert_slots_come_free(&vm).await;
}

#[tokio::test]
async fn rounds_of_standing_still_lose_nothing_of_what_eight_commands_write() {
    let vm = shared().await;
    let counters = Counters::start(&vm, 8).await;
    for _ in 0..rounds(50) {
        quiesce(&vm).await.thaw().within(CEILING).await;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    counters.stop().await;
    assert_slots_come_free(&vm).await;
}

#[tokio::test]
async fn a_renewed_guest_has_the_time_the_generation_and_the_name_that_it_was_given() {
    let vm = shared().await;
    let limit = scaled(CEILING);
    answer(vm.shell("date -s '2001-02-03 04:05:06'")).await;
    // A command that watches for the sign that it runs in another guest.
    let watch = "old=$(cat /run/generation 2>/dev/null); echo up; \
                 while [ \"$(cat /run/generation 2>/dev/null)\" = \"$old\" ]; do :; done; \
                 cat /run/generation; date +%s";
    let mut watcher = spawn(vm.shell(watch)).await;
    chunk(&mut watcher).await;
    let _quiesced = quiesce(&vm).await;
    let copy = Renewal {
        hostname: Some("copy".to_owned()),
        ..renewal(0x5a)
    };
    vm.renew(copy, limit).within(CEILING * 2).await.unwrap();
    let seen = watcher.collect().within(CEILING).await.unwrap();
    let seen = seen.stdout_str().unwrap().to_owned();
    let (generation, date) = seen.trim().split_once('\n').unwrap();
    assert_eq!(generation, "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a");
    let host = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let guest: u64 = date.parse().unwrap();
    // It was set between then and now.
    assert!(
        guest <= host + 1 && guest + scaled(LONG).as_secs() > host,
        "{date}"
    );
    assert_eq!(answer(vm.exec("hostname", [""; 0])).await, "copy");
    // One that was not quiesced is renewed as well.
    vm.renew(renewal(0x5a), limit)
        .within(CEILING * 2)
        .await
        .unwrap();
    assert_answers(&vm).await;
}

#[tokio::test]
async fn a_vm_that_stands_still_is_stopped_like_any_other() {
    let vm = TestVm::boot().await;
    let mut stubborn = spawn(vm.shell("trap '' TERM; echo up; while :; do :; done")).await;
    chunk(&mut stubborn).await;
    let _quiesced = quiesce(&vm).await;
    // Of this hour nothing is waited for: what is frozen could not end in order.
    let reason = vm.stop(Duration::from_secs(3600)).within(CEILING * 2).await;
    assert!(
        matches!(reason, forebay::StopReason::Requested),
        "{reason:?}"
    );
}
