//! A guest that sends without end, by the rules or not: the host holds no more for it, others get
//! their turn, and when it stops nothing goes on.

use forebay::ConsoleLog;
use forebay_tests::{CEILING, TestVm, Within as _};
use tokio::io::AsyncReadExt as _;

use super::{
    Held, LONG, LOOK_AGAIN, MIB, Neighbours, WINDOW, assert_broke, assert_honest_work,
    assert_slots_in_use, comes_to_rest, give_in, shared,
};

/// What is sent against one window.
const FLOOD: u64 = 256 * MIB;

/// What an honest execution writes meanwhile.
const WORK: u64 = 2 * MIB;

/// Those of flood, honest work, and the neighbour that nobody reads.
const WINDOWS: u64 = 3;

/// Each kind this often: what the first round left must do for the next.
const ROUNDS: u32 = 2;

/// Each kind, what is counted of it, and how much of that has to come before it is a flood.
const KINDS: [(&str, Counted, u64); 5] = [
    ("output", Counted::Discarded, 64 * MIB),
    ("late", Counted::Discarded, 64 * MIB),
    ("optional", Counted::Frames, 100_000),
    ("acks", Counted::Frames, 100_000),
    ("console", Counted::Console, MIB / 2),
];

/// What came from the guest so far.
#[derive(Debug, Clone, Copy)]
enum Counted {
    /// Bytes that were thrown away.
    Discarded,
    /// Frames, those of honest work among them: some hundreds each time.
    Frames,
    /// Bytes on the console.
    Console,
}

impl Counted {
    fn now(self, vm: &TestVm) -> u64 {
        let device = vm.inspect().machine.device;
        match self {
            Self::Discarded => device.agent.discarded_bytes,
            Self::Frames => device.agent.frames_from_guest,
            Self::Console => device.console.bytes,
        }
    }
}

#[tokio::test]
async fn a_real_guest_that_sends_256_mib_against_one_window_costs_the_host_one_window() {
    let vm = &*shared().await;
    let mut neighbours = Neighbours::start(vm).await;
    let held = Held::now(vm).await;
    let discarded = || vm.inspect().machine.device.agent.discarded_bytes;
    let before = discarded();

    let flood = vm.exec("flood", ["output".to_owned(), FLOOD.to_string()]);
    let mut flood = flood.spawn().within(CEILING).await.unwrap().split();
    let end = flood.exit.wait().within(CEILING).await;
    assert_broke(&end.unwrap_err(), "flood", "beyond output_limit");
    let over = async {
        // Of those that are honest, one stands still and one is asked.
        while vm
            .inspect()
            .executions
            .executions
            .iter()
            .any(|one| one.phase == "condemned")
        {
            held.assert_flat(2, "during the flood");
            neighbours.assert_well().await;
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    over.within(LONG).await;
    let accepted = flood
        .stdout
        .read_to_end(&mut Vec::new())
        .within(CEILING)
        .await;
    assert!(accepted.is_err(), "the end of a stream was invented");
    // All but what was accepted, and the headers.
    let thrown_away = discarded() - before;
    assert!(
        thrown_away >= FLOOD - 2 * WINDOW,
        "{thrown_away} bytes were thrown away"
    );

    drop(flood);
    held.assert_flat(1, "after the flood");
    neighbours.finish().await;
    assert_slots_in_use(vm, 0).await;
    comes_to_rest(vm).await;
}

#[tokio::test]
async fn no_flood_of_a_real_guest_holds_up_honest_work_or_outlives_itself() {
    let vm = &*shared().await;
    let mut held = Held::now(vm).await;
    for round in 0..ROUNDS {
        for (kind, counted, least) in KINDS {
            flood(vm, kind, (counted, least), &held).await;
        }
        held.assert_flat(if round == 0 { WINDOWS } else { 0 }, "after all floods");
        held = Held::now(vm).await;
    }
    let console = vm.console().text();
    assert!(
        console.contains("the console of a hostile guest"),
        "{console}"
    );
    // The line that says what is missing comes on top.
    assert!(console.len() <= ConsoleLog::DEFAULT_CAPACITY + 100);
}

/// One flood, with honest work until at least so much has come.
async fn flood(vm: &TestVm, kind: &str, (counted, least): (Counted, u64), held: &Held) {
    let mut neighbours = Neighbours::start(vm).await;
    let flood = vm.exec("flood", [kind]).spawn();
    let flood = flood.within(CEILING).await.unwrap().split();
    let enough = counted.now(vm) + least;
    let work = async {
        for seed in 0.. {
            assert_honest_work(vm, seed, WORK).await;
            neighbours.assert_well().await;
            if counted.now(vm) >= enough {
                break;
            }
        }
    };
    work.within(LONG).await;
    held.assert_flat(WINDOWS, kind);
    assert_eq!(vm.stopped(), None, "{kind}");
    give_in(vm).await;
    drop(flood);
    neighbours.finish().await;
    assert_slots_in_use(vm, 0).await;
    comes_to_rest(vm).await;
}
