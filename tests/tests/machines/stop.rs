//! Stopping in order: commands are asked, then killed; what they said last arrives.

use std::time::Duration;

use forebay::{ExecEvent, Signal, StopReason};
use forebay_tests::{CEILING, TestVm, Within as _, scaled, turn};

#[tokio::test]
async fn a_stop_gives_commands_their_last_words() {
    let _turn = turn().await;
    let vm = TestVm::boot().await;
    let script = "trap 'echo last words; exit 7' TERM; echo set; while :; do sleep .1; done";
    let mut command = vm.shell(script).spawn().within(CEILING).await.unwrap();
    while !matches!(
        command.recv().within(CEILING).await,
        Some(ExecEvent::Stdout(_))
    ) {}
    let rest = tokio::spawn(command.collect());
    let reason = vm
        .stop(scaled(Duration::from_secs(5)))
        .within(CEILING)
        .await;
    assert_eq!(reason, StopReason::Requested);
    let out = rest.within(CEILING).await.unwrap().unwrap();
    assert_eq!(
        (out.stdout(), out.status().code()),
        (&b"last words\n"[..], Some(7))
    );
    assert_eq!(vm.wait().within(CEILING).await, StopReason::Requested);
    vm.close().within(CEILING).await;
}

#[tokio::test]
async fn a_command_that_ignores_the_request_is_killed_after_the_grace() {
    let _turn = turn().await;
    let vm = TestVm::boot().await;
    let script = "trap '' TERM; echo set; while :; do sleep 1; done";
    let mut command = vm.shell(script).spawn().within(CEILING).await.unwrap();
    while !matches!(
        command.recv().within(CEILING).await,
        Some(ExecEvent::Stdout(_))
    ) {}
    let rest = tokio::spawn(async move { command.wait().await });
    let reason = vm.stop(Duration::from_millis(100)).within(CEILING).await;
    assert_eq!(reason, StopReason::Requested);
    // Told before the guest went.
    let status = rest.within(CEILING).await.unwrap().unwrap();
    assert_eq!(status.signal(), Some(Signal::KILL));
    vm.close().within(CEILING).await;
}

#[tokio::test]
async fn a_guest_that_ends_itself_in_order_is_told_as_what_it_did() {
    let _turn = turn().await;
    // The image's own commands ask PID 1, as on any machine.
    for (command, reason) in [
        ("poweroff", StopReason::PowerOff),
        ("reboot", StopReason::Reboot),
    ] {
        let vm = TestVm::boot().await;
        let asked = tokio::spawn(vm.shell(format!("{command}; sleep 1000")).output());
        assert_eq!(vm.wait().within(CEILING).await, reason);
        let out = asked.within(CEILING).await.unwrap().unwrap();
        assert_eq!(out.status().signal(), Some(Signal::TERM), "{command}");
        vm.close().within(CEILING).await;
    }
}
