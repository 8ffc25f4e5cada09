//! Output that nobody reads: bounded in the host, a blocked writer in the guest, no trouble for
//! others, and not a byte lost when the reader goes on.

use std::time::Duration;

use forebay::ExecEvent;
use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, HELPER, Within as _, resident_beyond_guests, scaled};

use super::{LONG, assert_answers, assert_slots_come_free, blocked_in_write, shared};

const MIB: u64 = 1024 * 1024;
/// Stalled at once.
const WRITERS: u64 = 8;
/// Beside the allowances: the allocator, and what the test itself needs.
const NOISE: u64 = 3 * MIB;
/// More than any test reads.
const WITHOUT_END: &str = "1125899906842624";

// B03
#[tokio::test]
async fn endless_writers_that_nobody_reads_are_blocked_and_cost_no_more_than_their_allowance() {
    let vm = &*shared().await;
    // The first executions fill the allocator's pools.
    for _ in 0..4 {
        assert_answers(vm).await;
    }
    let before = resident_beyond_guests();
    let mut writers = Vec::new();
    for seed in 0..WRITERS {
        let exec = vm.exec(HELPER, ["random", &seed.to_string(), WITHOUT_END]);
        writers.push(exec.spawn().within(CEILING).await.unwrap());
    }
    for writer in &writers {
        blocked_in_write(vm, writer.pid()).await;
    }
    let full = resident_beyond_guests();
    for _ in 0..10 {
        assert_answers(vm).await;
        tokio::time::sleep(scaled(Duration::from_millis(10))).await;
    }
    let later = resident_beyond_guests();
    let allowance = u64::from(vm.client().limits().output_limit);
    let (grown, crept) = (full.saturating_sub(before), later.saturating_sub(full));
    assert!(
        grown <= WRITERS * allowance + NOISE,
        "{grown} bytes for {WRITERS} stalled readers"
    );
    assert!(crept <= NOISE, "{crept} bytes more while they stood still");

    for (seed, mut writer) in (0..WRITERS).zip(writers) {
        let mut pattern = Pattern::new(seed);
        let mut seen = 0;
        while seen < 3 * MIB {
            match writer.recv().within(CEILING).await.unwrap() {
                ExecEvent::Stdout(chunk) => {
                    assert_eq!(
                        pattern.first_difference(&chunk),
                        None,
                        "writer {seed}, after {seen}"
                    );
                    seen += chunk.len() as u64;
                }
                ExecEvent::Started { .. } => {}
                other => panic!("writer {seed}: {other:?}"),
            }
        }
        writer.kill();
    }
    assert_slots_come_free(vm).await;
}

#[tokio::test]
async fn a_dropped_reader_lets_the_command_run_to_its_end() {
    let vm = &*shared().await;
    let command = vm
        .exec(HELPER, ["random", "1", "20000000"])
        .spawn()
        .within(CEILING)
        .await
        .unwrap();
    let parts = command.split();
    drop((parts.stdout, parts.stderr));
    let mut exit = parts.exit;
    assert_eq!(exit.wait().within(LONG).await.unwrap().code(), Some(0));
}
