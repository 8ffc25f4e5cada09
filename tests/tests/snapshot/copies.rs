//! Copies of a guest go on exactly where it was, and so does the guest.

use std::time::Duration;

use forebay_tests::{Seed, rounds, turn};

use crate::counting::Counting;

/// Copies `guest` as it is, and lets it go on.
fn copy(guest: &Counting) -> Counting {
    let dir = tempfile::tempdir().unwrap();
    let paused = guest.machine.pause().unwrap();
    let heard = guest.heard();
    paused.snapshot(dir.path()).unwrap();
    paused.resume();
    Counting::restore(dir.path(), heard)
}

#[tokio::test]
async fn copies_of_copies_count_on_by_every_processors_timer_and_so_do_their_sources() {
    let _turn = turn().await;
    let mut seed = Seed::announced("copies");
    for cpus in [1, 2, 4] {
        let mut guest = Counting::boot(cpus);
        guest.goes_on(&guest.heard(), 3);
        for _ in 0..rounds(20) {
            std::thread::sleep(Duration::from_micros(seed.below(20_000)));
            let next = copy(&guest);
            let heard = next.heard();
            next.goes_on(&heard, 5);
            guest.goes_on(&guest.heard(), 2);
            guest = next;
        }
    }
}

#[tokio::test]
async fn two_copies_of_one_snapshot_do_not_know_each_other() {
    let _turn = turn().await;
    let guest = Counting::boot(2);
    guest.goes_on(&guest.heard(), 3);
    let dir = tempfile::tempdir().unwrap();
    let paused = guest.machine.pause().unwrap();
    let heard = guest.heard();
    paused.snapshot(dir.path()).unwrap();
    drop(paused);
    drop(guest);
    let first = Counting::restore(dir.path(), heard.clone());
    first.goes_on(&heard, 5);
    let second = Counting::restore(dir.path(), heard.clone());
    second.goes_on(&heard, 5);
    first.goes_on(&first.heard(), 5);
}

#[tokio::test]
async fn a_copy_of_a_guest_that_boots_boots_on() {
    let _turn = turn().await;
    let mut seed = Seed::announced("moments of the boot");
    for round in 0..rounds(30).max(6) {
        let cpus = [1, 2, 4][round as usize % 3];
        let guest = Counting::boot(cpus);
        // From the first instruction to beyond the boot.
        std::thread::sleep(Duration::from_micros(
            seed.below(1 + 100_000 * u64::from(round)),
        ));
        let copied = copy(&guest);
        let heard = copied.heard();
        eprintln!("round {round}, {cpus} vCPUs, {heard:?}");
        copied.goes_on(&heard, 3);
        guest.goes_on(&heard, 3);
    }
}
