//! B32: many executions of several clients at once, and nothing of one shows up in another.

use std::time::Duration;

use forebay::{Client, ExecError, ExecHandle};
use forebay_tests::{CEILING, Within as _, turn};

use super::{Attached, LONG, end};

const LINES: u32 = 2000;

/// Prints `k:i` for each line to stdout and `k!i` for every tenth to stderr.
fn script(k: u32) -> String {
    let last = LINES - 1;
    format!("seq 0 {last} | sed s/^/{k}:/; seq 0 10 {last} | sed s/^/{k}!/ >&2")
}

fn expected(k: u32) -> (String, String) {
    let out = (0..LINES).map(|i| format!("{k}:{i}\n")).collect();
    let err = (0..LINES).step_by(10).map(|i| format!("{k}!{i}\n"));
    (out, err.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_slot_in_use_over_four_clients_and_nothing_is_crossed() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let most = attached.client_of_library().limits().max_executions;
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..4 {
        clients.push(attached.client().await);
    }
    let mut running: Vec<(u32, ExecHandle)> = Vec::new();
    for k in 0..most {
        let client = &clients[k as usize % clients.len()];
        let spawned = client.shell(script(k)).spawn().within(LONG).await;
        running.push((k, spawned.unwrap()));
    }
    // Nobody has read yet, so all hold their slots.
    for client in &clients {
        match client.exec("true", [""; 0]).spawn().within(CEILING).await {
            Err(ExecError::AtCapacity { limit, active, .. }) => {
                assert_eq!((limit, active), (most, most));
            }
            other => panic!("{other:?}"),
        }
    }
    // Another process is refused as clearly.
    let refused = end(attached.exec(&["true"]).spawn().unwrap()).await;
    assert_eq!(refused.status.code(), Some(125));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        text.contains(&format!("{most} of at most {most}")),
        "{text}"
    );

    // Room is there when one was read, and not before.
    let (k, first) = running.swap_remove(0);
    let out = first.collect().within(LONG).await.unwrap();
    let (stdout, stderr) = expected(k);
    assert!(out.stdout() == stdout.as_bytes(), "stdout of {k}");
    assert!(out.stderr() == stderr.as_bytes(), "stderr of {k}");
    // By the same client: another may ask before the news of the reading is there.
    let fits = clients[0].shell(script(most)).spawn().within(LONG).await;
    running.push((most, fits.unwrap()));

    let readers = running.into_iter().map(|(k, handle)| {
        tokio::spawn(async move {
            if k % 6 == 0 {
                // A reader that has other things to do first.
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
            (k, handle.collect().within(LONG).await.unwrap())
        })
    });
    for reader in readers.collect::<Vec<_>>() {
        let (k, out) = reader.await.unwrap();
        let (stdout, stderr) = expected(k);
        assert!(out.stdout() == stdout.as_bytes(), "stdout of {k}");
        assert!(out.stderr() == stderr.as_bytes(), "stderr of {k}");
    }
    attached.active(0).await;
    attached.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_at_once_each_get_their_own() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let children: Vec<_> = (0..8)
        .map(|k| {
            let line = script(k);
            attached.exec(&["sh", "-c", &line]).spawn().unwrap()
        })
        .collect();
    for (k, child) in (0..).zip(children) {
        let out = end(child).await;
        assert_eq!(out.status.code(), Some(0), "{out:?}");
        let (stdout, stderr) = expected(k);
        assert!(out.stdout == stdout.as_bytes(), "stdout of {k}");
        assert!(out.stderr == stderr.as_bytes(), "stderr of {k}");
    }
    attached.close().await;
}
