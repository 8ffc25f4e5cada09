//! Who ends what: a client, the server, the VM.

use std::future::Future as _;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use super::villain::Villain;
use super::{Attached, run, wait_until};
use crate::fake_guest::inside;
use crate::{AttachServer, ExecError, ExecId, Stdin, WriteError};

const NONE: [&str; 0] = [];

// B24
#[test]
fn a_client_that_goes_away_takes_its_own_executions_with_it() {
    run(async {
        let attached = Attached::new();
        let stays = attached.client().await;
        let kept = stays.exec("stall", NONE).spawn().await.unwrap();
        // More often than there are slots, with output, unread input and detached commands.
        for round in 0..150 {
            let leaves = attached.client().await;
            let stall = leaves
                .exec("stall", NONE)
                .stdin(Stdin::bytes(vec![0; 100_000]));
            let stall = stall.spawn().await.unwrap();
            let chatter = leaves.exec("chatter", NONE).spawn().await.unwrap();
            if round % 2 == 0 {
                stall.detach();
                drop(leaves);
                drop(chatter);
            } else {
                drop((stall, chatter, leaves));
            }
            wait_until("the end of its executions", || {
                attached.vm.client.active() == 1
            });
        }
        wait_until("the clients' end", || attached.clients() == 1);
        let first = ExecId::new(1).unwrap();
        assert!(attached.vm.guest_knows(first), "another client's runs on");
        assert_eq!(attached.vm.hub.inspect().executions.len(), 1);
        kept.kill();
        assert!(kept.collect().await.is_ok());
    });
}

#[test]
fn the_connection_lives_as_long_as_anything_that_came_from_it() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let cat = client.exec("cat", NONE).stdin(Stdin::piped());
        let mut cat = cat.spawn().await.unwrap();
        drop(client);
        let sink = cat.take_stdin().unwrap();
        sink.write("still").await.unwrap();
        sink.close().await.unwrap();
        assert_eq!(cat.collect().await.unwrap().stdout(), b"still");
        drop(sink);
        wait_until("the client's end", || attached.clients() == 0);
    });
}

#[test]
fn a_connect_that_is_dropped_leaves_no_client() {
    run(async {
        let attached = Attached::new();
        for _ in 0..50 {
            let connect = crate::Client::connect(&attached.path);
            let mut connect = std::pin::pin!(connect);
            let mut cx = Context::from_waker(Waker::noop());
            let _ = connect.as_mut().poll(&mut cx);
        }
        attached.client().await;
        wait_until("the clients' end", || attached.clients() == 0);
    });
}

#[test]
fn a_vm_that_ends_tells_its_clients_why() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let stall = client.exec("stall", NONE).stdin(Stdin::piped());
        let mut stall = stall.spawn().await.unwrap();
        let sink = stall.take_stdin().unwrap();
        attached.vm.hub.vm_gone("it burnt down");
        let error = stall.wait().await.unwrap_err();
        assert!(
            matches!(&error, ExecError::VmGone { reason } if reason == "it burnt down"),
            "{error}"
        );
        let late = sink.write("x").await.unwrap_err();
        assert!(matches!(late, WriteError::VmGone { .. }), "{late}");
        let next = client.exec("echo", ["x"]).await.unwrap_err();
        assert!(
            matches!(&next, ExecError::VmGone { reason } if reason == "it burnt down"),
            "{next}"
        );
    });
}

#[test]
fn output_that_came_before_the_vms_end_is_still_read() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let write = client.exec("write", ["50000", "0"]).spawn().await.unwrap();
        wait_until("its output", || {
            attached.vm.hub.inspect().executions[0].output_forwarded >= 50_000
        });
        attached.vm.hub.vm_gone("it burnt down");
        let mut parts = write.split();
        let mut all = Vec::new();
        let error = tokio::io::AsyncReadExt::read_to_end(&mut parts.stdout, &mut all)
            .await
            .unwrap_err();
        assert_eq!(all.len(), 50_000);
        assert!(error.to_string().contains("it burnt down"), "{error}");
    });
}

#[test]
fn a_server_that_is_dropped_ends_its_clients_and_leaves_no_file() {
    run(async {
        let mut attached = Attached::new();
        let client = attached.client().await;
        let mut stall = client.exec("stall", NONE).spawn().await.unwrap();
        let library = attached
            .vm
            .client
            .exec("stall", NONE)
            .spawn()
            .await
            .unwrap();
        drop(attached.server.take());
        assert!(!attached.path.exists());
        let error = stall.wait().await.unwrap_err();
        assert!(matches!(error, ExecError::VmGone { .. }), "{error}");
        let next = client.exec("echo", ["x"]).await.unwrap_err();
        assert!(matches!(next, ExecError::VmGone { .. }), "{next}");
        wait_until("the end of its execution", || {
            attached.vm.client.active() == 1
        });
        library.kill();
        assert!(library.collect().await.is_ok(), "the library's own goes on");
    });
}

/// Drops the server where it is woken, and says where that was once it is dropped.
struct DropServer(Mutex<Option<AttachServer>>, Mutex<Option<String>>);

impl Wake for DropServer {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
        let thread = std::thread::current();
        *self.1.lock().unwrap() = Some(thread.name().unwrap_or_default().to_owned());
    }
}

/// Ends the guest's connection behind the back of whoever waits for an execution; gives the name
/// of the thread on which that one's waker dropped the server.
async fn drop_by_waker() -> String {
    let mut attached = Attached::new();
    let mut villain = Villain::attach(&attached.path);
    let stall = attached.vm.client.exec("stall", NONE).spawn();
    let mut stall = stall.await.unwrap();
    let dropper = Arc::new(DropServer(
        Mutex::new(attached.server.take()),
        Mutex::default(),
    ));
    let waker = Waker::from(Arc::clone(&dropper));
    let mut wait = std::pin::pin!(stall.wait());
    let waiting = wait.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(waiting.is_pending());
    // The device notes the end; whoever steps next wakes.
    inside(|| attached.vm.hub.closed("the guest closed its port"));
    villain.begin(&["stall"]);
    villain.is_cut_off();
    wait_until("the removal", || !attached.path.exists());
    wait_until("the drop's end", || dropper.1.lock().unwrap().is_some());
    dropper.1.lock().unwrap().take().unwrap()
}

#[test]
fn a_waker_that_runs_on_the_servers_thread_may_drop_the_server() {
    run(async {
        // Most times it is the server's thread; the VM's may be faster.
        while drop_by_waker().await != "forebay-attach" {}
    });
}
