//! At most `max_executions` at once: refused with the numbers, never queued, freed exactly once.

use forebay::{Client, ExecError, ExecHandle, Limits, Signal, Stdin};
use forebay_tests::{CEILING, TestVm, Within as _, builder, turn};

use super::{LONG, assert_answers, assert_slots_come_free, shared};

const MOST: u32 = 4;

async fn small() -> TestVm {
    let limits = Limits {
        max_executions: MOST,
        ..Limits::default()
    };
    TestVm::start(builder().exec_limits(limits)).await
}

async fn sleeper(client: &Client) -> Result<ExecHandle, ExecError> {
    client.exec("sleep", ["1000"]).spawn().within(CEILING).await
}

fn assert_full(refused: Result<ExecHandle, ExecError>) {
    match refused {
        Err(ExecError::AtCapacity {
            limit: MOST,
            active: MOST,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn one_more_than_the_limit_is_refused_over_all_clients() {
    let _turn = turn().await;
    let vm = small().await;
    let clients = [vm.client().clone(), vm.client().clone()];
    let mut running = Vec::new();
    for number in 0..MOST {
        let client = &clients[number as usize % clients.len()];
        running.push(sleeper(client).await.unwrap());
    }
    for client in &clients {
        assert_full(sleeper(client).await);
    }
    assert_eq!(vm.client().active(), MOST);

    // Killed and confirmed: the slot is free.
    let mut one = running.pop().unwrap();
    one.kill();
    assert_eq!(
        one.wait().within(CEILING).await.unwrap().signal(),
        Some(Signal::KILL)
    );
    drop(one);
    running.push(sleeper(vm.client()).await.unwrap());
    assert_full(sleeper(vm.client()).await);

    // Dropped: free when the guest has confirmed the end.
    running.clear();
    assert_slots_come_free(&vm).await;
    for _ in 0..MOST {
        running.push(sleeper(vm.client()).await.unwrap());
    }
    assert_full(sleeper(vm.client()).await);
    drop(running);
    vm.close().await;
}

#[tokio::test]
async fn an_execution_that_ended_keeps_its_slot_until_its_output_is_read() {
    let _turn = turn().await;
    let vm = small().await;
    let mut ended = Vec::new();
    for number in 0..MOST {
        let command = vm
            .shell(format!("echo {number}; echo done > /tmp/{number}"))
            .spawn();
        ended.push(command.within(CEILING).await.unwrap());
    }
    // Full before and after the commands have ended by themselves: nobody has read.
    assert_full(sleeper(vm.client()).await);
    let first = ended.remove(0).collect().within(CEILING).await.unwrap();
    assert_eq!(first.stdout(), b"0\n");
    let wait = "for n in 1 2 3; do while [ ! -s /tmp/$n ]; do sleep .1; done; done";
    assert!(
        vm.shell(wait)
            .within(CEILING)
            .await
            .unwrap()
            .status()
            .success()
    );
    let last = sleeper(vm.client()).await.unwrap();
    assert_full(sleeper(vm.client()).await);
    for (number, command) in (1..).zip(ended) {
        let out = command.collect().within(CEILING).await.unwrap();
        assert_eq!(out.stdout_str().unwrap(), format!("{number}\n"));
    }
    assert_eq!(vm.client().active(), 1);
    drop(last);
    assert_slots_come_free(&vm).await;
    vm.close().await;
}

// B09
#[tokio::test]
async fn a_failed_start_gives_its_slot_back_at_once() {
    let _turn = turn().await;
    let vm = small().await;
    for _ in 0..3 * MOST {
        let refused = vm.exec("nosuch", [""; 0]).spawn().within(CEILING).await;
        assert!(
            matches!(refused, Err(ExecError::NotStarted(_))),
            "{refused:?}"
        );
    }
    assert_eq!(vm.client().active(), 0);
    vm.close().await;
}

#[tokio::test]
async fn all_slots_at_once_answer_with_their_own_bytes_and_the_next_is_refused() {
    let vm = &*shared().await;
    let most = vm.client().limits().max_executions;
    assert_eq!(most, 128);
    let mut running = Vec::new();
    for _ in 0..most {
        let exec = vm.exec("cat", [""; 0]).stdin(Stdin::piped());
        running.push(exec.spawn().within(LONG).await.unwrap());
    }
    match vm.exec("true", [""; 0]).spawn().within(CEILING).await {
        Err(ExecError::AtCapacity { limit, active, .. }) => {
            assert_eq!((limit, active), (most, most))
        }
        other => panic!("{other:?}"),
    }
    for (number, command) in running.iter_mut().enumerate() {
        let sink = command.take_stdin().unwrap();
        sink.write(format!("I am {number}"))
            .within(CEILING)
            .await
            .unwrap();
    }
    for (number, command) in running.into_iter().enumerate() {
        let out = command.collect().within(CEILING).await.unwrap();
        assert_eq!(out.stdout_str().unwrap(), format!("I am {number}"));
    }
    assert_slots_come_free(vm).await;
    assert_answers(vm).await;
}
