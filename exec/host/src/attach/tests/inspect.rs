//! Looking at a VM by its socket.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_exec_proto::guest::{self, Event, Transmit};
use forebay_exec_proto::host::Inspection;
use forebay_exec_proto::{ExecId, FRAME_MAX, Ready};
use tempfile::TempDir;

use super::{Attached, run, wait_until};
use crate::attach::preamble::{self, Preamble};
use crate::fake_guest::{ByHand, FakeVm};
use crate::{AttachInspector, ConnectError, ExecError, ExecView, Limits, Stdin};

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

/// A server that answers each question with what `page` makes of the id it is asked to go on
/// from; joins with the number of questions.
fn scripted(page: fn(u64) -> Inspection) -> (TempDir, PathBuf, JoinHandle<usize>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("scripted.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let welcome = Preamble::Welcome(Limits::default()).encode();
        socket.write_all(&welcome).unwrap();
        let (mut conn, mut questions) = (guest::Conn::for_relay(), 0);
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = socket.read(&mut buf) {
            conn.handle_bytes(&buf[..n]).unwrap();
            while let Some(event) = conn.poll_event() {
                if let Event::Bootstrap(_) = event {
                    conn.ready(Ready::default());
                }
            }
            if let Some(after) = conn.poll_inspect() {
                questions += 1;
                conn.inspection(&page(after));
            }
            let mut out = [0; FRAME_MAX];
            while let Transmit::Frame(n) = conn.poll_transmit(&mut out) {
                if socket.write_all(&out[..n]).is_err() {
                    return questions;
                }
            }
        }
        questions
    });
    (directory, path, server)
}

/// A page with these executions.
fn page(ids: &[u64], more: bool) -> Inspection {
    let vm = FakeVm::new();
    let stall = vm.run(vm.client.exec("stall", NONE).spawn()).unwrap();
    let mut view = vm.hub.inspect();
    let exec = view.executions.pop().unwrap();
    drop(stall);
    view.executions.extend(ids.iter().map(|id| ExecView {
        id: ExecId::new(*id).unwrap(),
        ..exec.clone()
    }));
    Inspection { view, more }
}

#[test]
fn pages_whose_ids_do_not_rise_break_the_protocol() {
    type Page = fn(u64) -> Inspection;
    let pages: [(Page, usize); 6] = [
        (|_| page(&[1, 2, 2], false), 1),
        (|_| page(&[2, 1], true), 1),
        (|_| page(&[], true), 1),
        // The second page stays at its place, goes back, or begins with the last of the first.
        (|_| page(&[1, 2], true), 2),
        (|after| page(&[5 - after.min(4)], true), 2),
        (|after| page(&[after.max(1), after + 2], true), 2),
    ];
    for (number, (page, expected)) in pages.into_iter().enumerate() {
        let (_directory, path, server) = scripted(page);
        let mut inspector = AttachInspector::connect(&path).unwrap();
        let error = inspector.look().unwrap_err().to_string();
        assert!(error.contains("ids do not rise"), "{number}: {error}");
        // Nothing more is asked of such a server.
        let error = inspector.look().unwrap_err().to_string();
        assert!(error.contains("earlier look"), "{number}: {error}");
        drop(inspector);
        assert_eq!(server.join().unwrap(), expected, "{number}");
    }
}

#[test]
fn an_execution_that_began_between_two_pages_belongs_to_the_second() {
    let (_directory, path, server) = scripted(|after| match after {
        0 => page(&[1, 4], true),
        _ => page(&[7, 9], false),
    });
    let view = AttachInspector::connect(&path).unwrap().look().unwrap();
    let ids: Vec<u64> = view.executions.iter().map(|exec| exec.id.get()).collect();
    assert_eq!(ids, [1, 4, 7, 9]);
    assert_eq!(server.join().unwrap(), 2);
}

#[test]
fn a_client_gives_up_a_server_whose_list_of_what_can_be_adopted_does_not_end() {
    let pages: [fn(u64) -> Inspection; 3] = [
        |after| page(&(after + 1..after + 17).collect::<Vec<_>>(), true),
        |_| page(&[4], true),
        |_| page(&[], true),
    ];
    for pages in pages {
        let (_directory, path, server) = scripted(pages);
        run(async {
            let client = crate::Client::connect(&path).await.unwrap();
            let error = client.adoptable().await.unwrap_err();
            assert!(matches!(error, crate::AdoptError::Refused(_)), "{error}");
        });
        server.join().unwrap();
    }
}

#[test]
fn a_server_that_always_says_more_is_given_up() {
    // Slowly, by the time; quickly, by the number.
    let slowly: fn(u64) -> Inspection = |after| {
        std::thread::sleep(Duration::from_millis(10));
        page(&[after + 1], true)
    };
    let (_directory, path, server) = scripted(slowly);
    let patience = Duration::from_millis(500);
    let mut inspector = AttachInspector::connect_within(&path, patience).unwrap();
    let error = inspector.look().unwrap_err().to_string();
    assert!(error.contains("in time"), "{error}");
    drop(inspector);
    server.join().unwrap();

    let quickly: fn(u64) -> Inspection = |after| {
        let ids: Vec<_> = (after + 1..=after + 32).collect();
        page(&ids, true)
    };
    let (_directory, path, server) = scripted(quickly);
    let mut inspector = AttachInspector::connect_within(&path, super::CEILING).unwrap();
    let error = inspector.look().unwrap_err().to_string();
    assert!(error.contains("more executions"), "{error}");
    drop(inspector);
    server.join().unwrap();
}

#[test]
fn a_server_that_trickles_its_greeting_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slow.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // Each byte comes within the patience, all of them do not.
        let welcome = Preamble::Welcome(Limits::default()).encode();
        for byte in welcome {
            std::thread::sleep(Duration::from_millis(200));
            if socket.write_all(&[byte]).is_err() {
                return false;
            }
        }
        true
    });
    let patience = Duration::from_millis(500);
    let error = AttachInspector::connect_within(&path, patience).unwrap_err();
    assert!(error.to_string().contains("in time"), "{error}");
    assert!(!server.join().unwrap(), "it was waited for to the end");
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
