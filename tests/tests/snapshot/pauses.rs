//! A machine can be paused at any moment of its life, and does not notice.

use std::time::{Duration, Instant};

use forebay_tests::{
    CEILING, Counters, Seed, TestVm, Within as _, assert_slots_come_free, builder, rounds, scaled,
    turn,
};
use rustix::time::{ClockId, clock_gettime};

use crate::counting::Counting;

/// B37: what a pause may take.
const PROMPT: Duration = Duration::from_secs(1);
/// How often each kind of guest is paused, on hardware.
const PAUSES: u32 = 300;

/// Pauses what `pause` gives, and fails if that takes long.
fn promptly<P>(round: u32, pause: impl FnOnce() -> P) -> P {
    let before = Instant::now();
    let paused = pause();
    let took = before.elapsed();
    assert!(took < scaled(PROMPT), "round {round} took {took:?}");
    paused
}

/// What this process has had of the processors.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.try_into().expect("it is positive")
}

/// Waits for a time in which this process, whose guests have nothing to do, leaves the processors
/// alone. A single thread that spins takes all of one in any time.
async fn comes_to_rest() {
    const LOOK: Duration = Duration::from_secs(1);
    let wait = async {
        loop {
            let (begun, before) = (Instant::now(), processor_time());
            tokio::time::sleep(LOOK).await;
            if processor_time() - before < begun.elapsed() / 4 {
                return;
            }
        }
    };
    wait.within(CEILING).await;
}

#[tokio::test]
async fn a_machine_is_paused_at_any_moment_from_its_first_instruction_on_and_counts_on() {
    let _turn = turn().await;
    let mut seed = Seed::announced("pauses");
    for cpus in [1, 2, 4] {
        let guest = Counting::boot(cpus);
        let begin = guest.heard();
        for round in 0..rounds(PAUSES).max(100) {
            let paused = promptly(round, || guest.machine.pause().unwrap());
            let heard = guest.heard();
            std::thread::sleep(Duration::from_micros(seed.below(3000)));
            assert_eq!(guest.heard(), heard, "it runs, in round {round}");
            paused.resume();
            // The first of them before anything has happened, the last in what it does for ever.
            let longest = 400 * (1 + u64::from(round));
            std::thread::sleep(Duration::from_micros(seed.below(longest)));
        }
        guest.goes_on(&begin, 3);
        let then = guest.heard();
        guest.goes_on(&then, 10);
        assert!(!guest.machine.inspect().paused);
    }
}

#[tokio::test]
async fn nobody_writes_the_memory_of_a_paused_machine() {
    let _turn = turn().await;
    let mut seed = Seed::announced("moments");
    for cpus in [1, 4] {
        let guest = Counting::boot(cpus);
        let begin = guest.heard();
        for counting in [false, true] {
            if counting {
                guest.goes_on(&begin, 3);
            }
            std::thread::sleep(Duration::from_micros(seed.below(100_000)));
            let paused = guest.machine.pause().unwrap();
            let memory = || {
                let dir = tempfile::tempdir().unwrap();
                paused.snapshot(dir.path()).unwrap();
                let mut memory = std::fs::read(dir.path().join("memory")).unwrap();
                // The last page says which snapshot it belongs to.
                memory.truncate(memory.len() - 4096);
                memory
            };
            let first = memory();
            std::thread::sleep(Duration::from_millis(200));
            // Not by assert_eq, which would show them.
            assert!(first == memory(), "it was written");
        }
    }
}

#[tokio::test]
async fn streams_have_no_gap_however_often_the_vm_is_paused_and_then_it_is_idle() {
    let _turn = turn().await;
    let mut seed = Seed::announced("pauses of streams");
    for cpus in [1, 2, 4] {
        let vm = TestVm::start(builder().cpus(cpus)).await;
        let counters = Counters::start(&vm, 8).await;
        for round in 0..rounds(PAUSES) {
            let paused = promptly(round, || vm.pause().unwrap());
            tokio::time::sleep(Duration::from_micros(seed.below(2000))).await;
            paused.resume();
            tokio::time::sleep(Duration::from_micros(seed.below(20_000))).await;
        }
        counters.stop().await;
        assert_slots_come_free(&vm).await;
        comes_to_rest().await;
    }
}
