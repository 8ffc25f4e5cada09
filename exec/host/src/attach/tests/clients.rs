//! What a client of the socket sees: the library's own API.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use super::{Attached, run, wait_until};
use crate::attach::CLIENTS_MAX;
use crate::fake_guest::{FakeVm, pattern};
use crate::{
    AttachSocket, Client, ConnectError, ExecError, ExecEvent, FailureKind, Limits, Signal, Stdin,
    TerminalSize,
};

const NONE: [&str; 0] = [];

#[test]
fn the_api_is_the_librarys() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        assert_eq!(client.limits(), attached.vm.client.limits());

        let out = client.exec("write", ["3", "2", "7"]).await.unwrap();
        assert_eq!(out.status().code(), Some(7));
        assert_eq!((out.stdout().len(), out.stderr().len()), (3, 2));

        let missing = client.exec("nosuch", NONE).await.unwrap_err();
        let ExecError::NotStarted(failure) = missing else {
            panic!("{missing}");
        };
        assert_eq!(failure.kind, FailureKind::NotFound);
        assert_eq!(failure.errno, Some(2));

        let mut stalled = client
            .exec("stall", NONE)
            .terminal(TerminalSize::default())
            .spawn()
            .await
            .unwrap();
        stalled.signal(Signal::USR1).await.unwrap();
        wait_until("the signal", || {
            let id = attached.vm.hub.inspect().executions[0].id;
            attached.vm.command(id, |c| c.signals.contains(&10))
        });
        stalled
            .resize(TerminalSize {
                rows: 50,
                cols: 132,
            })
            .await
            .unwrap();
        wait_until("the size", || {
            let id = attached.vm.hub.inspect().executions[0].id;
            attached.vm.command(id, |c| c.sizes == [(50, 132)])
        });
        stalled.signal(Signal::TERM).await.unwrap();
        let ended = stalled.wait().await.unwrap();
        assert_eq!(ended.signal(), Some(Signal::TERM));

        let killed = client.exec("stall", NONE).spawn().await.unwrap();
        killed.kill();
        let out = killed.collect().await.unwrap();
        assert_eq!(out.status().signal(), Some(Signal::KILL));

        let fed = client.exec("cat", NONE).stdin(Stdin::bytes("abc"));
        assert_eq!(fed.await.unwrap().stdout(), b"abc");
    });
}

#[test]
fn a_command_that_names_no_user_runs_as_the_vms_own_do() {
    run(async {
        let vm = FakeVm::new();
        let owner = vm.client.clone().with_user("app:staff");
        let attached = Attached::serving(vm, owner);
        let client = attached.client().await;
        for (named, expected) in [(None, "app:staff"), (Some("0"), "0")] {
            let mut exec = client.exec("stall", NONE);
            if let Some(user) = named {
                exec = exec.user(user);
            }
            let stalled = exec.spawn().await.unwrap();
            let id = attached.vm.hub.inspect().executions[0].id;
            let user = attached.vm.command(id, |c| c.request.user.clone());
            assert_eq!(user.unwrap().as_slice(), expected.as_bytes());
            stalled.kill();
            stalled.collect().await.unwrap();
        }
    });
}

#[test]
fn events_come_in_their_order_and_a_stdin_that_is_closed_is_told() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let mut deaf = client
            .exec("deaf", NONE)
            .stdin(Stdin::piped())
            .spawn()
            .await
            .unwrap();
        let sink = deaf.take_stdin().unwrap();
        assert!(matches!(deaf.recv().await, Some(ExecEvent::Started { .. })));
        let Some(ExecEvent::StdinError(error)) = deaf.recv().await else {
            panic!("no stdin error");
        };
        assert_eq!(error.name, "EPIPE");
        assert!(sink.write("late").await.is_err());
        deaf.kill();
        assert!(matches!(deaf.recv().await, Some(ExecEvent::Exited(_))));
        assert!(deaf.recv().await.is_none());
    });
}

#[test]
fn eight_mebibytes_pass_both_ways_at_once() {
    run(async {
        let attached = Attached::new();
        full_duplex(&attached.client().await, 8 << 20).await;
    });
}

