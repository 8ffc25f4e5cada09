//! What is told of the resources that a command used.

use forebay::Usage;
use forebay_tests::{HELPER, TestVm, Within as _};

use super::{LONG, shared};

const MIB: u64 = 1 << 20;

async fn usage(vm: &TestVm, script: &str) -> Usage {
    let out = vm.shell(script).within(LONG).await.unwrap();
    assert!(out.status().success(), "{script}: {}", out.status());
    out.status().usage()
}

#[tokio::test]
async fn every_figure_is_known_of_a_command_that_does_nothing() {
    let vm = &*shared().await;
    let usage = usage(vm, "true").await;
    assert!(usage.user_time.is_some(), "{usage:?}");
    assert!(usage.system_time.is_some(), "{usage:?}");
    assert!(usage.peak_memory.is_some_and(|peak| peak > 0), "{usage:?}");
    assert!(usage.major_faults.is_some(), "{usage:?}");
    assert!(usage.involuntary_switches.is_some(), "{usage:?}");
    assert!(usage.read_bytes.is_some(), "{usage:?}");
    assert!(usage.written_bytes.is_some(), "{usage:?}");
}

#[tokio::test]
async fn cpu_time_is_that_of_all_its_processes_waited_for_or_not() {
    let vm = &*shared().await;
    // Twenty ticks of ten milliseconds, of a process that the shell does not wait for.
    let script = format!(
        "{HELPER} spin & \
         until [ $(cut -d' ' -f14 /proc/$!/stat) -ge 20 ]; do sleep .1; done; kill -9 $!"
    );
    let time = usage(vm, &script).await.user_time.unwrap();
    assert!(time.as_millis() >= 150, "{time:?}");
    // And nobody else's.
    let next = usage(vm, "true").await.user_time.unwrap();
    assert!(next < time, "{next:?}, after {time:?}");
}

#[tokio::test]
async fn peak_memory_is_the_most_that_was_held_at_a_time_by_this_command() {
    let vm = &*shared().await;
    let hog = format!(
        "{HELPER} hog 40 > /tmp/touched & \
         until [ -s /tmp/touched ]; do sleep .1; done; kill -9 $!; rm /tmp/touched"
    );
    let peak = usage(vm, &hog).await.peak_memory.unwrap();
    assert!((40 * MIB..100 * MIB).contains(&peak), "{peak}");
    let next = usage(vm, "true").await.peak_memory.unwrap();
    assert!(next < 40 * MIB, "{next}");
}

#[tokio::test]
async fn bytes_read_and_written_are_those_of_system_calls_with_children_that_were_waited_for() {
    let vm = &*shared().await;
    let quiet = usage(vm, "true").await;
    let copied = usage(
        vm,
        "dd if=/dev/zero of=/dev/null bs=1000 count=3000 2>/dev/null; :",
    )
    .await;
    let more = |quiet: Option<u64>, copied: Option<u64>| copied.unwrap() - quiet.unwrap();
    let read = more(quiet.read_bytes, copied.read_bytes);
    let written = more(quiet.written_bytes, copied.written_bytes);
    assert!((3_000_000..3_100_000).contains(&read), "{read}");
    assert!((3_000_000..3_100_000).contains(&written), "{written}");
}
