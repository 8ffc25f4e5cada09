//! Deadlines where the guest does not do its part: it confirms late or never, exits at the very
//! moment, or takes its time to start.

use std::time::Duration;

use forebay::{Exec, ExecError, ExecEvent, Signal};
use forebay_tests::{CEILING, TestVm, Within as _};

use super::{assert_slots_in_use, give_in, shared};

/// Short: nothing has to happen before it but the start.
const LIMIT: Duration = Duration::from_millis(300);

fn limited(vm: &TestVm, words: &[&str]) -> Exec {
    vm.exec(words[0], &words[1..]).timeout(LIMIT)
}

fn assert_timed_out(error: &ExecError) {
    match error {
        ExecError::TimedOut { limit, output } => {
            assert_eq!(*limit, LIMIT);
            assert!(output.status().timed_out());
            assert_eq!(output.status().signal(), Some(Signal::KILL));
        }
        other => panic!("{other}"),
    }
}

/// The output that came so far.
fn unconfirmed(error: ExecError) -> Vec<u8> {
    match error {
        ExecError::Unconfirmed {
            limit: LIMIT,
            stdout,
            ..
        } => stdout,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_end_that_the_guest_does_not_confirm_is_not_claimed_and_keeps_its_slot() {
    let vm = &*shared().await;
    let endure = || limited(vm, &["endure"]).spawn().within(CEILING);
    let (mut waited, collected, mut followed) = (
        endure().await.unwrap(),
        endure().await.unwrap(),
        endure().await.unwrap(),
    );
    let told = waited.wait().within(CEILING).await.unwrap_err();
    assert_eq!(unconfirmed(told), b"");
    let told = collected.collect().within(CEILING).await.unwrap_err();
    assert_eq!(unconfirmed(told), b"so far\n");
    assert_slots_in_use(vm, 3).await;

    // Who follows the events is told nothing but what happens.
    let started = followed.recv().within(CEILING).await;
    assert!(
        matches!(started, Some(ExecEvent::Started { .. })),
        "{started:?}"
    );
    let line = followed.recv().within(CEILING).await;
    assert_eq!(line, Some(ExecEvent::Stdout("so far\n".into())));
    let nothing = tokio::time::timeout(LIMIT, followed.recv()).await;
    assert!(nothing.is_err(), "{nothing:?}");

    give_in(vm).await;
    assert_timed_out(&waited.wait().within(CEILING).await.unwrap_err());
    match followed.recv().within(CEILING).await {
        Some(ExecEvent::Exited(status)) => {
            assert!(status.timed_out());
            assert_eq!(status.signal(), Some(Signal::KILL));
        }
        other => panic!("{other:?}"),
    }
    drop((waited, followed));
    assert_slots_in_use(vm, 0).await;
}

// B07
#[tokio::test]
async fn who_exits_by_itself_at_its_deadline_has_exited_and_not_timed_out() {
    let vm = &*shared().await;
    for code in [0, 7] {
        let shrug = limited(vm, &["shrug", &code.to_string()]);
        let status = shrug.status().within(CEILING).await.unwrap();
        assert_eq!(status.code(), Some(code));
        assert!(!status.timed_out());
    }
    assert_slots_in_use(vm, 0).await;
}

#[tokio::test]
async fn nothing_is_killed_before_it_has_started() {
    let vm = &*shared().await;
    // The hostile agent exits with 1 if it is told to kill what it has not started.
    let late = tokio::spawn(limited(vm, &["dawdle"]).spawn());
    tokio::time::sleep(3 * LIMIT).await;
    give_in(vm).await;
    let mut late = late.within(CEILING).await.unwrap().unwrap();
    assert_timed_out(&late.wait().within(CEILING).await.unwrap_err());
    drop(late);

    // A start that does not come at all is not waited for without end.
    let never = limited(vm, &["dawdle"]).spawn().within(CEILING).await;
    assert_eq!(unconfirmed(never.unwrap_err()), b"");
    assert_slots_in_use(vm, 1).await;
    give_in(vm).await;
    assert_slots_in_use(vm, 0).await;
}
