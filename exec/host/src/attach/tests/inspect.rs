//! Looking at a VM by its socket.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;

use super::{Attached, run, wait_until};
use crate::attach::preamble;
use crate::fake_guest::{ByHand, FakeVm};
use crate::{AttachInspector, ConnectError, ExecError, Stdin};

const NONE: [&str; 0] = [];

#[test]
fn a_look_shows_the_executions_of_everybody_page_by_page() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let mut held = Vec::new();
        for n in 0..40 {
            let from = if n % 2 == 0 {
                &client
            } else {
                &attached.vm.client
            };
            let stall = from.exec("stall", NONE).stdin(Stdin::piped());
            held.push(stall.spawn().await.unwrap());
        }
        let mut inspector = AttachInspector::connect(&attached.path).unwrap();
        for _ in 0..2 {
            let view = inspector.look().unwrap();
            assert_eq!((view.state, view.active, view.bounded), ("ready", 40, true));
            let ids: Vec<u64> = view.executions.iter().map(|exec| exec.id.get()).collect();
            assert_eq!(ids, (1..=40).collect::<Vec<_>>());
            let programs: BTreeSet<_> = view.executions.iter().map(|e| &*e.program).collect();
            assert_eq!(programs, BTreeSet::from(["stall"]));
            assert!(view.executions.iter().all(|exec| exec.pid.is_some()));
        }
        attached.goes_on(&client).await;
    });
}

#[test]
fn a_look_says_who_is_slow() {
    run(async {
        let attached = Attached::new();
        let unread = attached.vm.client.exec("chatter", NONE);
        let unread = unread.spawn().await.unwrap();
        let client = attached.client().await;
        let deaf = client.exec("stall", NONE).stdin(Stdin::piped());
        let mut deaf = deaf.spawn().await.unwrap();
        let sink = deaf.take_stdin().unwrap();
        let mut write = ByHand::new(sink.write(vec![0; 1 << 20]));
        assert!(write.poll().is_pending());
        let mut inspector = AttachInspector::connect(&attached.path).unwrap();
        // The client counts its own executions by other ids.
        let vm_id = attached.vm.hub.inspect().executions[1].id;
        let mut seen = || {
            let executions = inspector.look().unwrap().executions;
            let of = |id| executions.iter().find(|exec| exec.id == id).unwrap();
            (of(unread.id()).clone(), of(vm_id).clone())
        };
        wait_until("the stalls", || {
            let (unread, deaf) = seen();
            (unread.output_waits_for, deaf.stdin_waits_for) == ("application", "command")
                && !unread.output_stalls.application.is_zero()
                && !deaf.stdin_stalls.command.is_zero()
        });
        let (_, view) = seen();
        assert_eq!((view.stdin_sent, view.stdin_window), (65_536, 0));
    });
}

#[test]
fn a_look_is_answered_at_the_end_of_a_vm_by_the_end_of_the_connection() {
    run(async {
        let mut attached = Attached::new();
        let mut inspector = AttachInspector::connect(&attached.path).unwrap();
        inspector.look().unwrap();
        drop(attached.server.take());
        for _ in 0..2 {
            let error = inspector.look().unwrap_err();
            assert!(matches!(error, ConnectError::Closed { .. }), "{error}");
        }
    });
}

#[test]
fn something_else_that_listens_there_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(&[b'x'; preamble::LEN]).unwrap();
        let _ = socket.read(&mut [0; 64]);
    });
    let error = AttachInspector::connect(&path).unwrap_err();
    assert!(matches!(error, ConnectError::Foreign { .. }), "{error}");
    server.join().unwrap();
    let error = AttachInspector::connect(directory.path().join("none")).unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}

#[test]
fn a_client_of_a_legacy_guests_vm_sees_it_and_runs_nothing_there() {
    run(async {
        let attached = Attached::around(FakeVm::legacy());
        let client = attached.client().await;
        let refused = client.exec("echo", ["x"]).await.unwrap_err();
        let ExecError::NotStarted(failure) = refused else {
            panic!("{refused}");
        };
        assert!(failure.message.contains("too old"), "{failure}");
        assert_eq!(attached.vm.client.active(), 0);
        let mut inspector = AttachInspector::connect(&attached.path).unwrap();
        assert!(!inspector.look().unwrap().bounded);
    });
}
