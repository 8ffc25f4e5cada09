//! Any runtime will do, and none has to be running for the guest to go on.

use std::time::{Duration, Instant};

use forebay::{ExecError, Stdin};
use forebay_tests::{CEILING, TestVm, Within as _, scaled, turn};

/// The same work on whichever runtime.
async fn work() -> Result<(), ExecError> {
    let vm = TestVm::boot().await;
    let mut running = Vec::new();
    for number in 0..8 {
        let exec = vm
            .exec("cat", [""; 0])
            .stdin(Stdin::bytes(vec![number; 200_000]));
        running.push(tokio::spawn(exec.output()));
    }
    for (number, one) in (0..8_u8).zip(running) {
        let out = one.within(CEILING).await.expect("no panic")?;
        assert!(
            out.stdout() == vec![number; 200_000],
            "{} bytes",
            out.stdout().len()
        );
    }
    vm.close().within(CEILING).await;
    Ok(())
}

#[tokio::test(flavor = "current_thread")]
async fn a_current_thread_runtime_will_do() {
    let _turn = turn().await;
    work().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_multi_thread_runtime_will_do() {
    let _turn = turn().await;
    work().await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn what_was_started_goes_on_while_the_runtime_is_not_polled() {
    let _turn = turn().await;
    let vm = TestVm::boot().await;
    // Its stdin is far more than the allowance and its output is dropped: both need the VM's own
    // threads to go on.
    let exec = vm
        .shell("cat; echo all of it went through > /dev/hvc0")
        .stdin(Stdin::bytes(vec![7; 3_000_000]));
    let command = exec.spawn().within(CEILING).await.unwrap();
    command.detach();
    // The only thread of the runtime stays here, and nothing is awaited, until the guest is done.
    let deadline = Instant::now() + scaled(CEILING);
    while !vm.console().text().contains("all of it went through") {
        assert!(Instant::now() < deadline, "hang: the command does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    vm.close().await;
}

#[test]
fn a_vm_outlives_the_runtime_that_started_it() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    };
    let first = runtime();
    let turn = first.block_on(turn());
    let vm = first.block_on(TestVm::boot());
    let command = first
        .block_on(vm.exec("cat", [""; 0]).stdin(Stdin::piped()).spawn())
        .unwrap();
    drop(first);
    let second = runtime();
    second.block_on(async {
        let mut command = command;
        let sink = command.take_stdin().unwrap();
        sink.write("still here").within(CEILING).await.unwrap();
        drop(sink);
        let out = command.collect().within(CEILING).await.unwrap();
        assert_eq!(out.stdout(), b"still here");
        vm.close().within(CEILING).await;
    });
    drop(turn);
}
