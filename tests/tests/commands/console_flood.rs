//! The guest floods its console and its kernel log: commands go on, nothing of either shows up in
//! what they print, and the host keeps what it said that it keeps.

use forebay::ConsoleLog;
use forebay_tests::{CEILING, TestVm, Within as _, builder, resident_beyond_guests, rounds, turn};

use super::{assert_answers, assert_slots_come_free};

const RUNS: u32 = 500;
/// What the process may grow by, in bytes: no part of it is the console's.
const GROWTH: u64 = 4 * 1024 * 1024;
/// The flood is no flood below this many bytes.
const FLOOD: u64 = 4 * ConsoleLog::DEFAULT_CAPACITY as u64;

// B45
#[tokio::test]
async fn a_flooded_console_costs_its_capacity_and_no_command_a_byte() {
    let _turn = turn().await;
    let vm = TestVm::start(builder().cpus(2)).await;
    for _ in 0..4 {
        assert_answers(&vm).await;
    }
    let before = resident_beyond_guests();
    let start = vm.console().written();
    let mut floods = Vec::new();
    for script in [
        "yes flood > /dev/hvc0",
        "while :; do echo '<0>flood of the kernel log' > /dev/kmsg; sleep .1; done",
    ] {
        let flood = vm.shell(script).spawn().within(CEILING).await;
        floods.push(flood.unwrap());
    }
    let mut most = 0;
    let mut number = 0;
    // Until there was a flood to stand, however slow this place is.
    while number < rounds(RUNS) || vm.console().written() - start < FLOOD {
        let out = vm.shell(format!("echo {number}; echo {number} >&2"));
        let out = out.within(CEILING).await.unwrap();
        let line = format!("{number}\n");
        assert_eq!(out.stdout_str().unwrap(), line);
        assert_eq!(out.stderr(), line.as_bytes());
        most = most.max(resident_beyond_guests());
        number += 1;
    }
    for flood in floods {
        flood.kill();
    }
    assert_slots_come_free(&vm).await;
    let (kept, written) = (vm.console().text(), vm.console().written());
    let (gap, lines) = kept.split_once('\n').unwrap();
    assert!(gap.ends_with("earlier bytes dropped]"), "{gap}");
    assert!(
        lines.len() <= ConsoleLog::DEFAULT_CAPACITY,
        "{} bytes",
        lines.len()
    );
    assert!(written > FLOOD);
    let grown = most.saturating_sub(before);
    assert!(grown < GROWTH, "{grown} bytes more, {written} were printed");
    // The kernel's log does go there.
    let last = vm.shell("echo '<0>the last of the kernel' > /dev/kmsg");
    assert!(last.within(CEILING).await.unwrap().status().success());
    assert!(vm.console().text().contains("the last of the kernel"));
    vm.close().await;
}
