//! A connection's end is told to the client, and becomes the text of its errors.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use forebay_exec_proto::guest::{Conn, Event, Transmit};
use forebay_exec_proto::{FRAME_MAX, Limits, Ready};

use super::{Attached, run};
use crate::attach::last_words;
use crate::attach::preamble::Preamble;
use crate::{Client, ConnectError, ExecError};

const NONE: [&str; 0] = [];

#[test]
fn a_vm_that_has_ended_refuses_whoever_connects_with_its_reason() {
    run(async {
        let attached = Attached::new();
        attached.vm.hub.vm_gone("it burnt down");
        // Many times, since whether its greeting meets a closed socket is a race.
        for _ in 0..50 {
            let error = Client::connect(&attached.path).await.unwrap_err();
            assert!(
                matches!(&error, ConnectError::Closed { reason, .. } if reason == "it burnt down"),
                "{error}"
            );
        }
    });
}

#[test]
fn the_vms_reason_reaches_clients_without_executions_too() {
    run(async {
        let mut attached = Attached::new();
        let client = attached.client().await;
        let mut stall = client.exec("stall", NONE).spawn().await.unwrap();
        let idle = attached.client().await;
        attached.vm.hub.vm_gone("it burnt down");
        drop(attached.server.take());
        let errors = [
            stall.wait().await.unwrap_err(),
            idle.exec("echo", ["x"]).await.unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(&error, ExecError::VmGone { reason } if reason == "it burnt down"),
                "{error}"
            );
        }
    });
}

#[test]
fn a_server_that_goes_alone_says_so() {
    run(async {
        let mut attached = Attached::new();
        let client = attached.client().await;
        let mut stall = client.exec("stall", NONE).spawn().await.unwrap();
        attached.server.take().unwrap().close("gone fishing");
        let error = stall.wait().await.unwrap_err();
        assert!(
            matches!(&error, ExecError::VmGone { reason } if reason == "gone fishing"),
            "{error}"
        );
    });
}

/// A server that takes one client at `path` and then does with it what `then` says.
fn server(path: &Path, then: impl FnOnce(UnixStream) + Send + 'static) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let welcome = Preamble::Welcome(Limits::default()).encode();
        stream.write_all(&welcome).unwrap();
        let mut conn = Conn::for_relay();
        let mut buf = vec![0; FRAME_MAX];
        loop {
            let n = stream.read(&mut buf).unwrap();
            assert!(n > 0, "the client left");
            conn.handle_bytes(&buf[..n]).unwrap();
            if let Some(Event::Bootstrap(_)) = conn.poll_event() {
                break;
            }
        }
        conn.ready(Ready::default());
        while let Transmit::Frame(n) = conn.poll_transmit(&mut buf) {
            stream.write_all(&buf[..n]).unwrap();
        }
        then(stream);
    });
}

#[test]
fn what_the_server_says_last_is_the_error_whatever_else_fails() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..50 {
            let path = directory.path().join(round.to_string());
            server(&path, |mut stream| {
                // In pieces, and with bytes of the client unread.
                let words = last_words::encode("a rule was broken");
                let (begin, end) = words.split_at(20);
                stream.write_all(begin).unwrap();
                stream.write_all(end).unwrap();
            });
            let reason = match Client::connect(&path).await {
                Ok(client) => match client.exec("echo", ["x"]).await.unwrap_err() {
                    ExecError::VmGone { reason } => reason,
                    other => panic!("{other}"),
                },
                // So soon that it has not even become a client.
                Err(ConnectError::Closed { reason, .. }) => reason,
                Err(other) => panic!("{other}"),
            };
            assert_eq!(reason, "a rule was broken");
        }
    });
}

#[test]
fn a_server_that_reads_no_more_ends_the_connection() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let (keep, kept) = std::sync::mpsc::channel();
        server(&path, move |stream| {
            stream.shutdown(Shutdown::Read).unwrap();
            keep.send(stream).unwrap();
        });
        let client = Client::connect(&path).await.unwrap();
        let _open = kept.recv().unwrap();
        let error = client.exec("echo", ["x"]).await.unwrap_err();
        assert!(matches!(error, ExecError::VmGone { .. }), "{error}");
    });
}

#[test]
fn last_words_are_cut_between_characters() {
    let frame = last_words::encode(&"€".repeat(2000));
    let head = frame.first_chunk().unwrap();
    let len = last_words::announced(head).unwrap();
    assert_eq!((len, frame.len()), (4095, 16 + 4095));
    assert!(std::str::from_utf8(&frame[16..]).is_ok());
}
