//! Rules of framing and of the connection: the channel closes with its reason, the VM lives, and
//! the guest may open the port anew.

use forebay::{ExecError, StopReason};
use forebay_tests::{CEILING, TestVm, Within as _, turn};

use super::{
    Held, LOOK_AGAIN, MIB, Neighbours, assert_cut, assert_honest_work, assert_slots_in_use,
    comes_to_rest, hostile, shared,
};

/// Each rule, and a part of what the host says of it.
const RULES: [(&str, &str); 12] = [
    ("unknown-execution", "an execution that was never started"),
    ("no-execution", "names no execution"),
    (
        "frame-beyond-its-chain",
        "crosses the end of its descriptor chain",
    ),
    (
        "length-of-gigabytes",
        "crosses the end of its descriptor chain",
    ),
    ("half-a-header", "ends inside a frame's header"),
    ("garbage", "crosses the end of its descriptor chain"),
    ("reserved-bytes", "reserved header bytes"),
    ("unknown-kind", "frame kind is not known"),
    ("unasked-pongs", "a pong that no ping asked for"),
    ("unasked-inspection", "out of turn"),
    ("second-ready", "out of turn"),
    ("ready-of-an-execution", "names an execution"),
];

/// Waits until executions can be started again.
async fn connected(vm: &TestVm) {
    let wait = async {
        loop {
            match vm.exec("random", ["1", "1"]).await {
                Ok(_) => break,
                // The port is not open yet, or it just opened, or the greeting is under way.
                Err(ExecError::VmGone { .. } | ExecError::NotReady) => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Err(other) => panic!("{other}"),
            }
        }
    };
    wait.within(CEILING).await;
}

#[tokio::test]
async fn a_real_guest_that_breaks_framing_loses_the_connection_with_the_reason_and_may_begin_anew()
{
    let vm = &*shared().await;
    let held = Held::now(vm).await;
    for (rule, why) in RULES {
        let mut neighbours = Neighbours::start(vm).await;
        neighbours.assert_well().await;
        let cut = vm.exec("cut", [rule]).within(CEILING).await;
        assert_cut(&cut.unwrap_err(), rule, why);
        neighbours.assert_cut_off(rule, why).await;
        assert_slots_in_use(vm, 0).await;
        assert_eq!(vm.stopped(), None, "{rule}");
        connected(vm).await;
        assert_honest_work(vm, 3, MIB).await;
    }
    held.assert_flat(1, "what cut connections left");
    let console = vm.console().text();
    let last = format!("greeting of connection {}", RULES.len() + 1);
    assert!(console.contains(&last), "{console}");
    comes_to_rest(vm).await;
}

// B45
#[tokio::test]
async fn a_real_guest_that_opens_and_closes_its_port_200_times_is_greeted_by_the_next_number() {
    let _turn = turn().await;
    let vm = TestVm::start(hostile("honest")).await;
    let held = Held::now(&vm).await;
    let neighbours = Neighbours::start(&vm).await;
    let reopen = vm.exec("reopen", [""; 0]).within(CEILING).await;
    assert_cut(&reopen.unwrap_err(), "reopen", "closed");
    neighbours.assert_cut_off("reopen", "closed").await;
    connected(&vm).await;
    assert_honest_work(&vm, 3, MIB).await;
    assert_slots_in_use(&vm, 0).await;
    // The first one, those that came to nothing, and this.
    let console = vm.console().text();
    assert!(console.contains("greeting of connection 202"), "{console}");
    held.assert_flat(1, "what 200 connections left");
    comes_to_rest(&vm).await;
    assert_eq!(vm.close().within(CEILING).await, StopReason::Requested);
}

#[tokio::test]
async fn a_vm_whose_channel_stays_closed_can_still_be_seen_and_stopped() {
    let _turn = turn().await;
    let vm = TestVm::start(hostile("honest")).await;
    let held = Held::now(&vm).await;
    let why = "crosses the end of its descriptor chain";
    let neighbours = Neighbours::start(&vm).await;
    let cut = vm.exec("cut", ["garbage", "quiet"]).within(CEILING).await;
    assert_cut(&cut.unwrap_err(), "garbage", why);
    neighbours.assert_cut_off("garbage", why).await;
    // Refused at once, with the same reason: nothing waits for a channel that may never come.
    let late = vm.exec("cat", [""; 0]).within(CEILING).await;
    assert_cut(&late.unwrap_err(), "a late start", why);
    let view = vm.inspect();
    assert_eq!(view.machine.device.agent.channel, "broken");
    assert_eq!(
        (view.executions.state, view.executions.active),
        ("closed", 0)
    );
    let console = vm.console().text();
    assert!(console.contains("cut garbage quiet"), "{console}");
    comes_to_rest(&vm).await;
    held.assert_flat(1, "a closed channel");
    assert_eq!(vm.close().within(CEILING).await, StopReason::Requested);
}
