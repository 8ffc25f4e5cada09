//! The guest dies under running executions: everybody learns it, with the reason, and nobody is
//! told an exit code.

use std::time::Duration;

use forebay::{
    ControlError, ExecError, ExecHandle, Signal, Stdin, StopReason, Survivors, WriteError,
};
use forebay_tests::{CEILING, HELPER, HostUse, TestVm, Within as _, builder, guest_mappings, turn};
use tokio::io::AsyncReadExt as _;

/// Within this everybody has to know.
const KNOWN: Duration = Duration::from_secs(2);

const RUNNING: usize = 10;

/// Runs executions and waiters of every kind, lets `end` end the guest, and checks what each learns.
/// Gives the reason and the console's last lines.
async fn ended_by(vm: TestVm, end: &str) -> (StopReason, String) {
    let mut waiting = Vec::new();
    for _ in 0..RUNNING {
        let command = vm
            .exec("sleep", ["1000"])
            .spawn()
            .within(CEILING)
            .await
            .unwrap();
        waiting.push(tokio::spawn(collect(command)));
    }
    let exec = vm.exec("sleep", ["1000"]).stdin(Stdin::piped());
    let mut unread = exec.spawn().within(CEILING).await.unwrap();
    let control = unread.control();
    let sink = unread.take_stdin().unwrap();
    let writer = tokio::spawn(async move { sink.write(vec![0; 1024 * 1024]).await });
    let parts = unread.split();
    let mut stdout = parts.stdout;
    let reader = tokio::spawn(async move { stdout.read_to_end(&mut Vec::new()).await });
    let mut exit = parts.exit;
    let waiter = tokio::spawn(async move { exit.wait().await });
    let client = vm.client().clone();

    let cause = vm.shell(end).stdin(Stdin::null());
    let cause = tokio::spawn(cause.output());
    let reason = vm.wait().within(CEILING).await;
    async {
        for one in waiting {
            assert_gone(one.await.unwrap());
        }
        assert_gone(waiter.await.unwrap());
        assert_gone(cause.await.unwrap());
        match writer.await.unwrap() {
            Err(WriteError::VmGone { reason }) => assert!(!reason.is_empty()),
            other => panic!("the blocked writer got {other:?}"),
        }
        let error = reader
            .await
            .unwrap()
            .expect_err("the end of a stream was invented");
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::ConnectionAborted,
            "{error}"
        );
    }
    .within(KNOWN)
    .await;
    match control.signal(Signal::TERM).within(KNOWN).await {
        Err(ControlError::VmGone { .. }) => {}
        other => panic!("a late signal got {other:?}"),
    }
    assert_gone(client.exec("true", [""; 0]).within(KNOWN).await);

    let console = vm.console().last_lines(20);
    assert_eq!(vm.close().within(CEILING).await, reason);
    assert_eq!(guest_mappings(), 0, "after a close that has returned");
    (reason, console)
}

async fn collect(command: ExecHandle) -> Result<i32, ExecError> {
    command
        .collect()
        .await
        .map(|out| out.status().code().unwrap_or(-1))
}

fn assert_gone<T: std::fmt::Debug>(learned: Result<T, ExecError>) {
    match learned {
        Err(ExecError::VmGone { reason }) => assert!(!reason.is_empty()),
        other => panic!("instead of the VM's end: {other:?}"),
    }
}

// B43
#[tokio::test]
async fn a_kernel_panic_reaches_every_waiter_as_a_panic() {
    let _turn = turn().await;
    let before = HostUse::without_vms().await;
    let vm = TestVm::boot().await;
    let (reason, console) = ended_by(vm, "echo c > /proc/sysrq-trigger").await;
    match reason {
        StopReason::Panic { .. } => {}
        other => panic!("{other}\n{console}"),
    }
    assert!(console.contains("panic"), "{console}");
    before.is_back().await;
}

// B43
#[tokio::test]
async fn a_reboot_reaches_every_waiter_as_a_reboot() {
    let _turn = turn().await;
    let before = HostUse::without_vms().await;
    let (reason, console) = ended_by(TestVm::boot().await, "reboot -f").await;
    assert_eq!(reason, StopReason::Reboot, "{console}");
    before.is_back().await;
}

// B43
#[tokio::test]
async fn a_power_off_reaches_every_waiter_as_a_power_off() {
    let _turn = turn().await;
    let before = HostUse::without_vms().await;
    let (reason, console) = ended_by(TestVm::boot().await, "poweroff -f").await;
    assert_eq!(reason, StopReason::PowerOff, "{console}");
    before.is_back().await;
}

// B43
#[tokio::test]
async fn the_end_of_a_copy_reaches_every_waiter_and_who_adopted() {
    let _turn = turn().await;
    let vm = TestVm::boot().await;
    let sleeper = vm.exec("sleep", ["1000"]).spawn();
    let sleeper = sleeper.within(CEILING).await.unwrap();
    let template = vm.template().within(CEILING).await.unwrap();
    vm.close().within(CEILING).await;
    drop(sleeper);
    for end in ["poweroff -f", "echo c > /proc/sysrq-trigger"] {
        let copy = TestVm::restore(template.fork().survivors(Survivors::Adopt)).await;
        let adopted = copy.adopt(copy.survivors()[0]).unwrap().handle;
        let adopted = tokio::spawn(collect(adopted));
        let (reason, console) = ended_by(copy, end).await;
        match (end, reason) {
            ("poweroff -f", StopReason::PowerOff) | (_, StopReason::Panic { .. }) => {}
            (_, other) => panic!("{end}: {other}\n{console}"),
        }
        assert_gone(adopted.within(KNOWN).await.unwrap());
    }
}

// B43
#[tokio::test]
async fn a_triple_fault_reaches_every_waiter_as_a_triple_fault() {
    let _turn = turn().await;
    let before = HostUse::without_vms().await;
    let vm = TestVm::start(builder().cpus(2)).await;
    let (reason, console) = ended_by(vm, &format!("{HELPER} triple-fault")).await;
    match reason {
        StopReason::TripleFault { .. } => {}
        other => panic!("{other}\n{console}"),
    }
    before.is_back().await;
}

// B43
#[tokio::test]
async fn the_end_of_pid_1_reaches_every_waiter_with_the_kernels_words() {
    let _turn = turn().await;
    let before = HostUse::without_vms().await;
    let vm = TestVm::start(builder().cmdline("forebay.test_crash")).await;
    let (reason, console) = ended_by(vm, "kill -USR1 1").await;
    match &reason {
        StopReason::Panic {
            message: Some(words),
        } => assert!(words.contains("init"), "{words}"),
        other => panic!("{other}\n{console}"),
    }
    assert!(console.contains("Attempted to kill init"), "{console}");
    before.is_back().await;
}

// B43
#[tokio::test]
async fn a_vm_that_is_dropped_tells_its_waiters() {
    let _turn = turn().await;
    let before = HostUse::without_vms().await;
    let vm = TestVm::boot().await;
    let client = vm.client().clone();
    let command = vm
        .exec("sleep", ["1000"])
        .spawn()
        .within(CEILING)
        .await
        .unwrap();
    let waiting = tokio::spawn(collect(command));
    drop(vm);
    assert_gone(waiting.within(KNOWN).await.unwrap());
    assert_gone(client.exec("true", [""; 0]).within(KNOWN).await);
    before.is_back().await;
}
