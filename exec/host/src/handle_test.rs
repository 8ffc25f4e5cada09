use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_core::Stream as _;
use tokio::io::AsyncReadExt;

use crate::fake_guest::{ByHand, FakeVm, pattern};
use crate::{
    ControlError, ExecError, ExecEvent, ExecHandle, ExecReader, Limits, Signal, Stdin, WriteError,
};

fn spawn<const N: usize>(vm: &Arc<FakeVm>, program: &str, args: [&str; N]) -> ExecHandle {
    vm.run(vm.client.exec(program, args).stdin(Stdin::piped()).spawn())
        .unwrap()
}

fn patterned(n: usize) -> Vec<u8> {
    (0..n).map(pattern).collect()
}

async fn next(reader: &mut ExecReader) -> Option<io::Result<Bytes>> {
    poll_fn(|cx| Pin::new(&mut *reader).poll_next(cx)).await
}

#[test]
fn recv_gives_started_first_then_output_then_the_exit_then_none() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "write", ["40000", "5", "3"]);
    let (mut stdout, mut stderr, mut events) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(event) = vm.run(handle.recv()) {
        match event {
            ExecEvent::Stdout(data) => stdout.extend(data),
            ExecEvent::Stderr(data) => stderr.extend(data),
            other => events.push(other),
        }
    }
    assert_eq!(stdout, patterned(40_000));
    assert_eq!(stderr, patterned(5));
    let [ExecEvent::Started { .. }, ExecEvent::Exited(status)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(status.code(), Some(3));
    assert_eq!(vm.run(handle.recv()), None);
    assert_eq!(
        vm.run(handle.wait()).unwrap().code(),
        Some(3),
        "wait still knows"
    );
}

#[test]
fn wait_ends_on_a_command_that_writes_far_more_than_the_allowance() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "write", ["5000000", "5000000", "0"]);
    assert!(vm.run(handle.wait()).unwrap().success());
    assert!(
        vm.run(handle.wait()).unwrap().success(),
        "and may be called again"
    );
}

#[test]
fn wait_closes_an_untaken_stdin_and_collect_does_too() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "cat", []);
    assert!(vm.run(handle.wait()).unwrap().success());
    let handle = spawn(&vm, "cat", []);
    assert!(vm.run(handle.collect()).unwrap().status().success());
}

#[test]
fn collect_drains_both_streams_whichever_is_larger() {
    // B05 a, b: either stream alone exceeds the shared allowance.
    let vm = FakeVm::new();
    for (out, err) in [("3145728", "3"), ("3", "3145728"), ("2000000", "2000000")] {
        let output = vm
            .run(spawn(&vm, "write", [out, err, "0"]).collect())
            .unwrap();
        assert!(output.stdout() == patterned(out.parse().unwrap()));
        assert!(output.stderr() == patterned(err.parse().unwrap()));
    }
}

#[test]
fn collect_after_the_last_event_still_gives_the_status() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "exit", ["4"]);
    while vm.run(handle.recv()).is_some() {}
    let output = vm.run(handle.collect()).unwrap();
    assert_eq!(
        (output.status().code(), output.stdout().len()),
        (Some(4), 0)
    );
}

#[test]
fn a_kill_is_an_exit_by_signal() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "chatter", []);
    handle.kill();
    handle.kill();
    let status = vm.run(handle.wait()).unwrap();
    assert_eq!((status.code(), status.signal()), (None, Some(Signal::KILL)));
    assert_eq!(status.signal_name().as_deref(), Some("SIGKILL"));
    handle.kill();
}

#[test]
fn signals_arrive_in_order_and_fail_once_the_execution_has_ended() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "stall", []);
    let control = handle.control();
    vm.run(control.signal(Signal::USR1)).unwrap();
    vm.run(handle.signal(Signal::USR2)).unwrap();
    vm.settle();
    assert_eq!(
        vm.command(handle.id(), |command| command.signals.clone()),
        [10, 12]
    );
    vm.run(control.signal(Signal::TERM)).unwrap();
    assert_eq!(vm.run(handle.wait()).unwrap().signal(), Some(Signal::TERM));
    assert!(matches!(
        vm.run(control.signal(Signal::TERM)),
        Err(ControlError::Ended)
    ));
}

#[test]
fn a_signal_that_waits_for_room_ends_when_its_execution_does() {
    let vm = FakeVm::new();
    let handle = spawn(&vm, "stall", []);
    vm.hold.store(true, std::sync::atomic::Ordering::Relaxed);
    for _ in 0..16 {
        vm.run(handle.signal(Signal::HUP)).unwrap();
    }
    let mut signal = ByHand::new(handle.signal(Signal::USR1));
    assert!(signal.poll().is_pending());
    vm.command(handle.id(), |command| command.exit = Some(0));
    vm.settle();
    assert!(signal.woken.is_set());
    assert!(matches!(
        signal.poll(),
        Poll::Ready(Err(ControlError::Ended))
    ));
}

