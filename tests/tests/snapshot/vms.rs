//! What a copy has in common with the VM that it came of, and what not.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use forebay::{CpuTemplate, ExecEvent, SnapshotError, Stdin, StopReason, Survivors, Vm};
use forebay_tests::{CEILING, TestVm, Within as _, assert_answers, builder, rounds, scaled, turn};

use super::{guest_time, says};

#[tokio::test]
async fn a_vm_goes_on_from_its_snapshot_and_so_does_the_one_that_was_saved() {
    let _turn = turn().await;
    let vm = TestVm::start(builder().hostname("source")).await;
    says(&vm, "echo before > /tmp/state").await;
    let dir = tempfile::tempdir().unwrap();
    let report = vm.snapshot(dir.path()).await.unwrap();
    assert!(
        report.state_bytes > 0 && report.memory_bytes > 0,
        "{report:?}"
    );
    says(&vm, "echo after > /tmp/state").await;
    let copy = TestVm::restore(Vm::restore(dir.path()).hostname("copy")).await;
    assert_eq!(
        says(&copy, "cat /tmp/state; hostname").await,
        "before\ncopy"
    );
    assert_eq!(says(&vm, "cat /tmp/state; hostname").await, "after\nsource");
    // A directory is a snapshot once.
    let again = vm.snapshot(dir.path()).await.unwrap_err();
    assert!(matches!(again, SnapshotError::Exists { .. }), "{again}");
    // And it can be restored as often as one likes, also when the others are gone.
    vm.close().await;
    copy.close().await;
    let copy = TestVm::restore(Vm::restore(dir.path())).await;
    assert_eq!(
        says(&copy, "cat /tmp/state; hostname").await,
        "before\nsource"
    );
}

#[tokio::test]
async fn forks_share_nothing_that_they_write() {
    let _turn = turn().await;
    for forkable in [true, false] {
        let vm = TestVm::start(builder().cpus(2).forkable(forkable)).await;
        says(
            &vm,
            "echo common > /tmp/state; head -c 4m /dev/zero | tr '\\0' x > /tmp/large",
        )
        .await;
        let template = vm.template().await.unwrap();
        assert!(template.is_clone_safe());
        let mut forks = Vec::new();
        for number in 0..3 {
            let fork = TestVm::restore(template.fork()).await;
            says(
                &fork,
                &format!("echo {number} >> /tmp/state; echo {number} > /tmp/large"),
            )
            .await;
            forks.push(fork);
        }
        // Of a copy a copy is made, with what it has become.
        let of_a_fork = forks[1].template().await.unwrap();
        let child = TestVm::restore(of_a_fork.fork()).await;
        assert_eq!(
            says(&child, "cat /tmp/state /tmp/large").await,
            "common\n1\n1"
        );
        for (number, fork) in forks.iter().enumerate() {
            let state = says(fork, "cat /tmp/state /tmp/large").await;
            assert_eq!(state, format!("common\n{number}\n{number}"));
        }
        assert_eq!(
            says(&vm, "cat /tmp/state; wc -c < /tmp/large").await,
            "common\n4194304"
        );
    }
}

#[tokio::test]
async fn no_two_copies_draw_the_same_random_numbers() {
    let _turn = turn().await;
    let vm = TestVm::boot().await;
    let template = vm.template().await.unwrap();
    let mut drawn = HashSet::new();
    let draw =
        "cat /proc/sys/kernel/random/uuid; cat /run/generation; head -c 32 /dev/urandom | md5sum";
    for _ in 0..rounds(8).max(2) {
        let copy = TestVm::restore(template.fork()).await;
        // The first thing that anything in it does.
        for line in says(&copy, draw).await.lines() {
            assert!(drawn.insert(line.to_owned()), "{line} twice");
        }
    }
}

#[tokio::test]
async fn the_clock_of_a_copy_is_the_hosts_and_its_uptime_goes_on() {
    let _turn = turn().await;
    let vm = TestVm::boot().await;
    let uptime = "cut -d. -f1 /proc/uptime";
    let before: u64 = says(&vm, uptime).await.parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    vm.snapshot(dir.path()).await.unwrap();
    vm.close().await;
    let pause = Duration::from_secs(20);
    tokio::time::sleep(pause).await;
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
    };
    // Its clock is set to the time at which it was told to: no later than this.
    let earliest = now();
    let copy = TestVm::restore(Vm::restore(dir.path())).await;
    let told = guest_time(&copy).await;
    // The guest tells whole seconds.
    assert!(
        told + Duration::from_secs(1) >= earliest,
        "{told:?} {earliest:?}"
    );
    assert!(told <= now() + Duration::from_secs(1), "{told:?}");
    let after: u64 = says(&copy, uptime).await.parse().unwrap();
    let lived = Duration::from_secs(after - before);
    assert!(lived < pause, "the time between counts: {lived:?}");
}

