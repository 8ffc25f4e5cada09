use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fake_guest::{ByHand, FakeVm, pattern};
use crate::{ExecHandle, ExecSink, Limits, Stdin, WriteError};

fn spawn(vm: &Arc<FakeVm>, program: &str) -> ExecHandle {
    vm.run(
        vm.client
            .exec(program, [""; 0])
            .stdin(Stdin::piped())
            .spawn(),
    )
    .unwrap()
}

/// A command that leaves its stdin alone until the test lets it read, and its sink.
fn blocked(vm: &Arc<FakeVm>) -> (ExecHandle, ExecSink) {
    let mut handle = spawn(vm, "drain");
    vm.command(handle.id(), |command| command.reads = false);
    vm.command(handle.id(), |command| command.exit = None);
    let sink = handle.take_stdin().unwrap();
    (handle, sink)
}

fn received(vm: &FakeVm, handle: &ExecHandle) -> Vec<u8> {
    vm.command(handle.id(), |command| command.reads = true);
    vm.settle();
    vm.command(handle.id(), |command| command.received.clone())
}

#[test]
fn a_write_is_ready_when_its_last_byte_was_handed_over() {
    let vm = FakeVm::new();
    let (handle, sink) = blocked(&vm);
    let mut fits = ByHand::new(sink.write(vec![1; 65_536]));
    assert!(fits.poll().is_pending(), "the channel has not taken it yet");
    vm.settle();
    assert!(fits.woken.is_set());
    assert!(
        matches!(fits.poll(), Poll::Ready(Ok(()))),
        "the command need not have read it"
    );
    let mut waits = ByHand::new(sink.write("x"));
    assert!(waits.poll().is_pending());
    vm.settle();
    assert!(!waits.woken.is_set(), "the allowance is used up");
    assert_eq!(received(&vm, &handle).len(), 65_537);
    assert!(waits.woken.is_set());
    assert!(matches!(waits.poll(), Poll::Ready(Ok(()))));
}

#[test]
fn writes_at_the_same_time_go_in_call_order_and_each_is_contiguous() {
    let vm = FakeVm::with_limits(Limits {
        input_limit: 100,
        stdin_chunk_size: 30,
        ..Limits::default()
    });
    let (handle, sink) = blocked(&vm);
    let mut writes: Vec<_> = (b'a'..=b'j')
        .map(|byte| ByHand::new(sink.write(vec![byte; 777])))
        .collect();
    for write in &mut writes {
        assert!(write.poll().is_pending());
    }
    vm.command(handle.id(), |command| command.reads = true);
    let mut left = writes.len();
    while left > 0 {
        vm.settle();
        for write in writes.iter_mut().rev() {
            if write.woken.is_set() && write.poll().is_ready() {
                left -= 1;
            }
        }
    }
    let expected: Vec<u8> = (b'a'..=b'j').flat_map(|byte| [byte; 777]).collect();
    assert!(received(&vm, &handle) == expected);
}

#[test]
fn a_cancelled_write_leaves_a_prefix_and_no_debt() {
    let vm = FakeVm::new();
    let (handle, sink) = blocked(&vm);
    let data: Vec<u8> = (0..1 << 20).map(pattern).collect();
    let mut write = ByHand::new(sink.write(data.clone()));
    assert!(write.poll().is_pending());
    vm.settle();
    assert!(write.poll().is_pending(), "the command does not read");
    let mut behind = ByHand::new(sink.write("behind"));
    assert!(behind.poll().is_pending());
    drop(write);
    assert!(behind.woken.is_set(), "the turn was given back");
    assert!(behind.poll().is_pending());
    let view = vm.hub.inspect().executions[0].clone();
    assert_eq!(
        (view.stdin_sent, view.stdin_pending),
        (65_536, 6),
        "unsent bytes are not charged"
    );
    let got = received(&vm, &handle);
    assert!(got[..65_536] == data[..65_536] && &got[65_536..] == b"behind");
    assert!(matches!(behind.poll(), Poll::Ready(Ok(()))));
    // The guest says nothing while less than half of the window is unacknowledged.
    assert!(
        vm.hub.inspect().executions[0].stdin_window > 65_536 / 2,
        "the credit is back"
    );
}

