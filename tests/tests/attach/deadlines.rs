//! Deadlines of other processes' commands: kept by the client's own thread.

use std::time::Duration;

use forebay::{ExecError, Signal};
use forebay_tests::{CEILING, Within as _, scaled, turn};

use super::Attached;

/// For what has to get somewhere first, on hardware.
const ENOUGH: Duration = Duration::from_millis(500);

// B07
#[tokio::test]
async fn a_client_of_the_socket_has_the_same_deadlines() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let client = attached.client().await;
    let limit = scaled(ENOUGH);
    let script = "echo CRITICAL; echo warn >&2; sleep 1000 & wait";
    let late = client.shell(script).timeout(limit).output();
    match late.within(CEILING).await {
        Err(ExecError::TimedOut {
            limit: told,
            output,
        }) => {
            assert_eq!(told, limit);
            assert!(output.status().timed_out());
            assert_eq!(output.status().signal(), Some(Signal::KILL));
            assert_eq!(output.stdout(), b"CRITICAL\n");
            assert_eq!(output.stderr(), b"warn\n");
        }
        other => panic!("{other:?}"),
    }
    let in_time = client.shell("exit 4").timeout(scaled(CEILING));
    let status = in_time.status().within(CEILING).await.unwrap();
    assert_eq!((status.code(), status.timed_out()), (Some(4), false));
    attached.active(0).await;

    // Nothing of the client is polled: its only runtime is blocked before the time is
    // over, and asks the guest afterwards.
    let late = client.exec("sleep", ["1000"]).timeout(limit);
    let late = late.spawn().within(CEILING).await.unwrap();
    let note = format!(
        "echo ready; while [ -d /proc/{} ]; do sleep .05; done; echo killed >> /tmp/order",
        late.pid()
    );
    let mut watcher = client.shell(note).spawn().within(CEILING).await.unwrap();
    while !matches!(
        watcher.recv().within(CEILING).await,
        Some(forebay::ExecEvent::Stdout(_))
    ) {}
    std::thread::sleep(2 * limit);
    let asked = client.shell("echo asked >> /tmp/order").status();
    assert!(asked.within(CEILING).await.unwrap().success());
    assert!(watcher.wait().within(CEILING).await.unwrap().success());
    let order = client.exec("cat", ["/tmp/order"]).within(CEILING).await;
    assert_eq!(order.unwrap().stdout_str().unwrap(), "killed\nasked\n");
    drop((late, watcher, client));
    attached.close().await;
}