#[test]
fn dropping_the_last_of_handle_sink_and_control_kills() {
    let vm = FakeVm::new();
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        let mut handle = spawn(&vm, "stall", []);
        let id = handle.id();
        let (sink, control) = (handle.take_stdin(), handle.control());
        let (mut handle, mut sink, mut control) = (Some(handle), sink, Some(control));
        for (n, part) in order.into_iter().enumerate() {
            assert!(vm.guest_knows(id), "{order:?}: killed after {n} of 3");
            match part {
                0 => drop(handle.take()),
                1 => drop(sink.take()),
                _ => drop(control.take()),
            }
            vm.settle();
        }
        assert!(!vm.guest_knows(id), "{order:?}: still runs");
        assert_eq!(vm.client.active(), 0);
    }
}

#[test]
fn a_handle_dropped_while_a_control_lives_discards_and_the_command_never_hangs() {
    let vm = FakeVm::new();
    let handle = spawn(&vm, "write", ["5000000", "5000000", "0"]);
    let (id, control) = (handle.id(), handle.control());
    drop(handle);
    // Nothing polls from here on: what the VM's threads do has to be enough.
    vm.settle();
    assert!(!vm.guest_knows(id), "it wrote all of it and exited");
    assert_eq!(vm.client.active(), 0);
    assert!(matches!(
        vm.run(control.signal(Signal::TERM)),
        Err(ControlError::Ended)
    ));
}

#[test]
fn an_endless_writer_in_discard_mode_goes_on_with_no_runtime_at_all() {
    let vm = FakeVm::new();
    let handle = spawn(&vm, "chatter", []);
    let (id, _control) = (handle.id(), handle.control());
    for _ in 0..500 {
        vm.round();
    }
    let stalled = vm.command(id, |command| command.written);
    assert!(stalled <= 1 << 20, "unread output is bounded: {stalled}");
    assert!(!vm.round(), "and the writer waits");
    drop(handle);
    for _ in 0..500 {
        vm.round();
    }
    let written = vm.command(id, |command| command.written);
    assert!(
        written > 4 << 20,
        "credit came back by deliver alone: {written}"
    );
}

#[test]
fn a_detached_command_outlives_its_handle_and_frees_its_slot_at_its_exit() {
    let vm = FakeVm::new();
    let handle = spawn(&vm, "cat", []);
    let id = handle.id();
    vm.command(id, |command| command.exit = None);
    assert_eq!(handle.detach(), id);
    vm.settle();
    assert!(
        vm.command(id, |command| command.eof),
        "nobody else could close its stdin"
    );
    assert_eq!(vm.client.active(), 1);
    vm.command(id, |command| command.exit = Some(0));
    vm.settle();
    assert_eq!(vm.client.active(), 0);
    assert!(vm.hub.inspect().executions.is_empty());
}

#[test]
fn a_sink_taken_before_detach_still_writes_and_its_drop_does_not_kill() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "drain", []);
    let sink = handle.take_stdin().unwrap();
    let id = handle.detach();
    vm.command(id, |command| command.exit = None);
    vm.run(sink.write("abc")).unwrap();
    drop(sink);
    vm.settle();
    assert_eq!(vm.command(id, |command| command.received.clone()), b"abc");
    assert!(
        vm.command(id, |command| command.eof),
        "it got its end instead"
    );
}

#[test]
fn split_readers_read_to_the_end_and_the_exit_is_known_beside_them() {
    let vm = FakeVm::new();
    let parts = spawn(&vm, "write", ["2000000", "1000000", "6"]).split();
    let (mut out, mut err, mut exit) = (parts.stdout, parts.stderr, parts.exit);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (a, b, status) = vm.run(async {
        tokio::join!(
            out.read_to_end(&mut stdout),
            err.read_to_end(&mut stderr),
            exit.wait()
        )
    });
    assert_eq!((a.unwrap(), b.unwrap()), (2_000_000, 1_000_000));
    assert!(stdout == patterned(2_000_000) && stderr == patterned(1_000_000));
    assert_eq!(status.unwrap().code(), Some(6));
    assert_eq!(vm.client.active(), 0);
}

#[test]
fn a_partial_read_frees_what_it_took_and_the_rest_stays_in_order() {
    let vm = FakeVm::new();
    let mut parts = spawn(&vm, "write", ["1000", "0", "0"]).split();
    vm.settle();
    let mut all = Vec::<u8>::new();
    let mut buf = [0; 7];
    loop {
        let n = vm.run(parts.stdout.read(&mut buf)).unwrap();
        if n == 0 {
            break;
        }
        all.extend(&buf[..n]);
        let view = &vm.hub.inspect().executions[0];
        assert_eq!(view.output_held, 1000 - all.len());
        let chunk = if all.len() == 1000 { 256 } else { 0 };
        assert_eq!(view.output_released, all.len() as u64 + chunk);
    }
    assert_eq!(all, patterned(1000));
}