#[test]
fn a_write_that_is_cancelled_while_it_waits_for_its_turn_sends_nothing() {
    let vm = FakeVm::new();
    let (handle, sink) = blocked(&vm);
    let mut first = ByHand::new(sink.write(vec![1; 100_000]));
    let mut second = ByHand::new(sink.write(vec![2; 10]));
    let mut third = ByHand::new(sink.write(vec![3; 10]));
    assert!(first.poll().is_pending());
    assert!(second.poll().is_pending());
    assert!(third.poll().is_pending());
    drop(second);
    vm.command(handle.id(), |command| command.reads = true);
    vm.settle();
    assert!(matches!(first.poll(), Poll::Ready(Ok(()))));
    drop(first);
    assert!(third.poll().is_pending());
    vm.settle();
    assert!(matches!(third.poll(), Poll::Ready(Ok(()))));
    let got = received(&vm, &handle);
    assert_eq!(got.len(), 100_010);
    assert_eq!(got[99_999..100_001], [1, 3]);
}

#[test]
fn close_comes_after_every_write_called_before_and_refuses_those_after() {
    let vm = FakeVm::new();
    let (handle, sink) = blocked(&vm);
    let mut first = ByHand::new(sink.write(vec![1; 100_000]));
    let mut second = ByHand::new(sink.write(vec![2; 100_000]));
    assert!(first.poll().is_pending());
    assert!(second.poll().is_pending());
    let mut close = ByHand::new(sink.close());
    assert!(close.poll().is_pending());
    assert!(matches!(
        vm.run(sink.write("late")),
        Err(WriteError::Closed)
    ));
    vm.command(handle.id(), |command| command.reads = true);
    vm.settle();
    assert!(matches!(first.poll(), Poll::Ready(Ok(()))));
    drop(first);
    assert!(second.poll().is_pending());
    assert!(!vm.command(handle.id(), |command| command.eof));
    vm.settle();
    assert!(matches!(second.poll(), Poll::Ready(Ok(()))));
    drop(second);
    assert!(close.woken.is_set());
    assert!(matches!(close.poll(), Poll::Ready(Ok(()))));
    assert_eq!(received(&vm, &handle).len(), 200_000);
    assert!(vm.command(handle.id(), |command| command.eof));
    vm.run(sink.close()).unwrap();
}

#[test]
fn a_close_stays_committed_when_its_caller_goes() {
    let vm = FakeVm::new();
    let (handle, sink) = blocked(&vm);
    let mut write = ByHand::new(sink.write(vec![1; 100_000]));
    assert!(write.poll().is_pending());
    let mut close = ByHand::new(sink.close());
    assert!(close.poll().is_pending());
    drop(close);
    assert!(matches!(
        vm.run(sink.write("late")),
        Err(WriteError::Closed)
    ));
    vm.command(handle.id(), |command| command.reads = true);
    vm.settle();
    assert!(matches!(write.poll(), Poll::Ready(Ok(()))));
    drop(write);
    vm.settle();
    assert!(
        vm.command(handle.id(), |command| command.eof),
        "the last write committed it"
    );
    vm.run(sink.close()).unwrap();
}

#[test]
fn after_a_cancelled_write_a_close_gives_a_prefix_and_then_the_end() {
    // B28: what arrives is a prefix of what was submitted, then EOF.
    let vm = FakeVm::new();
    let (handle, sink) = blocked(&vm);
    let data: Vec<u8> = (0..300_000).map(pattern).collect();
    let mut write = ByHand::new(sink.write(data.clone()));
    assert!(write.poll().is_pending());
    vm.settle();
    drop(write);
    vm.run(sink.close()).unwrap();
    let got = received(&vm, &handle);
    assert!(!got.is_empty() && got.len() < data.len() && data.starts_with(&got));
    assert!(vm.command(handle.id(), |command| command.eof));
}

#[test]
fn dropping_the_sink_closes_stdin() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "cat");
    let mut sink = handle.take_stdin().unwrap();
    assert!(handle.take_stdin().is_none());
    assert_eq!(
        vm.run(AsyncWriteExt::write(&mut sink, b"accepted"))
            .unwrap(),
        8
    );
    drop(sink);
    assert_eq!(vm.run(handle.collect()).unwrap().stdout(), b"accepted");
}

