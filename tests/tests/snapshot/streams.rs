//! Executions that live through a snapshot, in source and copies.

use forebay::{
    Adopted, ExecError, ExecEvent, ExecHandle, ExecParts, Stdin, Survivors, TerminalSize, Vm,
};
use forebay_tests::{
    CEILING, COUNT, TestVm, Within as _, assert_answers, assert_slots_come_free, builder, counted,
    turn,
};
use tokio::io::AsyncReadExt as _;

/// Reads what a counter prints next, from byte `from` on.
async fn goes_on(counter: &mut ExecParts, from: usize, len: usize) {
    let mut read = vec![0; len];
    let stdout = &mut counter.stdout;
    stdout.read_exact(&mut read).within(CEILING).await.unwrap();
    assert!(
        read == counted(from..from + len),
        "bytes differ after {from}"
    );
}

async fn spawn(exec: forebay::Exec) -> ExecHandle {
    exec.spawn().within(CEILING).await.unwrap()
}

async fn counter(vm: &Vm) -> ExecParts {
    spawn(vm.shell(COUNT)).await.split()
}

#[tokio::test]
async fn every_kind_of_execution_goes_on_in_source_and_copies() {
    let _turn = turn().await;
    let vm = TestVm::start(builder().forkable(true)).await;
    // Four that stream, each read up to another byte.
    let mut counters = Vec::new();
    for position in [0, 1, 5_000, 100_000] {
        let mut counter = counter(&vm).await;
        goes_on(&mut counter, 0, position).await;
        counters.push((counter, position));
    }
    // One that is fed, one whose window is full, one that does not read, one at a terminal, one that
    // has ended unread.
    let mut fed = spawn(vm.exec("cat", [""; 0]).stdin(Stdin::piped())).await;
    let sink = fed.take_stdin().unwrap();
    sink.write("before ").within(CEILING).await.unwrap();
    let full = spawn(vm.shell("yes | head -c 3000000; exit 4")).await;
    let mut deaf = spawn(vm.shell("sleep 3; wc -c").stdin(Stdin::piped())).await;
    let deaf_sink = deaf.take_stdin().unwrap();
    deaf_sink
        .write(vec![1; 50_000])
        .within(CEILING)
        .await
        .unwrap();
    let shell = "stty -echo; echo up; read line; echo got $line; stty size";
    let size = TerminalSize { rows: 11, cols: 22 };
    let mut terminal = spawn(vm.shell(shell).stdin(Stdin::piped()).terminal(size)).await;
    let keys = terminal.take_stdin().unwrap();
    let mut up = Vec::new();
    while up.len() < 4 {
        match terminal.recv().within(CEILING).await {
            Some(ExecEvent::Stdout(data)) => up.extend_from_slice(&data),
            Some(ExecEvent::Started { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(up, b"up\r\n");
    let ended = spawn(vm.shell("echo last words; exit 7")).await;
    while vm
        .inspect()
        .executions
        .executions
        .iter()
        .any(|e| e.id == ended.id().get() && e.phase != "ended")
    {
        tokio::task::yield_now().await;
    }

    let template = vm.template().await.unwrap();
    let mut ids: Vec<_> = counters
        .iter()
        .map(|(counter, _)| counter.exit.id())
        .collect();
    ids.extend([fed.id(), full.id(), deaf.id(), terminal.id(), ended.id()]);
    ids.sort();
    assert_eq!(template.executions(), ids);
    let dir = tempfile::tempdir().unwrap();
    template.save(dir.path().join("snapshot")).await.unwrap();

    for restore in [template.fork(), Vm::restore(dir.path().join("snapshot"))] {
        let copy = TestVm::restore(restore.survivors(Survivors::Adopt)).await;
        assert_eq!(copy.survivors(), ids);
        assert_eq!(copy.client().active(), 9);
        for (counter, position) in &counters {
            let adopted = copy.adopt(counter.exit.id()).unwrap();
            assert_eq!(adopted.progress.stdout_consumed, *position as u64);
            goes_on(&mut adopted.handle.split(), *position, 300_000).await;
        }
        let Adopted {
            mut handle,
            progress,
            ..
        } = copy.adopt(fed.id()).unwrap();
        assert_eq!(progress.stdin_accepted, 7);
        let sink = handle.take_stdin().unwrap();
        sink.write("after").within(CEILING).await.unwrap();
        sink.close().within(CEILING).await.unwrap();
        let out = handle.collect().within(CEILING).await.unwrap();
        assert_eq!(out.stdout(), b"before after");
        let out = copy
            .adopt(full.id())
            .unwrap()
            .handle
            .collect()
            .within(CEILING)
            .await
            .unwrap();
        assert_eq!(
            (out.stdout().len(), out.status().code()),
            (3_000_000, Some(4))
        );
        let Adopted {
            mut handle,
            progress,
            ..
        } = copy.adopt(deaf.id()).unwrap();
        assert_eq!(progress.stdin_accepted, 50_000);
        let sink = handle.take_stdin().unwrap();
        sink.write(vec![2; 60_000]).within(CEILING).await.unwrap();
        sink.close().within(CEILING).await.unwrap();
        let out = handle.collect().within(CEILING).await.unwrap();
        assert_eq!(out.stdout_str().unwrap().trim(), "110000");
        let mut handle = copy.adopt(terminal.id()).unwrap().handle;
        let keys = handle.take_stdin().unwrap();
        keys.write("typed\n").within(CEILING).await.unwrap();
        let out = handle.collect().within(CEILING).await.unwrap();
        assert_eq!(out.stdout_str().unwrap(), "got typed\r\n11 22\r\n");
        let out = copy
            .adopt(ended.id())
            .unwrap()
            .handle
            .collect()
            .within(CEILING)
            .await
            .unwrap();
        assert_eq!(
            (out.stdout(), out.status().code()),
            (&b"last words\n"[..], Some(7))
        );
        assert!(copy.adopt(ended.id()).is_none(), "twice");
        assert_slots_come_free(&copy).await;
        assert_answers(&copy).await;
    }

    // The source has noticed nothing.
    for (counter, position) in &mut counters {
        goes_on(counter, *position, 300_000).await;
    }
    sink.write("later").within(CEILING).await.unwrap();
    sink.close().within(CEILING).await.unwrap();
    let out = fed.collect().within(CEILING).await.unwrap();
    assert_eq!(out.stdout(), b"before later");
    let out = full.collect().within(CEILING).await.unwrap();
    assert_eq!(
        (out.stdout().len(), out.status().code()),
        (3_000_000, Some(4))
    );
    deaf_sink.close().within(CEILING).await.unwrap();
    let out = deaf.collect().within(CEILING).await.unwrap();
    assert_eq!(out.stdout_str().unwrap().trim(), "50000");
    keys.write("typed\n").within(CEILING).await.unwrap();
    let out = terminal.collect().within(CEILING).await.unwrap();
    assert_eq!(out.stdout_str().unwrap(), "got typed\r\n11 22\r\n");
    let out = ended.collect().within(CEILING).await.unwrap();
    assert_eq!(out.status().code(), Some(7));
    drop(counters);
    assert_slots_come_free(&vm).await;
}

#[tokio::test]
async fn survivors_that_nobody_wants_run_on_or_are_killed() {
    let _turn = turn().await;
    let vm = TestVm::boot().await;
    let mut hold = Vec::new();
    // More than a window, then a sign that it got through.
    let writes = "head -c 3000000 /dev/zero; echo through > /tmp/through; sleep 1000";
    hold.push(spawn(vm.shell(writes)).await);
    let template = vm.template().await.unwrap();
    let copy = TestVm::restore(template.fork()).await;
    assert!(copy.survivors().is_empty());
    let wait = "while [ ! -e /tmp/through ]; do sleep .1; done";
    assert!(
        copy.shell(wait)
            .within(CEILING)
            .await
            .unwrap()
            .status()
            .success()
    );
    assert_eq!(copy.client().active(), 1);
    let copy = TestVm::restore(template.fork().survivors(Survivors::Kill)).await;
    assert_slots_come_free(&copy).await;
    let gone = copy
        .shell("! pidof sleep && ! [ -e /tmp/through ]")
        .within(CEILING)
        .await;
    assert!(gone.unwrap().status().success());
    // Those kept hold their slots until they are let go of.
    let copy = TestVm::restore(template.fork().survivors(Survivors::Adopt)).await;
    assert_eq!(copy.survivors().len(), 1);
    copy.discard_survivors();
    assert!(copy.survivors().is_empty());
    assert!(
        copy.shell(wait)
            .within(CEILING)
            .await
            .unwrap()
            .status()
            .success()
    );
}

#[tokio::test]
async fn a_deadline_has_left_what_it_had_left() {
    let _turn = turn().await;
    let vm = TestVm::boot().await;
    let limit = forebay_tests::scaled(std::time::Duration::from_secs(1));
    let slow = spawn(vm.exec("sleep", ["100000"]).timeout(limit)).await;
    let dir = tempfile::tempdir().unwrap();
    vm.snapshot(dir.path()).await.unwrap();
    let id = slow.id();
    assert!(matches!(
        slow.collect().await,
        Err(ExecError::TimedOut { .. })
    ));
    vm.close().await;
    // By the time of the one that was saved it would be over.
    let restore = Vm::restore(dir.path()).survivors(Survivors::Adopt);
    let copy = TestVm::restore(restore).await;
    let handle = copy.adopt(id).unwrap().handle;
    assert_answers(&copy).await;
    let left = copy.shell("pidof sleep").within(CEILING).await.unwrap();
    assert!(left.status().success(), "a false timeout");
    let ended = handle.collect().within(CEILING * 2).await;
    assert!(
        matches!(ended, Err(ExecError::TimedOut { .. })),
        "{ended:?}"
    );
}
