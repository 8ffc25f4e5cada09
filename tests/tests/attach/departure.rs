//! B24: a client goes away, and what it ran goes with it.

use forebay_tests::{CEILING, Within as _, rounds, turn};

use super::Attached;

const LOOP: &str = "while :; do date > /tmp/hb; sleep .1; done";

impl Attached {
    /// That nothing of a client's loop runs in the guest.
    async fn no_loop_is_left(&self) {
        self.active(0).await;
        let line = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null";
        let out = self.shell(line).within(CEILING).await.unwrap();
        let left = out.stdout_str().unwrap();
        assert!(!left.contains("/tmp/hb"), "{left}");
    }

    /// That nothing writes a loop's file any more.
    async fn the_heart_stands_still(&self) {
        let line = "rm -f /tmp/hb; sleep 1; ls /tmp";
        let out = self.shell(line).within(CEILING).await.unwrap();
        let there = out.stdout_str().unwrap();
        assert!(!there.lines().any(|name| name == "hb"), "{there}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_takes_its_command_with_it() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    for _ in 0..rounds(10) {
        let mut child = attached.exec(&["sh", "-c", LOOP]).spawn().unwrap();
        attached.active(1).await;
        child.kill().unwrap();
        child.wait().unwrap();
        attached.no_loop_is_left().await;
    }
    attached.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_departures_than_slots_leave_every_slot_free() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let stays = attached.client().await;
    for round in 0..rounds(300).max(150) {
        let leaves = attached.client().await;
        let client = match round % 4 {
            0 | 1 => &leaves,
            2 => &stays,
            _ => attached.client_of_library(),
        };
        let run = client.shell(LOOP).spawn();
        let run = run.within(CEILING).await.unwrap();
        match round % 4 {
            // Detached ones, too: what detaching outlives is the handle, not the client.
            0 => _ = run.detach(),
            1 => {
                drop(leaves);
                drop(run);
            }
            // The task that has the handle is dropped; its client stays.
            _ => {
                let task = tokio::spawn(run.collect());
                task.abort();
                assert!(task.await.unwrap_err().is_cancelled());
            }
        }
    }
    attached.no_loop_is_left().await;
    attached.the_heart_stands_still().await;
    let mut all = Vec::new();
    for _ in 0..attached.client_of_library().limits().max_executions {
        let sleep = attached.vm.exec("sleep", ["1000"]).spawn();
        all.push(sleep.within(CEILING).await.unwrap());
    }
    drop(all);
    attached.close().await;
}
