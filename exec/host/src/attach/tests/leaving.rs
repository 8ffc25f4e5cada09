//! What stands in the way of leaving an execution over the socket, and what comes between.

use std::time::Duration;

use forebay_exec_proto::frame::ToGuest;
use forebay_exec_proto::host::Terminal;

use super::adoption::{NONE, adopt, part, spawn};
use super::villain::Villain;
use super::{Attached, run, wait_until};
use crate::fake_guest::pattern;
use crate::{
    Adopted, ExecError, ExecHandle, ExecId, LeaveError, Limits, Signal, Stdin, TerminalSize,
};

#[test]
fn what_is_not_left_when_the_connection_ends_is_killed() {
    run(async {
        let attached = Attached::with_limits(narrow());
        let client = attached.client().await;
        let mut stall = spawn(&client, &["stall"]).await;
        stall = write(stall, &[1; 1000]).await;
        let id = stall.leave().await.unwrap();
        // What was written and cannot go to the guest waits for the command.
        let stall = write(adopt(&client, id).await.handle, &[2; 1000]).await;
        assert_eq!(stall.leave().await.unwrap(), id);
        // There is no room for more of that.
        let Adopted {
            handle, progress, ..
        } = adopt(&client, id).await;
        assert_eq!(progress.stdin_accepted, 2000);
        let stall = write(handle, &[3; 1000]).await;
        let leave = tokio::time::timeout(Duration::from_millis(20), stall.leave());
        assert!(leave.await.is_err(), "it waits for the command");
        wait_until("its end", || attached.vm.client.active() == 0);
        assert_eq!(client.adoptable().await.unwrap(), []);
        attached.goes_on(&client).await;
    });
}

/// Little room for stdin.
fn narrow() -> Limits {
    Limits {
        input_limit: 1000,
        stdin_chunk_size: 400,
        ..Limits::default()
    }
}

/// Writes to its stdin, which stays open.
async fn write(mut handle: ExecHandle, bytes: &[u8]) -> ExecHandle {
    let sink = handle.take_stdin().unwrap();
    sink.write_all(bytes).await.unwrap();
    handle.put_stdin_back(sink).unwrap();
    handle
}

#[test]
fn stdin_that_a_command_has_not_read_is_left_with_it_byte_for_byte() {
    run(async {
        let attached = Attached::with_limits(narrow());
        let client = attached.client().await;
        let bytes: Vec<u8> = (0..2500).map(pattern).collect();
        let stall = write(spawn(&client, &["stall"]).await, &bytes[..900]).await;
        let id = stall.leave().await.unwrap();
        let stall = write(adopt(&client, id).await.handle, &bytes[900..1800]).await;
        stall.leave().await.unwrap();
        part(&attached, client);
        let client = attached.client().await;
        let mut stall = adopt(&client, id).await.handle;
        attached.vm.command(id, |command| command.reads = true);
        attached.vm.hub.ping(1);
        let sink = stall.take_stdin().unwrap();
        sink.write_all(&bytes[1800..]).await.unwrap();
        sink.close().await.unwrap();
        wait_until("all of it", || {
            attached.vm.command(id, |c| c.received == bytes && c.eof)
        });
    });
}

#[test]
fn a_deadline_ends_what_waits_to_be_left_and_is_told_as_one() {
    run(async {
        let attached = Attached::with_limits(narrow());
        let client = attached.client().await;
        let limit = Duration::from_millis(500);
        let exec = client.exec("stall", NONE).stdin(Stdin::piped());
        let stall = exec.timeout(limit).spawn().await.unwrap();
        let id = write(stall, &[1; 1000]).await.leave().await.unwrap();
        let stall = write(adopt(&client, id).await.handle, &[2; 1000]).await;
        stall.leave().await.unwrap();
        // The command would have to read, which it does not.
        let stall = write(adopt(&client, id).await.handle, &[3; 1000]).await;
        let mut stall = match stall.leave().await {
            Ok(id) => adopt(&client, id).await.handle,
            // Its end was known first.
            Err(refused) => refused.into_handle(),
        };
        let ended = stall.wait().await.unwrap_err();
        assert!(matches!(ended, ExecError::TimedOut { limit: of, .. } if of == limit));
    });
}