#[test]
fn a_broken_stdin_wakes_the_waiting_writers_and_is_not_an_end() {
    let vm = FakeVm::new();
    let (mut handle, sink) = blocked(&vm);
    let mut write = ByHand::new(sink.write(vec![1; 1 << 20]));
    let mut queued = ByHand::new(sink.write("queued"));
    assert!(write.poll().is_pending());
    assert!(queued.poll().is_pending());
    vm.settle();
    vm.agent(|conn| {
        conn.stdin_error(
            handle.id(),
            forebay_exec_proto::StdinError {
                errno: 32,
                name: "EPIPE".to_owned(),
                message: "Broken pipe".to_owned(),
            },
        );
    });
    vm.settle();
    assert!(write.woken.is_set());
    assert!(matches!(
        write.poll(),
        Poll::Ready(Err(WriteError::Broken(_)))
    ));
    assert!(queued.woken.is_set());
    assert!(matches!(
        queued.poll(),
        Poll::Ready(Err(WriteError::Broken(_)))
    ));
    drop((write, queued));
    let view = vm.hub.inspect().executions[0].clone();
    assert_eq!(view.stdin_window, 65_536, "its input capacity came back");
    vm.run(sink.close()).unwrap();
    vm.command(handle.id(), |command| command.exit = Some(4));
    assert_eq!(vm.run(handle.wait()).unwrap().code(), Some(4));
}

#[test]
fn a_write_that_was_handed_over_stays_so_when_the_command_ends_at_once() {
    let vm = FakeVm::new();
    let (handle, sink) = blocked(&vm);
    let mut write = ByHand::new(sink.write("abc"));
    assert!(write.poll().is_pending());
    vm.command(handle.id(), |command| command.exit = Some(3));
    vm.settle();
    assert!(!vm.guest_knows(handle.id()));
    assert!(matches!(write.poll(), Poll::Ready(Ok(()))));
}

#[test]
fn writes_to_an_execution_that_ended_say_so_and_closes_succeed() {
    // B26: write and close after the exit event; close twice.
    let vm = FakeVm::new();
    let (mut handle, sink) = blocked(&vm);
    let mut write = ByHand::new(sink.write(vec![1; 1 << 20]));
    assert!(write.poll().is_pending());
    handle.kill();
    vm.settle();
    assert!(write.woken.is_set());
    assert!(matches!(write.poll(), Poll::Ready(Err(WriteError::Ended))));
    drop(write);
    assert!(matches!(vm.run(sink.write("late")), Err(WriteError::Ended)));
    vm.run(sink.close()).unwrap();
    vm.run(sink.close()).unwrap();
    assert!(vm.run(handle.wait()).is_ok());
}

#[test]
fn an_empty_write_does_nothing_whatever_the_state() {
    let vm = FakeVm::new();
    let (_handle, sink) = blocked(&vm);
    let mut blocking = ByHand::new(sink.write(vec![1; 1 << 20]));
    assert!(blocking.poll().is_pending());
    let kicks = vm.kicks();
    assert!(matches!(
        ByHand::new(sink.write("")).poll(),
        Poll::Ready(Ok(()))
    ));
    assert!(matches!(
        ByHand::new(sink.write_all(b"")).poll(),
        Poll::Ready(Ok(()))
    ));
    assert_eq!(vm.kicks(), kicks);
}

#[test]
fn nothing_is_sent_before_started() {
    let vm = FakeVm::new();
    let exec = vm.client.exec("late", [""; 0]).stdin(Stdin::bytes("early"));
    let mut start = ByHand::new(exec.spawn());
    assert!(start.poll().is_pending());
    vm.settle();
    let view = vm.hub.inspect().executions[0].clone();
    assert_eq!((view.phase, view.stdin_sent), ("starting", 0));
    vm.command(view.id, |command| command.hold_start = false);
    vm.settle();
    assert!(start.poll().is_ready());
    assert_eq!(vm.hub.inspect().executions[0].stdin_sent, 5);
}

#[test]
fn a_stalled_stdin_stops_neither_a_kill_nor_other_executions() {
    // B27, without the clock.
    let vm = FakeVm::new();
    let stalled: Vec<_> = (0..8).map(|_| blocked(&vm)).collect();
    let mut writes: Vec<_> = stalled
        .iter()
        .map(|(_, sink)| ByHand::new(sink.write(vec![0; 1 << 20])))
        .collect();
    for write in &mut writes {
        assert!(write.poll().is_pending());
    }
    vm.settle();
    for _ in 0..200 {
        assert_eq!(
            vm.run(vm.client.exec("echo", ["hi"]).output())
                .unwrap()
                .stdout(),
            b"hi"
        );
    }
    stalled[0].0.kill();
    vm.settle();
    assert!(matches!(
        writes[0].poll(),
        Poll::Ready(Err(WriteError::Ended))
    ));
    for write in &mut writes[1..] {
        assert!(write.poll().is_pending(), "the others stay waiting");
    }
}

