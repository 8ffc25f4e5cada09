//! Rules of one execution: it fails with stage `protocol`, and nobody else notices.

use forebay::{ExecError, Stdin};
use forebay_tests::{CEILING, TestVm, Within as _};
use tokio::io::AsyncReadExt as _;

use super::{
    CHUNK_CHARGE, Held, LOOK_AGAIN, MIB, Neighbours, assert_broke, assert_honest_work,
    assert_slots_in_use, comes_to_rest, faults, give_in, shared,
};

/// Each rule, and a part of what the host says of it.
const RULES: [(&str, &str); 13] = [
    ("output-before-started", "before Started"),
    ("second-started", "a second Started"),
    ("beyond-the-window", "beyond output_limit"),
    ("chunk-too-large", "larger than output_chunk_size"),
    ("empty-chunk", "without data"),
    ("ack-of-what-was-not-sent", "beyond what was sent"),
    ("ack-that-goes-back", "goes back"),
    (
        "ack-of-half-a-number",
        "a length that its kind does not have",
    ),
    ("second-stdin-error", "a second StdinError"),
    ("event-too-long", "a length that its kind does not have"),
    ("failed-after-started", "Failed after Started"),
    ("exit-that-no-process-has", "a code or a signal that exists"),
    ("exit-in-no-encoding", "cannot be decoded"),
];

/// Has an execution break a rule while nobody reads it. What it is told, and the output that was
/// accepted of it.
async fn broken(vm: &TestVm, words: &[&str]) -> (ExecError, Vec<u8>) {
    let stdin = if words.contains(&"ack-that-goes-back") {
        Stdin::bytes("12345")
    } else {
        Stdin::null()
    };
    let exec = vm.exec("break", words).stdin(stdin);
    let mut parts = match exec.spawn().within(CEILING).await {
        Ok(handle) => handle.split(),
        Err(error) => return (error, Vec::new()),
    };
    let end = parts.exit.wait().within(CEILING).await;
    let mut accepted = Vec::new();
    let read = parts.stdout.read_to_end(&mut accepted);
    assert!(
        read.within(CEILING).await.is_err(),
        "{words:?}: an end was invented"
    );
    (end.unwrap_err(), accepted)
}

#[tokio::test]
async fn each_rule_that_a_real_guest_breaks_ends_its_execution_alone() {
    let vm = &*shared().await;
    let held = Held::now(vm).await;
    let mut neighbours = Neighbours::start(vm).await;
    for (rule, why) in RULES {
        let before = faults(vm);
        let (error, accepted) = broken(vm, &[rule]).await;
        assert_broke(&error, rule, why);
        assert_eq!(faults(vm), before + 1, "{rule}");
        let limits = vm.client().limits();
        let expected = match rule {
            "beyond-the-window" => {
                let fits = limits.output_limit / (limits.output_chunk_size + CHUNK_CHARGE);
                (fits * limits.output_chunk_size) as usize
            }
            _ => 0,
        };
        assert_eq!(accepted.len(), expected, "{rule}: bytes that were accepted");
        neighbours.assert_well().await;
        assert_slots_in_use(vm, Neighbours::SLOTS).await;
    }
    held.assert_flat(2, "what rule-breakers left");
    neighbours.finish().await;
    assert_slots_in_use(vm, 0).await;
    comes_to_rest(vm).await;
}

#[tokio::test]
async fn what_a_real_guest_sends_after_the_end_is_counted_and_nobody_gets_it() {
    let vm = &*shared().await;
    for rule in ["output-after-the-end", "second-end"] {
        let before = faults(vm);
        let exec = vm.exec("break", [rule]).spawn();
        let mut parts = exec.within(CEILING).await.unwrap().split();
        let status = parts.exit.wait().within(CEILING).await.unwrap();
        assert_eq!(status.code(), Some(0), "{rule}");
        let counted = async {
            while faults(vm) == before {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        counted.within(CEILING).await;
        assert_eq!(faults(vm), before + 1, "{rule}");
        // Whoever held the execution meanwhile sees the end that was first, and nothing more.
        let mut late = Vec::new();
        let end = parts.stdout.read_to_end(&mut late).within(CEILING).await;
        assert_eq!(end.unwrap(), 0, "{rule}");
        let again = parts.exit.wait().within(CEILING).await.unwrap();
        assert_eq!(again.code(), Some(0), "{rule}");
    }
    assert_honest_work(vm, 5, MIB).await;
    assert_slots_in_use(vm, 0).await;
}

#[tokio::test]
async fn a_rule_breaker_that_does_not_die_keeps_its_slot_until_its_end_is_confirmed() {
    let vm = &*shared().await;
    let neighbours = Neighbours::start(vm).await;
    for number in 1..=3 {
        let (error, _) = broken(vm, &["second-started", "defiant"]).await;
        assert_broke(&error, "second-started", "a second Started");
        // Time enough for a slot that is given back too early.
        assert_honest_work(vm, number, MIB).await;
        let held = Neighbours::SLOTS + number as u32;
        assert_slots_in_use(vm, held).await;
    }
    let condemned = vm.inspect().executions.executions;
    let condemned = condemned.iter().filter(|one| one.phase == "condemned");
    assert_eq!(condemned.count(), 3);
    give_in(vm).await;
    assert_slots_in_use(vm, Neighbours::SLOTS).await;
    neighbours.finish().await;
    assert_slots_in_use(vm, 0).await;
}
