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
    for round in 0..rounds(300).max(150) {
        let client = attached.client().await;
        let run = client.shell(LOOP).spawn();
        let run = run.within(CEILING).await.unwrap();
        // Detached ones, too: what detaching outlives is the handle, not the client.
        if round % 2 == 0 {
            run.detach();
        }
        drop(client);
    }
    attached.no_loop_is_left().await;
    let mut all = Vec::new();
    for _ in 0..attached.client_of_library().limits().max_executions {
        let sleep = attached.vm.exec("sleep", ["1000"]).spawn();
        all.push(sleep.within(CEILING).await.unwrap());
    }
    drop(all);
    attached.close().await;
}
