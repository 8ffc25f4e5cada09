//! Timeouts of a client's commands, which the client's own thread keeps.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Attached, run, wait_until};
use crate::{ExecError, ExecEvent, Signal};

const NONE: [&str; 0] = [];
const SOON: Duration = Duration::from_millis(50);

#[test]
fn a_clients_timeouts_are_kept_while_it_does_not_poll() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        // One whose time is far off goes first, so that the thread has to be told of the other.
        let stays = client
            .exec("stall", NONE)
            .timeout(Duration::MAX / 4_000_000);
        let stays = stays.spawn().await.unwrap();
        let mut taken = client.exec("write", ["5", "0"]).timeout(SOON);
        taken = taken.env("NAME", "value");
        let collect = taken.spawn().await.unwrap();
        let mut events = client
            .exec("stall", NONE)
            .timeout(SOON)
            .spawn()
            .await
            .unwrap();
        client
            .exec("chatter", NONE)
            .timeout(SOON)
            .spawn()
            .await
            .unwrap()
            .detach();
        // Nothing of the client's runtime runs here.
        wait_until("the end of those that had their time", || {
            let view = attached.vm.hub.inspect();
            let running = view
                .executions
                .iter()
                .filter(|exec| exec.phase == "started");
            running.count() == 1
        });
        match collect.collect().await {
            Err(ExecError::TimedOut { limit, output }) => {
                assert_eq!((limit, output.stdout().len()), (SOON, 5));
                assert_eq!(output.status().signal(), Some(Signal::KILL));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            events.recv().await,
            Some(ExecEvent::Started { .. })
        ));
        match events.recv().await {
            Some(ExecEvent::Exited(status)) => assert!(status.timed_out()),
            other => panic!("{other:?}"),
        }
        wait_until("the end of the one that nobody holds", || {
            client.active() == 1
        });
        drop(stays);
    });
}

#[test]
fn a_client_is_told_when_the_vm_does_not_confirm_an_end() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let mut limit = SOON;
        let mut handle = loop {
            let spawned = client.exec("stall", NONE).timeout(limit).spawn().await;
            attached.vm.hold.store(true, Ordering::Relaxed);
            // The bound of 5 s passes for real: there is no other clock in the client's thread.
            if let Ok(mut handle) = spawned
                && let Err(ExecError::Unconfirmed { .. }) = handle.wait().await
            {
                break handle;
            }
            // It was killed before the guest was held up.
            attached.vm.go_on();
            limit *= 2;
        };
        wait_until("the end of those before", || client.active() == 1);
        attached.vm.go_on();
        while let Some(event) = handle.recv().await {
            if let ExecEvent::Exited(status) = event {
                assert!(status.timed_out());
            }
        }
        let outcome = handle.wait().await;
        assert!(
            matches!(outcome, Err(ExecError::TimedOut { .. })),
            "{outcome:?}"
        );
    });
}
