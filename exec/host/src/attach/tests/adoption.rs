//! Leaving an execution over the socket, and adopting one from there.

use std::time::Duration;

use forebay_exec_proto::frame::ToGuest;

use super::villain::Villain;
use super::{Attached, run, wait_until};
use crate::fake_guest::{FakeVm, pattern};
use crate::{
    AdoptError, Adopted, AttachInspector, Client, ExecError, ExecEvent, ExecHandle, ExecId, Limits,
    Signal, Stdin, TerminalSize,
};

pub(super) const NONE: [&str; 0] = [];

pub(super) async fn spawn(client: &Client, words: &[&str]) -> ExecHandle {
    let exec = client.exec(words[0], &words[1..]).stdin(Stdin::piped());
    exec.spawn().await.unwrap()
}

pub(super) async fn adopt(client: &Client, id: ExecId) -> Adopted {
    client.adopt(id).await.unwrap()
}

/// The client's own process ends.
pub(super) fn part(attached: &Attached, client: Client) {
    drop(client);
    wait_until("the end of its connection", || attached.clients() == 0);
}

/// The next piece of output.
async fn stdout(handle: &mut ExecHandle) -> Vec<u8> {
    loop {
        match handle.recv().await {
            Some(ExecEvent::Stdout(data)) => return data.to_vec(),
            Some(ExecEvent::Started { .. }) => {}
            other => panic!("no output: {other:?}"),
        }
    }
}

#[test]
fn what_a_client_leaves_outlives_its_connection_and_goes_on_byte_for_byte() {
    run(async {
        let attached = Attached::new();
        // Ids of the VM and of the client differ.
        attached.vm.client.exec("echo", NONE).await.unwrap();
        let client = attached.client().await;
        let input: Vec<u8> = (0..300_000).map(pattern).collect();
        let mut cat = spawn(&client, &["cat"]).await;
        let sink = cat.take_stdin().unwrap();
        sink.write_all(&input[..150_000]).await.unwrap();
        let mut read = Vec::new();
        while read.len() < 40_000 {
            read.extend(stdout(&mut cat).await);
        }
        // By now more has come to this client than it has read.
        cat.put_stdin_back(sink).unwrap();
        let id = cat.leave().await.unwrap();
        assert_eq!(id.get(), 2);
        part(&attached, client);
        assert_eq!(attached.vm.client.active(), 1);

        let client = attached.client().await;
        assert_eq!(client.adoptable().await.unwrap(), [id]);
        let Adopted {
            mut handle,
            progress,
            ..
        } = adopt(&client, id).await;
        assert_eq!(progress.stdin_accepted, 150_000);
        assert_eq!(progress.stdout_consumed, read.len() as u64);
        assert_eq!((handle.pid(), client.active()), (2, 1));
        assert_eq!(client.adoptable().await.unwrap(), []);
        let sink = handle.take_stdin().unwrap();
        let write = async {
            sink.write_all(&input[150_000..]).await.unwrap();
            sink.close().await.unwrap();
        };
        let (output, ()) = tokio::join!(handle.collect(), write);
        let output = output.unwrap();
        read.extend(output.stdout());
        assert_eq!(output.status().code(), Some(0));
        assert!(read == input, "every byte once and in order");
        wait_until("its slot", || attached.vm.client.active() == 0);
        attached.goes_on(&client).await;
    });
}

#[test]
fn nobody_notices_how_often_an_execution_changes_hands() {
    run(async {
        let attached = Attached::with_limits(Limits {
            output_limit: 40_000,
            output_chunk_size: 1000,
            input_limit: 5000,
            stdin_chunk_size: 700,
            ..Limits::default()
        });
        let input: Vec<u8> = (0..60_000).map(pattern).collect();
        let mut left = input.chunks(5000);
        let (mut written, mut read, mut turn) = (0, Vec::new(), 0);
        let first = attached.client().await;
        let mut id = spawn(&first, &["cat"]).await.leave().await.unwrap();
        while read.len() < input.len() {
            turn += 1;
            // Clients come and go; now and then the program itself has its turn.
            let client = if turn % 4 == 0 {
                attached.vm.client.clone()
            } else {
                attached.client().await
            };
            let Adopted {
                mut handle,
                progress,
                ..
            } = adopt(&client, id).await;
            assert_eq!(progress.stdin_accepted, written);
            assert_eq!(progress.stdout_consumed, read.len() as u64);
            if let Some(piece) = left.next() {
                let sink = handle.take_stdin().unwrap();
                sink.write_all(piece).await.unwrap();
                written += piece.len() as u64;
                handle.put_stdin_back(sink).unwrap();
            }
            while written - (read.len() as u64) > 10_000 || left.len() == 0 {
                read.extend(stdout(&mut handle).await);
                if read.len() == input.len() || turn % 3 == 0 {
                    break;
                }
            }
            id = handle.leave().await.unwrap();
        }
        assert!(read == input, "every byte once and in order");
        let mut handle = adopt(&first, id).await.handle;
        assert_eq!(handle.wait().await.unwrap().code(), Some(0));
    });
}