#[test]
fn eight_megabytes_go_through_an_echo_in_both_directions_at_once() {
    // B28: single bytes, odd sizes, and pieces larger than the window.
    let data: Vec<u8> = (0..8 << 20).map(pattern).collect();
    let vm = FakeVm::new();
    let parts = spawn(&vm, "cat").split();
    let (sink, mut stdout, mut exit) = (parts.stdin.unwrap(), parts.stdout, parts.exit);
    let feed = async {
        let mut rest = &data[..];
        for size in [1, 1000, 65_537, 1 << 20] {
            let part = match size {
                1 => 4096,
                1000 => 1_000_000,
                65_537 => 3_000_000,
                _ => rest.len(),
            };
            let (now, later) = rest.split_at(part);
            for piece in now.chunks(size) {
                sink.write_all(piece).await?;
            }
            rest = later;
        }
        sink.close().await
    };
    let mut echoed = Vec::new();
    let (fed, read, status) =
        vm.run(async { tokio::join!(feed, stdout.read_to_end(&mut echoed), exit.wait()) });
    fed.unwrap();
    read.unwrap();
    assert!(status.unwrap().success());
    assert!(echoed == data);
}

#[test]
fn tokio_copy_works_in_both_directions() {
    let data: Vec<u8> = (0..1_000_000).map(pattern).collect();
    let vm = FakeVm::new();
    let parts = spawn(&vm, "cat").split();
    let (mut sink, mut stdout) = (parts.stdin.unwrap(), parts.stdout);
    let mut echoed = Vec::new();
    let mut from = &data[..];
    let (sent, got) = vm.run(async {
        let feed = async {
            let n = tokio::io::copy(&mut from, &mut sink).await?;
            sink.shutdown().await?;
            io::Result::Ok(n)
        };
        tokio::join!(feed, tokio::io::copy(&mut stdout, &mut echoed))
    });
    assert_eq!((sent.unwrap(), got.unwrap()), (1_000_000, 1_000_000));
    assert!(echoed == data);
    assert!(matches!(
        vm.run(sink.write("late")),
        Err(WriteError::Ended | WriteError::Closed)
    ));
}

#[test]
fn flush_waits_until_accepted_bytes_were_handed_over() {
    let vm = FakeVm::new();
    let (handle, mut sink) = blocked(&vm);
    vm.hold.store(true, Ordering::Relaxed);
    assert_eq!(
        vm.run(AsyncWriteExt::write(&mut sink, &[1; 50_000]))
            .unwrap(),
        16_384
    );
    let mut second = ByHand::new(AsyncWriteExt::write(&mut sink, b"x"));
    assert!(second.poll().is_pending(), "one chunk at a time");
    drop(second);
    let mut flush = ByHand::new(sink.flush());
    assert!(flush.poll().is_pending());
    vm.hold.store(false, Ordering::Relaxed);
    vm.settle();
    assert!(flush.woken.is_set());
    assert!(matches!(flush.poll(), Poll::Ready(Ok(()))));
    drop(flush);
    vm.run(sink.flush()).unwrap();
    let mut mixed = ByHand::new(sink.write("after"));
    assert!(mixed.poll().is_pending());
    drop(mixed);
    assert_eq!(
        received(&vm, &handle).len(),
        16_384,
        "a cancelled write takes back only its own"
    );
}

#[test]
fn async_writes_to_a_sink_nobody_reads_are_broken_pipes() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "deaf");
    let mut sink = handle.take_stdin().unwrap();
    vm.settle();
    let error = vm
        .run(AsyncWriteExt::write_all(&mut sink, b"x"))
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    vm.run(sink.shutdown()).unwrap();
    vm.hub.vm_gone("stopped");
    let error = vm
        .run(AsyncWriteExt::write_all(&mut sink, b"x"))
        .unwrap_err();
    assert_eq!(
        error.kind(),
        io::ErrorKind::BrokenPipe,
        "it was closed first"
    );
}