/// Sends `len` bytes through `cat` and compares what comes back.
async fn full_duplex(client: &Client, len: usize) {
    let data: Vec<u8> = (0..len).map(pattern).collect();
    let cat = client.exec("cat", NONE).stdin(Stdin::piped());
    let mut parts = cat.spawn().await.unwrap().split();
    let sink = parts.stdin.take().unwrap();
    let mut back = Vec::new();
    let feed = async {
        sink.write_all(&data).await.unwrap();
        sink.close().await.unwrap();
    };
    let (fed, read) = tokio::join!(feed, parts.stdout.read_to_end(&mut back));
    assert_eq!((fed, read.unwrap()), ((), len));
    assert!(back == data, "other bytes came back");
    assert!(parts.exit.wait().await.unwrap().success());
}

#[test]
fn each_client_has_ids_of_its_own_and_sees_only_its_own() {
    run(async {
        let attached = Attached::new();
        let (one, two) = (attached.client().await, attached.client().await);
        let first = one.exec("cat", NONE).stdin(Stdin::piped());
        let second = two.exec("cat", NONE).stdin(Stdin::piped());
        let (mut first, mut second) = (first.spawn().await.unwrap(), second.spawn().await.unwrap());
        assert_eq!(first.id(), second.id(), "both begin to count at one");
        assert_eq!((one.active(), attached.vm.client.active()), (1, 2));
        for (handle, word) in [(&mut first, "one"), (&mut second, "two")] {
            let sink = handle.take_stdin().unwrap();
            sink.write(word).await.unwrap();
            sink.close().await.unwrap();
        }
        assert_eq!(first.collect().await.unwrap().stdout(), b"one");
        assert_eq!(second.collect().await.unwrap().stdout(), b"two");
    });
}

// B32
#[test]
fn a_hundred_and_twenty_eight_executions_of_four_clients_are_not_mixed_up() {
    run(async {
        let attached = Attached::new();
        let mut running = Vec::new();
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(attached.client().await);
        }
        for k in 0..128 {
            let lines: String = (0..2000).map(|i| format!("{k}:{i}\n")).collect();
            let command = clients[k % 4].exec("echo", [&lines]);
            running.push((command.spawn().await.unwrap(), lines));
        }
        let refused = clients[0].exec("echo", ["x"]).await.unwrap_err();
        assert!(
            matches!(
                refused,
                ExecError::AtCapacity {
                    limit: 128,
                    active: 128,
                    ..
                }
            ),
            "{refused}"
        );
        // Read last first, so that most have to wait for their reader.
        while let Some((handle, lines)) = running.pop() {
            let out = handle.collect().await.unwrap();
            assert!(out.stdout() == lines.as_bytes(), "bytes of another");
        }
        wait_until("the slots", || attached.vm.client.active() == 0);
    });
}

#[test]
fn one_count_of_executions_holds_for_library_and_clients() {
    run(async {
        let attached = Attached::with_limits(Limits {
            max_executions: 3,
            ..Limits::default()
        });
        let (one, two) = (attached.client().await, attached.client().await);
        let library = attached
            .vm
            .client
            .exec("stall", NONE)
            .spawn()
            .await
            .unwrap();
        let first = one.exec("stall", NONE).spawn().await.unwrap();
        let second = two.exec("stall", NONE).spawn().await.unwrap();
        for client in [&attached.vm.client, &one, &two] {
            let refused = client.exec("stall", NONE).spawn().await.unwrap_err();
            assert!(
                matches!(
                    refused,
                    ExecError::AtCapacity {
                        limit: 3,
                        active: 3,
                        ..
                    }
                ),
                "{refused}"
            );
        }
        drop(first);
        wait_until("the slot", || attached.vm.client.active() == 2);
        let third = two.exec("stall", NONE).spawn().await.unwrap();
        drop((library, second, third));
        wait_until("the slots", || attached.vm.client.active() == 0);
    });
}