#[test]
fn what_waits_for_a_reader_is_given_back_instead_of_left() {
    run(async {
        let attached = Attached::with_limits(Limits {
            output_limit: 40_000,
            output_chunk_size: 1000,
            ..Limits::default()
        });
        let client = attached.client().await;
        let input: Vec<u8> = (0..300_000).map(pattern).collect();
        let exec = client.exec("cat", NONE).stdin(Stdin::bytes(input.clone()));
        let cat = exec.spawn().await.unwrap();
        let refused = cat.leave().await.unwrap_err();
        assert!(matches!(refused, LeaveError::Unread(_)), "{refused}");
        let output = refused.into_handle().collect().await.unwrap();
        assert!(output.stdout() == input);
    });
}

#[test]
fn what_its_client_has_killed_is_not_left_and_ends_as_it_ends() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let killed = spawn(&client, &["write", "100", "0"]).await;
        killed.kill();
        let refused = killed.leave().await.unwrap_err();
        assert!(matches!(refused, LeaveError::Ended(_)), "{refused}");
        let output = refused.into_handle().collect().await.unwrap();
        assert_eq!(output.status().signal(), Some(Signal::KILL));
        // Nor if it is asked for all the same.
        let mut villain = Villain::attach(&attached.path);
        let id = villain.start(&["write", "100", "0"]);
        villain.raw(ToGuest::Kill.to_wire(), id.get(), &[]);
        villain.raw(ToGuest::Leave.to_wire(), id.get(), &[0xa0]);
        villain.ended(id);
        let ended = villain.terminal(id);
        assert!(
            matches!(&ended, Some(Terminal::Exited(status)) if status.signal == Some(9)),
            "{ended:?}"
        );
    });
}

#[test]
fn a_leave_waits_for_what_was_written_and_loses_nothing_of_it() {
    run(async {
        let attached = Attached::with_limits(Limits {
            input_limit: 1000,
            stdin_chunk_size: 300,
            ..Limits::default()
        });
        let client = attached.client().await;
        let bytes: Vec<u8> = (0..3500).map(pattern).collect();
        let exec = client
            .exec("stall", NONE)
            .stdin(Stdin::bytes(bytes.clone()));
        let stall = exec.spawn().await.unwrap();
        let vm_id = ExecId::new(1).unwrap();
        let (id, ()) = tokio::join!(stall.leave(), async {
            tokio::task::yield_now().await;
            attached.vm.command(vm_id, |command| command.reads = true);
            attached.vm.hub.ping(1);
        });
        assert_eq!(id.unwrap(), vm_id);
        part(&attached, client);
        wait_until("all of it", || {
            attached.vm.command(vm_id, |c| c.received == bytes && c.eof)
        });
    });
}

#[test]
fn what_a_client_says_before_it_leaves_reaches_the_command() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        for _ in 0..20 {
            let exec = client.exec("stall", NONE);
            let handle = exec.terminal(TerminalSize { rows: 24, cols: 80 });
            let handle = handle.spawn().await.unwrap();
            let size = TerminalSize { rows: 7, cols: 9 };
            handle.signal(Signal::USR1).await.unwrap();
            handle.resize(size).await.unwrap();
            handle.signal(Signal::USR2).await.unwrap();
            let id = handle.leave().await.unwrap();
            wait_until("all that was said", || {
                attached.vm.command(id, |command| {
                    command.signals == [10, 12] && command.sizes == [(7, 9)]
                })
            });
        }
    });
}

#[test]
fn an_end_that_comes_first_is_told_with_the_handle_given_back() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let mut ended = spawn(&client, &["write", "10", "0", "6"]).await;
        let mut control = Some(ended.control());
        let refused = ended.leave().await.unwrap_err();
        assert!(matches!(refused, LeaveError::Shared(_)), "{refused}");
        ended = refused.into_handle();
        drop(control.take());
        wait_until("its end", || {
            attached.vm.hub.inspect().executions[0].phase == "ended"
        });
        // Whether its client has heard of that by now or not: it has all of it, or the next one has.
        match ended.leave().await {
            Err(LeaveError::Ended(handle)) => {
                let output = handle.collect().await.unwrap();
                assert_eq!(
                    (output.stdout().len(), output.status().code()),
                    (10, Some(6))
                );
            }
            Ok(id) => {
                let output = adopt(&client, id).await.handle.collect().await.unwrap();
                assert_eq!(
                    (output.stdout().len(), output.status().code()),
                    (10, Some(6))
                );
            }
            Err(other) => panic!("{other}"),
        }
        wait_until("its slot", || attached.vm.client.active() == 0);
    });
}
