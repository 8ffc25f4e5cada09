//! Credit is one, from end to end: what a client does not consume is not granted to the guest.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use forebay_exec_proto::CHUNK_CHARGE;

use super::{Attached, run, wait_until};
use crate::fake_guest::pattern;
use crate::{ExecId, ExecView, Limits, Stdin};

const NONE: [&str; 0] = [];

fn view(attached: &Attached, id: u64) -> ExecView {
    let id = ExecId::new(id).unwrap();
    let view = attached.vm.hub.inspect();
    let found = view.executions.into_iter().find(|exec| exec.id == id);
    found.expect("the VM knows it")
}

#[test]
fn a_client_that_does_not_read_holds_one_allowance_over_both_ends() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let limit = u64::from(client.limits().output_limit);
        let mut endless = client.exec("chatter", NONE).spawn().await.unwrap();
        wait_until("the stall", || {
            limit - view(&attached, 1).output_received < 16_384 + 256
        });
        let stalled = view(&attached, 1);
        assert!(stalled.output_received <= limit);
        assert_eq!(stalled.output_released, 0, "passing on releases nothing");
        // Everything was passed on.
        wait_until("its way to the client", || {
            view(&attached, 1).output_held == 0
        });
        assert_eq!(
            view(&attached, 1).output_forwarded,
            view(&attached, 1).output_received
        );
        // Reading is what releases, chunk by chunk.
        endless.recv().await.unwrap();
        let Some(crate::ExecEvent::Stdout(chunk)) = endless.recv().await else {
            panic!("no output");
        };
        let units = chunk.len() as u64 + u64::from(CHUNK_CHARGE);
        wait_until("the release", || {
            view(&attached, 1).output_released == units
        });
    });
}

#[test]
fn the_same_holds_for_output_of_tiny_chunks() {
    run(async {
        let attached = Attached::with_limits(Limits {
            output_limit: 64 * 1024,
            output_chunk_size: 1,
            ..Limits::default()
        });
        let client = attached.client().await;
        let endless = client.exec("chatter", NONE).spawn().await.unwrap();
        // 257 units per byte.
        wait_until("the stall", || {
            64 * 1024 - view(&attached, 1).output_received < 257
        });
        assert_eq!(view(&attached, 1).output_received, 255 * 257);
        drop(endless);
        let out = client.exec("write", ["5000", "5000", "0"]).await.unwrap();
        assert_eq!((out.stdout().len(), out.stderr().len()), (5000, 5000));
    });
}

#[test]
fn stdin_that_the_command_does_not_read_stops_at_one_allowance() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let limit = u64::from(client.limits().input_limit);
        let mut stall = client
            .exec("stall", NONE)
            .stdin(Stdin::piped())
            .spawn()
            .await
            .unwrap();
        let sink = stall.take_stdin().unwrap();
        let data: Vec<u8> = (0..300_000).map(pattern).collect();
        {
            let mut write = pin!(sink.write_all(&data));
            let mut cx = Context::from_waker(Waker::noop());
            wait_until("the stall", || {
                assert!(write.as_mut().poll(&mut cx).is_pending());
                view(&attached, 1).stdin_sent == limit
            });
            assert!(write.as_mut().poll(&mut cx).is_pending());
        }
        // What was cancelled was never charged: the prefix is delivered and the rest follows.
        let id = ExecId::new(1).unwrap();
        attached.vm.command(id, |command| command.reads = true);
        attached.vm.hub.ping(1);
        wait_until("the prefix", || {
            attached.vm.command(id, |c| c.received.len() as u64) == limit
        });
        sink.write("end").await.unwrap();
        wait_until("the rest", || {
            attached.vm.command(id, |c| c.received.ends_with(b"end"))
        });
        attached.vm.command(id, |c| {
            let prefix = &c.received[..c.received.len() - 3];
            assert!(prefix == &data[..prefix.len()]);
        });
    });
}

#[test]
fn finished_output_keeps_its_slot_until_the_client_has_read_it() {
    run(async {
        let attached = Attached::with_limits(Limits {
            max_executions: 1,
            ..Limits::default()
        });
        let client = attached.client().await;
        let done = client.exec("write", ["100000", "0", "0"]).spawn().await;
        let mut parts = done.unwrap().split();
        assert!(parts.exit.wait().await.unwrap().success());
        assert_eq!(attached.vm.client.active(), 1);
        let refused = attached.vm.client.exec("echo", ["x"]).await;
        assert!(refused.is_err());
        let mut all = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut parts.stdout, &mut all)
            .await
            .unwrap();
        assert_eq!(all.len(), 100_000);
        wait_until("the slot", || attached.vm.client.active() == 0);
    });
}

#[test]
fn one_stalled_execution_stops_neither_its_client_nor_another() {
    run(async {
        let attached = Attached::new();
        let (one, two) = (attached.client().await, attached.client().await);
        let _stalled = one.exec("chatter", NONE).spawn().await.unwrap();
        let held = one
            .exec("stall", NONE)
            .stdin(Stdin::bytes(vec![0; 1 << 20]));
        let _held = held.spawn().await.unwrap();
        let _library = attached
            .vm
            .client
            .exec("chatter", NONE)
            .spawn()
            .await
            .unwrap();
        for client in [&one, &two] {
            let out = client.exec("write", ["4000000", "100", "0"]).await.unwrap();
            assert_eq!(out.stdout().len(), 4_000_000);
        }
    });
}

#[test]
fn nothing_waits_for_the_clients_runtime_to_be_polled() {
    run(async {
        let attached = Attached::new();
        let client = attached.client().await;
        let data: Vec<u8> = (0..1 << 20).map(pattern).collect();
        let drain = client.exec("drain", NONE).stdin(Stdin::bytes(data.clone()));
        let drain = drain.spawn().await.unwrap();
        let late = client.exec("stall", NONE).spawn().await.unwrap();
        late.kill();
        // From here on this thread blocks and no future is polled.
        wait_until("the kill and the whole of stdin", || {
            let view = attached.vm.hub.inspect();
            let last = view.executions.iter().find(|exec| exec.id.get() == 2);
            last.is_none_or(|exec| exec.phase == "ended")
                && view
                    .executions
                    .iter()
                    .find(|exec| exec.id.get() == 1)
                    .is_none_or(|exec| exec.stdin_acked == data.len() as u64)
        });
        assert!(drain.collect().await.unwrap().status().success());
    });
}