#[test]
fn a_reader_is_a_stream_of_chunks_as_well() {
    let vm = FakeVm::new();
    let mut parts = spawn(&vm, "write", ["40000", "0", "0"]).split();
    let mut all = Vec::new();
    while let Some(chunk) = vm.run(next(&mut parts.stdout)) {
        let chunk = chunk.unwrap();
        assert!(!chunk.is_empty() && chunk.len() <= 16_384);
        all.extend(chunk);
    }
    assert_eq!(all, patterned(40_000));
    assert!(vm.run(next(&mut parts.stdout)).is_none());
}

#[test]
fn a_dropped_stderr_reader_discards_its_stream_so_that_stdout_ends() {
    // B05: the consumer looks at stdout only and drops stderr.
    let vm = FakeVm::new();
    let parts = spawn(&vm, "write", ["100", "3145728", "0"]).split();
    drop(parts.stderr);
    let (mut stdout, mut exit) = (parts.stdout, parts.exit);
    let mut all = Vec::new();
    vm.run(stdout.read_to_end(&mut all)).unwrap();
    assert_eq!(all, patterned(100));
    assert!(vm.run(exit.wait()).unwrap().success());
}

#[test]
fn stdout_read_alone_waits_while_stderr_fills_the_shared_allowance() {
    // The documented limit of reading one stream to its end first; no loss, no error.
    let vm = FakeVm::with_limits(Limits {
        output_limit: 32_768,
        ..Limits::default()
    });
    let mut parts = spawn(&vm, "write", ["100000", "100000", "0"]).split();
    let mut all = Vec::new();
    let mut read = ByHand::new(parts.stdout.read_to_end(&mut all));
    for _ in 0..100 {
        assert!(read.poll().is_pending());
        vm.settle();
    }
    drop(parts.stderr);
    vm.run(read.into_inner()).unwrap();
    assert!(all == patterned(100_000));
}

#[test]
fn readers_give_what_arrived_and_then_an_error_when_the_vm_is_gone() {
    let vm = FakeVm::new();
    let mut parts = spawn(&vm, "write", ["1000", "2000"]).split();
    let mut waiting = spawn(&vm, "stall", []).split();
    let mut buf = [0; 8];
    let mut read = ByHand::new(waiting.stdout.read(&mut buf));
    assert!(read.poll().is_pending());
    vm.settle();
    vm.hub.vm_gone("triple fault");
    assert!(read.woken.is_set());
    let Poll::Ready(Err(error)) = read.poll() else {
        panic!("the reader of a dead VM")
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    assert!(error.to_string().contains("triple fault"), "{error}");
    let source = error
        .get_ref()
        .and_then(|source| source.downcast_ref::<ExecError>());
    assert!(matches!(source, Some(ExecError::VmGone { .. })));

    let mut all = Vec::new();
    let error = vm.run(parts.stdout.read_to_end(&mut all)).unwrap_err();
    assert_eq!(all, patterned(1000), "what had arrived comes first");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    let chunk = vm.run(next(&mut parts.stderr)).unwrap().unwrap();
    assert_eq!(chunk.len(), 2000);
    assert!(vm.run(next(&mut parts.stderr)).unwrap().is_err());
}

#[test]
fn the_stdin_error_is_an_event_once_and_the_exit_follows() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "deaf", []);
    let sink = handle.take_stdin().unwrap();
    assert!(matches!(
        vm.run(handle.recv()),
        Some(ExecEvent::Started { .. })
    ));
    let Some(ExecEvent::StdinError(error)) = vm.run(handle.recv()) else {
        panic!()
    };
    assert_eq!((error.errno, error.name.as_str()), (32, "EPIPE"));
    let refused = vm.run(sink.write("x"));
    assert!(matches!(refused, Err(WriteError::Broken(told)) if told == error));
    handle.kill();
    assert!(matches!(vm.run(handle.recv()), Some(ExecEvent::Exited(_))));
    assert_eq!(vm.run(handle.recv()), None);
}

#[test]
fn a_cancelled_recv_loses_nothing() {
    let vm = FakeVm::new();
    let mut handle = spawn(&vm, "write", ["100000", "0", "0"]);
    let mut all = Vec::new();
    loop {
        let mut cancelled = ByHand::new(handle.recv());
        if let Poll::Ready(event) = cancelled.poll() {
            match event {
                Some(ExecEvent::Stdout(data)) => all.extend(data),
                Some(_) => {}
                None => break,
            }
        }
        drop(cancelled);
        vm.round();
    }
    assert!(all == patterned(100_000));
}