/// B35: a program that stood ready before the snapshot, with and without the processor's own source;
/// and in a kernel that takes no notice of its generation id, where the agent alone sees to it.
#[tokio::test]
async fn what_was_frozen_draws_other_random_numbers_in_every_copy() {
    let _turn = turn().await;
    let deaf = "grep -q ACPI:Ged /proc/interrupts && cd /sys/bus/platform/drivers/acpi-ged && \
                echo ACPI0013:* > unbind && ! grep -q ACPI:Ged /proc/interrupts";
    let host = CpuTemplate::host;
    for (template, prepare) in [
        (host(), ":"),
        (host().without("rdrand"), ":"),
        (host(), deaf),
    ] {
        let vm = TestVm::start(builder().cpu_template(template)).await;
        says(&vm, prepare).await;
        // Each draw is what the next one follows from, so a copy that is some draws ahead shows too.
        let draw = "read go; dd if=/dev/urandom bs=32 count=100 2>/dev/null | od -An -v -tx1";
        let mut ready = vm.shell(draw).stdin(Stdin::piped()).spawn().await.unwrap();
        let sink = ready.take_stdin().unwrap();
        let quiesced = vm.quiesce(scaled(CEILING)).await.unwrap();
        // So that it draws as soon as it may: the kernel has its generator reseeded now and then.
        sink.write("go\n").within(CEILING).await.unwrap();
        let template = quiesced.pause().unwrap().template().unwrap();
        assert!(template.is_clone_safe());
        let mut drawn = HashSet::new();
        for _ in 0..rounds(8).max(2) {
            let copy = TestVm::restore(template.fork().survivors(Survivors::Adopt)).await;
            let handle = copy.adopt(ready.id()).unwrap().handle;
            let out = handle.collect().within(CEILING).await.unwrap();
            let lines: Vec<_> = out.stdout_str().unwrap().lines().collect();
            assert_eq!(lines.len(), 200, "{lines:?}");
            for line in lines {
                assert!(drawn.insert(line.to_owned()), "{line} twice");
            }
        }
    }
}

#[tokio::test]
async fn nothing_that_was_frozen_runs_before_its_copy_is_another_one() {
    let _turn = turn().await;
    let vm = TestVm::start(builder().cpus(2)).await;
    // Reads the generation, then draws.
    let draw = "while :; do g=$(cat /run/generation 2>/dev/null); \
                echo \"$g $(head -c 8 /dev/urandom | od -An -tx1)\"; done";
    let drawing = vm.shell(draw).spawn().await.unwrap();
    says(&vm, "sleep 1").await;
    let template = vm.template().await.unwrap();
    let mut histories: Vec<Vec<String>> = Vec::new();
    for _ in 0..3 {
        let copy = TestVm::restore(template.fork().survivors(Survivors::Adopt)).await;
        let new = says(&copy, "cat /run/generation").await;
        let mut handle = copy.adopt(drawing.id()).unwrap().handle;
        let mut text = String::new();
        while !text.contains(&new) {
            match handle.recv().within(CEILING).await {
                Some(ExecEvent::Stdout(data)) => text += std::str::from_utf8(&data).unwrap(),
                Some(ExecEvent::Started { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        let before = text.lines().take_while(|line| !line.starts_with(&new));
        histories.push(before.map(str::to_owned).collect());
    }
    // What was drawn in the source is common to all. One that was under way may have read the old
    // generation and drawn in the copy; more would be from a time in which copies are the same.
    for (a, b) in [(0, 1), (1, 2)] {
        let (a, b) = (&histories[a], &histories[b]);
        let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let alone = (a.len() - common).max(b.len() - common);
        assert!(
            alone <= 1,
            "{alone} lines of its own before it was told:\n{a:?}\n{b:?}"
        );
    }
}

/// B36: the file is cut under a guest that runs from it.
#[tokio::test]
async fn a_memory_file_that_is_cut_ends_its_vm_and_no_other() {
    let _turn = turn().await;
    let vm = TestVm::boot().await;
    let dir = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    let paused = vm.pause().unwrap();
    let report = paused
        .snapshot(dir.path(), |done, all| told.push((done, all)))
        .unwrap();
    paused.resume();
    assert!(report.memory_bytes > 0);
    let (done, all) = *told.last().unwrap();
    assert!(done == all && told.is_sorted(), "{told:?}");
    let copy = TestVm::restore(Vm::restore(dir.path())).await;
    let memory = std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("memory"));
    memory.unwrap().set_len(0).unwrap();
    // Something that it has not used since it was restored.
    let _ = copy
        .shell("find / -xdev -type f | xargs cat > /dev/null; echo 3 > /proc/sys/vm/drop_caches")
        .within(CEILING)
        .await;
    let reason = copy.wait().within(CEILING).await;
    assert!(matches!(reason, StopReason::MemoryLost), "{reason:?}");
    assert_answers(&vm).await;
}