#[test]
fn what_is_left_waits_at_its_allowance_and_holds_its_slot_until_it_is_adopted() {
    run(async {
        let attached = Attached::with_limits(Limits {
            max_executions: 2,
            ..Limits::default()
        });
        let client = attached.client().await;
        let chatty = spawn(&client, &["chatter"]).await.leave().await.unwrap();
        let ended = spawn(&client, &["write", "3000", "5"]).await;
        let ended = ended.leave().await.unwrap();
        part(&attached, client);
        attached.vm.command(ended, |command| command.exit = Some(7));
        attached.vm.hub.ping(1);
        let limit = u64::from(attached.vm.hub.limits().output_limit);
        wait_until("the stall", || {
            let view = attached.vm.hub.inspect();
            limit - view.executions[0].output_received < 16_384 + 256
                && view.executions[1].phase == "ended"
        });
        let client = attached.client().await;
        let refused = client.exec("echo", NONE).await.unwrap_err();
        assert!(matches!(
            refused,
            ExecError::AtCapacity {
                limit: 2,
                active: 2,
                left: 2
            }
        ));
        let output = adopt(&client, ended).await.handle.collect().await.unwrap();
        assert_eq!(output.status().code(), Some(7));
        assert_eq!((output.stdout().len(), output.stderr().len()), (3000, 5));
        let handle = adopt(&client, chatty).await.handle;
        drop(handle);
        wait_until("both slots", || attached.vm.client.active() == 0);
        attached.goes_on(&client).await;
    });
}

#[test]
fn only_what_was_left_is_handed_over_and_only_once() {
    run(async {
        let attached = Attached::new();
        let (one, other) = (attached.client().await, attached.client().await);
        let own = spawn(&attached.vm.client, &["stall"]).await;
        let held = spawn(&one, &["stall"]).await;
        let detached = spawn(&attached.vm.client, &["stall"]).await.detach();
        let left = spawn(&one, &["stall"]).await.leave().await.unwrap();
        let id = |n| ExecId::new(n).unwrap();
        let refusal = async |n| other.adopt(id(n)).await.map(|_| ()).unwrap_err();
        // The second is the client's, by its id in the VM.
        for n in [own.id().get(), 2] {
            let refused = refusal(n).await;
            assert!(matches!(refused, AdoptError::Held { id: of } if of == id(n)));
        }
        let refused = refusal(detached.get()).await;
        assert!(matches!(refused, AdoptError::Discarded { .. }), "{refused}");
        let refused = refusal(99).await;
        assert!(matches!(refused, AdoptError::Unknown { .. }), "{refused}");
        let adopted = adopt(&other, left).await.handle;
        let refused = one.adopt(left).await.unwrap_err();
        assert!(matches!(refused, AdoptError::Held { .. }), "{refused}");
        // The end of the connection that adopted it is its own.
        drop((adopted, other));
        wait_until("its end", || attached.vm.client.active() == 3);
        attached.goes_on(&one).await;
        drop(held);
    });
}

#[test]
fn many_look_for_what_can_be_adopted_at_once() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let mut left = Vec::new();
        for n in 0..40 {
            let handle = spawn(&client, &["stall"]).await;
            if n % 2 == 0 {
                left.push(handle.leave().await.unwrap());
            } else {
                handle.detach();
            }
        }
        let (a, b, c) = tokio::join!(client.adoptable(), client.adoptable(), async {
            // One that is given up has asked, and its answer is nobody's.
            let look = client.adoptable();
            let _ = tokio::time::timeout(Duration::ZERO, look).await;
            client.adoptable().await
        });
        for found in [a, b, c] {
            assert_eq!(found.unwrap(), left);
        }
        let view = AttachInspector::connect(&attached.path)
            .unwrap()
            .look()
            .unwrap();
        let marked = view.executions.iter().filter(|exec| exec.adoptable);
        assert_eq!(marked.map(|exec| exec.id).collect::<Vec<_>>(), left);
    });
}

#[test]
fn an_adopted_execution_is_signalled_resized_and_killed_as_any() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let size = |rows, cols| TerminalSize { rows, cols };
        let exec = client.exec("stall", NONE).terminal(size(24, 80));
        let id = exec.spawn().await.unwrap().leave().await.unwrap();
        let mut handle = adopt(&client, id).await.handle;
        handle.resize(size(9, 7)).await.unwrap();
        handle.signal(Signal::USR1).await.unwrap();
        wait_until("both", || {
            attached.vm.command(id, |command| {
                command.sizes == [(9, 7)] && command.signals == [10]
            })
        });
        handle.kill();
        let status = handle.wait().await.unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL));
    });
}

