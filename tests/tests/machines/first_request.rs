//! The first request is answered whenever it comes: at any time after the start, and also while the
//! guest still boots, when it comes by the attach socket.

use std::time::Duration;

use forebay::{Client, ExecError};
use forebay_tests::{CEILING, TestVm, Within as _, builder, rounds, turn};
use tokio::time::sleep;

/// From the start, or the agent's word that it is ready, to the request, in milliseconds.
const DELAYS: [u64; 4] = [0, 10, 100, 1000];
const BOOTS: u32 = 100;

async fn answers(client: &Client, number: u32) -> Result<(), ExecError> {
    let out = client.shell(format!("echo {number}"));
    let out = out.within(CEILING).await?;
    assert_eq!(out.stdout_str().unwrap(), format!("{number}\n"));
    assert!(out.stderr().is_empty(), "{:?}", out.stderr());
    Ok(())
}

// B45
#[tokio::test]
async fn the_first_request_is_answered_however_long_after_the_start_it_comes() {
    let _turn = turn().await;
    for delay in DELAYS {
        for number in 0..rounds(BOOTS) / 2 {
            let vm = TestVm::start(builder()).await;
            sleep(Duration::from_millis(delay)).await;
            answers(vm.client(), number).await.unwrap();
            vm.close().within(CEILING).await;
        }
    }
}

// B45
#[tokio::test]
async fn a_request_that_comes_while_the_guest_boots_is_answered_when_it_is_up() {
    let _turn = turn().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vm.sock");
    for delay in DELAYS {
        for number in 0..rounds(BOOTS) / 2 {
            let request = async {
                // From the moment at which there is somebody to ask.
                while !path.exists() {
                    sleep(Duration::from_millis(1)).await;
                }
                sleep(Duration::from_millis(delay)).await;
                let client = Client::connect(&path).within(CEILING).await.unwrap();
                answers(&client, number).await.unwrap();
            };
            let start = TestVm::start(builder().attach_socket(&path));
            let (vm, ()) = tokio::join!(start, request);
            vm.close().within(CEILING).await;
        }
    }
}
