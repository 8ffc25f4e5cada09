//! The handles on real runtimes, with the VM's loop on a thread of its own.

use std::future::Future;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

use crate::fake_guest::{FakeVm, pattern};
use crate::{ExecError, ExecEvent, Limits, Signal, Stdin};

fn runtimes() -> [(&'static str, Runtime); 2] {
    let one = Builder::new_current_thread().build().unwrap();
    let many = Builder::new_multi_thread()
        .worker_threads(3)
        .build()
        .unwrap();
    [("current_thread", one), ("multi_thread", many)]
}

/// Runs `test` on each runtime, against a VM whose loop runs beside it, and sees that nothing
/// is left behind.
fn on_each<F: Future<Output = ()>>(test: impl Fn(Arc<FakeVm>) -> F) {
    for (name, runtime) in runtimes() {
        let vm = FakeVm::new();
        let vm_loop = vm.spawn_loop();
        runtime.block_on(test(Arc::clone(&vm)));
        drop(runtime);
        drop(vm_loop);
        vm.settle();
        assert_eq!(vm.client.active(), 0, "{name}");
        assert!(vm.hub.inspect().executions.is_empty(), "{name}");
    }
}

#[test]
fn sixteen_commands_at_once_are_not_mixed_up() {
    on_each(|vm| async move {
        let tasks: Vec<_> = (0..16)
            .map(|n| {
                let client = vm.client.clone();
                tokio::spawn(async move {
                    for round in 0..20 {
                        let word = format!("{n}-{round}").repeat(500);
                        let out = client.exec("echo", [&word]).await?;
                        assert_eq!(out.stdout_str(), Ok(&word[..]));
                    }
                    Ok::<_, ExecError>(())
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
}

#[test]
fn writer_and_reader_may_be_tasks_of_their_own() {
    on_each(|vm| async move {
        let data: Vec<u8> = (0..4 << 20).map(pattern).collect();
        let exec = vm.client.exec("cat", [""; 0]).stdin(Stdin::piped());
        let mut parts = exec.spawn().await.unwrap().split();
        let mut sink = parts.stdin.take().unwrap();
        let fed = data.clone();
        let writer = tokio::spawn(async move {
            sink.write(fed).await?;
            sink.shutdown().await
        });
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            parts.stdout.read_to_end(&mut all).await.map(|_| all)
        });
        assert!(parts.exit.wait().await.unwrap().success());
        writer.await.unwrap().unwrap();
        assert!(reader.await.unwrap().unwrap() == data);
    });
}

#[test]
fn more_aborted_tasks_than_the_cap_leave_nothing_running() {
    // B24: each task owns an endless command; dropping the task drops its handle.
    on_each(|vm| async move {
        for _ in 0..150 {
            let client = vm.client.clone();
            let (started, wait) = tokio::sync::oneshot::channel();
            let task = tokio::spawn(async move {
                let mut handle = loop {
                    match client.exec("chatter", [""; 0]).spawn().await {
                        // A killed one holds its slot until the guest confirmed.
                        Err(ExecError::AtCapacity { .. }) => tokio::task::yield_now().await,
                        other => break other.unwrap(),
                    }
                };
                let _ = started.send(());
                while let Some(event) = handle.recv().await {
                    assert!(!matches!(event, ExecEvent::Failed(_)), "{event:?}");
                }
            });
            wait.await.unwrap();
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn callers_of_every_kind_end_when_the_vm_does_in_the_middle() {
    for seed in 0..20u64 {
        eprintln!("seed {seed}");
        let vm = FakeVm::with_limits(Limits {
            max_executions: 64,
            ..Limits::default()
        });
        let vm_loop = vm.spawn_loop();
        let runtime = Builder::new_multi_thread()
            .worker_threads(3)
            .build()
            .unwrap();
        runtime.block_on(async {
            let tasks: Vec<_> = (0..48)
                .map(|n| tokio::spawn(caller(Arc::clone(&vm), n + seed)))
                .collect();
            for _ in 0..seed * 20 {
                tokio::task::yield_now().await;
            }
            vm.hub.vm_gone("stopped under load");
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(vm.client.active(), 0);
        drop(vm_loop);
    }
}

/// Uses one execution in the way that `n` selects until the VM is gone.
async fn caller(vm: Arc<FakeVm>, n: u64) {
    loop {
        let exec = |program| vm.client.exec(program, [""; 0]).stdin(Stdin::piped());
        let outcome = match n % 6 {
            0 => vm
                .client
                .exec("write", ["300000", "300000", "0"])
                .await
                .map(|_| ()),
            1 => match exec("chatter").spawn().await {
                Ok(mut handle) => {
                    while let Some(event) = handle.recv().await {
                        if matches!(event, ExecEvent::Failed(_)) {
                            break;
                        }
                    }
                    handle.wait().await.map(|_| ())
                }
                Err(error) => Err(error),
            },
            2 => match exec("stall").spawn().await {
                Ok(mut handle) => {
                    let sink = handle.take_stdin().unwrap();
                    sink.write(vec![0; 1 << 20]).await.unwrap_err();
                    handle.wait().await.map(|_| ())
                }
                Err(error) => Err(error),
            },
            3 => match exec("stall").spawn().await {
                Ok(mut handle) => {
                    while handle.signal(Signal::USR1).await.is_ok() {}
                    handle.wait().await.map(|_| ())
                }
                Err(error) => Err(error),
            },
            4 => match exec("cat").spawn().await {
                Ok(handle) => {
                    let parts = handle.split();
                    let (mut sink, mut stdout) = (parts.stdin.unwrap(), parts.stdout);
                    let feed = tokio::spawn(async move {
                        while sink.write_all(&[7; 5000]).await.is_ok() {}
                        sink.shutdown().await
                    });
                    let copied = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
                    let _ = feed.await.unwrap();
                    copied.map(|_| ()).map_err(|error| {
                        error
                            .downcast::<ExecError>()
                            .expect("a reader's errors are ours")
                    })
                }
                Err(error) => Err(error),
            },
            _ => exec("stall").spawn().await.map(drop),
        };
        match outcome {
            Ok(()) => tokio::task::yield_now().await,
            Err(ExecError::VmGone { reason }) => return assert_eq!(reason, "stopped under load"),
            Err(ExecError::AtCapacity { .. }) => tokio::task::yield_now().await,
            Err(other) => panic!("caller {n}: {other}"),
        }
    }
}