#[test]
fn admission_is_atomic_over_clients_that_start_at_once() {
    run(async {
        const LIMIT: u32 = 5;
        let attached = Attached::with_limits(Limits {
            max_executions: LIMIT,
            ..Limits::default()
        });
        let (one, two) = (attached.client().await, attached.client().await);
        for _ in 0..20 {
            let starts = [&one, &two, &attached.vm.client]
                .into_iter()
                .flat_map(|c| (0..4).map(|_| tokio::spawn(c.exec("stall", NONE).spawn())));
            let mut admitted = Vec::new();
            for start in starts.collect::<Vec<_>>() {
                match start.await.unwrap() {
                    Ok(handle) => admitted.push(handle),
                    Err(ExecError::AtCapacity { limit: LIMIT, .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            assert_eq!(admitted.len(), 5);
            drop(admitted);
            wait_until("the slots", || attached.vm.client.active() == 0);
        }
    });
}

#[test]
fn what_was_read_to_its_end_makes_room_at_once() {
    run(async {
        let attached = Attached::with_limits(Limits {
            max_executions: 1,
            ..Limits::default()
        });
        let client = attached.client().await;
        for _ in 0..200 {
            let out = client.exec("write", ["40000", "10", "0"]).await.unwrap();
            assert_eq!(out.stdout().len(), 40_000);
        }
    });
}

#[test]
fn many_clients_are_served_and_one_too_many_is_told_so() {
    run(async {
        let attached = Attached::new();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS_MAX {
            clients.push(attached.client().await);
        }
        let refused = Client::connect(&attached.path).await.unwrap_err();
        assert!(
            matches!(refused, ConnectError::TooManyClients { most: 64, .. }),
            "{refused}"
        );
        for client in &clients {
            assert!(client.exec("echo", ["x"]).await.is_ok());
        }
        clients.pop();
        wait_until("the client's end", || attached.clients() < CLIENTS_MAX);
        attached.client().await;
    });
}

#[test]
fn whoever_connects_before_the_socket_is_served_waits() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vm.sock");
        let socket = AttachSocket::bind(&path).unwrap();
        // More than the backlog holds.
        let early: Vec<_> = (0..CLIENTS_MAX + 16)
            .map(|_| {
                let path = path.clone();
                tokio::spawn(async move { Client::connect(path).await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        let vm = FakeVm::new();
        let _loop = vm.spawn_loop();
        let _server = socket.serve(vm.client.clone()).unwrap();
        for connect in early {
            match connect.await.unwrap() {
                Ok(()) | Err(ConnectError::TooManyClients { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    });
}

#[test]
fn where_no_vm_listens_the_error_says_what_is_there_instead() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nobody");
        let missing = Client::connect(&path).await.unwrap_err();
        assert!(
            matches!(
                &missing,
                ConnectError::Unreachable {
                    kind: std::io::ErrorKind::NotFound,
                    ..
                }
            ),
            "{missing}"
        );
        let long = Client::connect("x".repeat(200)).await.unwrap_err();
        assert!(
            matches!(long, ConnectError::Path { max: 107, .. }),
            "{long}"
        );
        let other = UnixListener::bind(&path).unwrap();
        let greeter = std::thread::spawn(move || {
            let (mut stream, _) = other.accept().unwrap();
            stream.write_all(&[b'x'; 64]).unwrap();
        });
        let foreign = Client::connect(&path).await.unwrap_err();
        assert!(matches!(foreign, ConnectError::Foreign { .. }), "{foreign}");
        greeter.join().unwrap();
    });
}

#[test]
fn a_distant_client_loses_nothing() {
    for delay in [1, 10] {
        run(async {
            let attached = Attached::new();
            let near = attached.path.with_extension("near");
            delayed(&attached.path, &near, Duration::from_millis(delay));
            let client = Client::connect(&near).await.unwrap();
            full_duplex(&client, 1 << 20).await;
            for n in 0..10 {
                let word = n.to_string();
                let out = client.exec("echo", [&word]).await.unwrap();
                assert_eq!(out.stdout(), word.as_bytes());
            }
        });
    }
}

/// A socket at `near` whose bytes reach `far` later, and back.
fn delayed(far: &Path, near: &Path, delay: Duration) {
    let listener = UnixListener::bind(near).unwrap();
    let far = far.to_owned();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = UnixStream::connect(far).unwrap();
        for (mut from, mut to) in [
            (client.try_clone().unwrap(), server.try_clone().unwrap()),
            (server, client),
        ] {
            std::thread::spawn(move || {
                let mut buf = vec![0; 64 * 1024];
                while let Ok(n @ 1..) = from.read(&mut buf) {
                    std::thread::sleep(delay);
                    if to.write_all(&buf[..n]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    });
}