#[test]
fn what_was_not_told_before_is_told_to_whoever_adopts_and_nothing_twice() {
    run(async {
        let vm = FakeVm::new();
        // The start of this one is told to nobody before the snapshot.
        let mut late = crate::fake_guest::ByHand::new(vm.client.exec("late", NONE).spawn());
        assert!(late.poll().is_pending());
        vm.settle();
        let attached = Attached::around(vm.restored());
        let client = attached.client().await;
        let [id] = client.adoptable().await.unwrap()[..] else {
            panic!("one survived");
        };
        let mut handle = adopt(&client, id).await.handle;
        assert_eq!(handle.pid(), 0);
        attached
            .vm
            .command(id, |command| command.hold_start = false);
        attached.vm.hub.ping(1);
        let event = handle.recv().await;
        assert!(
            matches!(event, Some(ExecEvent::Started { pid: 1 })),
            "{event:?}"
        );
        let id = handle.leave().await.unwrap();
        let mut handle = adopt(&attached.vm.client, id).await.handle;
        handle.kill();
        let event = handle.recv().await;
        assert!(matches!(event, Some(ExecEvent::Exited(_))), "{event:?}");
        // A stdin that broke is told once, too.
        let mut deaf = spawn(&client, &["deaf"]).await;
        drop(deaf.recv().await);
        let event = deaf.recv().await;
        assert!(matches!(event, Some(ExecEvent::StdinError(_))), "{event:?}");
        let id = deaf.leave().await.unwrap();
        let mut deaf = adopt(&client, id).await.handle;
        let refused = deaf.take_stdin().unwrap().write("x").await.unwrap_err();
        assert!(matches!(refused, crate::WriteError::Broken(_)), "{refused}");
        deaf.kill();
        let event = deaf.recv().await;
        assert!(matches!(event, Some(ExecEvent::Exited(_))), "{event:?}");
    });
}

#[test]
fn survivors_of_a_restore_are_adopted_over_the_socket_with_what_their_client_had_not_read() {
    run(async {
        let source = Attached::new();
        let client = source.client().await;
        let mut writes = spawn(&client, &["write", "90000", "100", "5"]).await;
        let read = stdout(&mut writes).await;
        wait_until("all to be on its way to the client", || {
            let view = source.vm.hub.inspect().executions.remove(0);
            view.output_released == read.len() as u64 + 256
                && (view.phase, view.output_held) == ("ended", 0)
        });
        let attached = Attached::around(source.vm.restored());
        let client = attached.client().await;
        let [id] = client.adoptable().await.unwrap()[..] else {
            panic!("one survived");
        };
        let Adopted {
            handle, progress, ..
        } = adopt(&client, id).await;
        assert_eq!(progress.stdout_consumed, read.len() as u64);
        let output = handle.collect().await.unwrap();
        let expected: Vec<u8> = (0..90_000).map(pattern).collect();
        assert!([&read[..], output.stdout()].concat() == expected);
        assert_eq!(
            (output.stderr().len(), output.status().code()),
            (100, Some(5))
        );
        // The source goes on for its own client.
        let output = writes.collect().await.unwrap();
        assert!([&read[..], output.stdout()].concat() == expected);
    });
}

#[test]
fn a_timeout_goes_on_after_its_client_and_is_told_as_one() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let limit = Duration::from_millis(300);
        let exec = client.exec("stall", NONE).timeout(limit);
        let id = exec.spawn().await.unwrap().leave().await.unwrap();
        part(&attached, client);
        wait_until("its end", || {
            attached.vm.hub.inspect().executions[0].phase == "ended"
        });
        let client = attached.client().await;
        let mut handle = adopt(&client, id).await.handle;
        let ended = handle.wait().await.unwrap_err();
        assert!(matches!(ended, ExecError::TimedOut { limit: of, .. } if of == limit));
    });
}

#[test]
fn whoever_asks_for_any_id_gets_what_was_left_and_harms_nobody() {
    run(async {
        let attached = Attached::new();
        let bystander = attached.client().await;
        let held = spawn(&bystander, &["stall"]).await;
        let left = spawn(&bystander, &["stall"]).await.leave().await.unwrap();
        let mut villain = Villain::attach(&attached.path);
        // Ids of nothing, that of somebody's, the one that it may have, and a leave of each.
        for n in 1..=100 {
            let of = match n {
                50 => left.get(),
                60 => 1,
                _ => n * 7 + 1,
            };
            villain.raw(ToGuest::Adopt.to_wire(), n, &of.to_le_bytes());
            villain.raw(ToGuest::Leave.to_wire(), n, &[0xa0]);
        }
        // It is cut off for what comes behind all of that.
        villain.raw(0x7f, 0, &[]);
        assert!(villain.is_cut_off().is_some());
        attached.goes_on(&bystander).await;
        assert_eq!(bystander.adoptable().await.unwrap(), [left]);
        wait_until("the slots of the others", || {
            attached.vm.client.active() == 2
        });
        drop(held);
    });
}
