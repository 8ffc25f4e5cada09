//! What did not start says why, and what cannot start holds up nobody else.

use std::path::Path;

use forebay::{Exec, ExecError, Failure, FailureKind, Stdin};
use forebay_tests::{CEILING, HELPER, TestVm, Within as _, rounds};
use tokio::task::JoinSet;

use super::terminal::shown;
use super::{LONG, answer, assert_answers, assert_slots_come_free, shared};

const ENOENT: i32 = 2;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const ETXTBSY: i32 = 26;

/// Why a command did not start.
async fn failure(exec: Exec) -> Failure {
    match exec.within(CEILING).await {
        Err(ExecError::NotStarted(failure)) => failure,
        other => panic!("it should not have started: {other:?}"),
    }
}

// B09
#[tokio::test]
async fn a_file_on_the_way_to_a_program_is_told_from_a_missing_one() {
    let vm = &*shared().await;
    let told = failure(vm.exec("/etc/hosts/program", [""; 0])).await;
    assert_eq!(told.kind, FailureKind::NotFound, "{told}");
    assert_eq!(told.errno, Some(ENOTDIR), "{told}");
    assert_eq!(told.stage, "execve", "{told}");
    assert!(told.message.contains("ENOTDIR"), "{told}");
    // A search is about the program, whatever its directories are.
    let searched = vm.exec("nosuch", [""; 0]).env("PATH", "/etc/hosts:/bin");
    let told = failure(searched).await;
    assert_eq!(
        (told.kind, told.errno),
        (FailureKind::NotFound, Some(ENOENT))
    );
    assert!(told.message.contains("/etc/hosts:/bin"), "{told}");
}

// B10
#[tokio::test]
async fn a_directory_that_cannot_be_entered_is_blamed_and_a_missing_program_too() {
    let vm = &*shared().await;
    let script = "rm -rf /tmp/b10; mkdir -p /tmp/b10/closed /tmp/b10/gone; chmod 700 /tmp/b10/closed; \
                  rmdir /tmp/b10/gone";
    answer(vm, script).await;
    for (directory, errno) in [
        ("/tmp/b10/closed", EACCES),
        ("/tmp/b10/closed/below", EACCES),
        ("/tmp/b10/gone", ENOENT),
        ("/etc/hosts", ENOTDIR),
    ] {
        for program in ["true", "nosuch"] {
            let exec = vm.exec(program, [""; 0]).user("1000");
            let told = failure(exec.current_dir(directory)).await;
            assert_eq!(told.kind, FailureKind::BadCwd, "{told}");
            assert_eq!((told.errno, told.stage.as_str()), (Some(errno), "chdir"));
            assert!(told.message.contains(directory), "{told}");
        }
    }
    // Root may, and so may whom the directory belongs to.
    for user in ["0", "1000"] {
        let exec = vm.exec("pwd", [""; 0]).user(user);
        let out = exec.current_dir("/tmp/b10/closed").within(CEILING).await;
        assert_eq!(out.unwrap().stdout(), b"/tmp/b10/closed\n");
        answer(vm, "chown 1000 /tmp/b10/closed").await;
    }
    let exec = vm.exec("nosuch", [""; 0]).current_dir("/tmp/b10");
    assert_eq!(failure(exec).await.kind, FailureKind::NotFound);
}

// B09, as somebody: root may execute what others may not.
#[tokio::test]
async fn a_program_that_its_user_may_not_execute_is_told_as_that() {
    let vm = &*shared().await;
    let program = "/tmp/own-program";
    answer(vm, &format!("cp {HELPER} {program}; chmod 700 {program}")).await;
    let told = failure(vm.exec(program, [""; 0]).user("1000")).await;
    assert_eq!(told.kind, FailureKind::PermissionDenied, "{told}");
    assert_eq!((told.errno, told.stage.as_str()), (Some(EACCES), "execve"));
    let out = vm.exec(program, ["true"]).within(CEILING).await.unwrap();
    assert!(out.status().success());
}

// B13
#[tokio::test]
async fn a_program_that_was_just_written_runs_whoever_is_being_started() {
    const WRITERS: usize = 16;
    let vm = &*shared().await;
    answer(vm, "rm -rf /tmp/b13; mkdir /tmp/b13").await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let client = vm.client().clone();
        writers.spawn(async move {
            for round in 0..rounds(200) {
                let path = format!("/tmp/b13/{writer}-{round}");
                let write = client.shell(format!("cat > {path}; chmod 755 {path}"));
                let text = format!("#!/bin/sh\necho {writer} {round}\n");
                let out = write.stdin(Stdin::bytes(text)).within(LONG).await.unwrap();
                assert!(out.status().success(), "{:?}", out.stderr());
                let out = client.exec(&path, [""; 0]).within(LONG).await;
                let out = out.unwrap_or_else(|error| panic!("{path}: {error}"));
                assert_eq!(out.stdout_str().unwrap(), format!("{writer} {round}\n"));
            }
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    answer(vm, "rm -rf /tmp/b13").await;
}

// B13
#[tokio::test]
async fn a_program_that_a_process_has_open_for_writing_is_busy_for_as_long() {
    let vm = &*shared().await;
    let program = "/tmp/busy";
    answer(vm, &format!("cp {HELPER} {program}")).await;
    let hold = vm.shell(format!("exec 3>>{program}; echo open; read line"));
    let mut holder = hold
        .stdin(Stdin::piped())
        .spawn()
        .within(CEILING)
        .await
        .unwrap();
    let stdin = holder.take_stdin();
    assert_eq!(first_line(&mut holder).await, "open\n");
    let told = failure(vm.exec(program, [""; 0])).await;
    assert_eq!((told.kind, told.errno), (FailureKind::Other, Some(ETXTBSY)));
    assert!(told.message.contains("open for writing"), "{told}");
    drop(stdin);
    holder.wait().within(CEILING).await.unwrap();
    let out = vm.exec(program, ["true"]).within(CEILING).await.unwrap();
    assert!(out.status().success());
}

/// What a command prints first.
async fn first_line(command: &mut forebay::ExecHandle) -> String {
    loop {
        match command.recv().within(CEILING).await {
            Some(forebay::ExecEvent::Started { .. }) => {}
            Some(forebay::ExecEvent::Stdout(chunk)) => {
                return String::from_utf8_lossy(&chunk).into_owned();
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn no_process_left_for_a_start_is_a_limit_and_not_a_want_of_memory() {
    let vm = &*shared().await;
    // Built-in words only: it cannot start anything either.
    let script = "cd /sys/fs/cgroup/forebay; read before < pids.max; echo 1 > pids.max; echo full; \
                  read line; echo $before > pids.max";
    let exec = vm.shell(script).stdin(Stdin::piped());
    let mut holder = exec.spawn().within(CEILING).await.unwrap();
    let stdin = holder.take_stdin();
    assert_eq!(first_line(&mut holder).await, "full\n");
    let told = failure(vm.exec("true", [""; 0])).await;
    assert_eq!(told.kind, FailureKind::ResourceLimit, "{told}");
    assert_eq!((told.errno, told.stage.as_str()), (Some(EAGAIN), "clone3"));
    assert!(told.message.contains("processes"), "{told}");
    drop(stdin);
    holder.wait().within(CEILING).await.unwrap();
    assert_answers(vm).await;
    assert_slots_come_free(vm).await;
}

/// Where nothing ever answers.
const HANGS: &str = "/tmp/hangs";

/// Waits until so many starts are on their way and no further: copies of the agent.
async fn on_their_way(vm: &TestVm, starts: usize) {
    let copies =
        "n=0; for p in /proc/[0-9]*/exe; do [ $p -ef /proc/1/exe ] && n=$((n+1)); done; echo $n";
    let wait = async {
        while answer(vm, copies).await != (starts + 1).to_string() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    wait.within(LONG).await;
}

#[tokio::test]
async fn a_start_that_waits_for_a_file_system_holds_up_nobody_and_can_be_killed() {
    let vm = &*shared().await;
    answer(vm, &format!("mkdir -p {HANGS}; cp /etc/passwd /tmp/passwd")).await;
    let mount = vm.exec(HELPER, ["hang", HANGS]).stdin(Stdin::piped());
    let mut mount = mount.spawn().within(CEILING).await.unwrap();
    let stdin = mount.take_stdin();
    assert_eq!(first_line(&mut mount).await, "mounted\n");
    // The guest's users are below it too.
    answer(
        vm,
        &format!("rm /etc/passwd; ln -s {HANGS}/passwd /etc/passwd"),
    )
    .await;
    let program = Path::new(HANGS).join("program");
    let starts = || {
        [
            vm.exec("true", [""; 0]).current_dir(HANGS),
            vm.exec("true", [""; 0])
                .current_dir(HANGS)
                .stdin(Stdin::piped()),
            vm.exec(&program, [""; 0]),
            vm.exec("nosuch", [""; 0])
                .env("PATH", format!("/bin:{HANGS}")),
            vm.exec("true", [""; 0]).user("app"),
            vm.exec("true", [""; 0]).user("1000:1000"),
        ]
    };
    for _ in 0..2 {
        let mut waiting = JoinSet::new();
        for exec in starts() {
            waiting.spawn(exec.spawn());
        }
        on_their_way(vm, waiting.len()).await;
        for _ in 0..rounds(50) {
            assert_answers(vm).await;
        }
        assert_eq!(vm.client().active() as usize, 1 + waiting.len());
        assert!(waiting.try_join_next().is_none());
        // Nobody waits for them any more: they are killed where they stand.
        waiting.shutdown().await;
        on_their_way(vm, 0).await;
    }
    // Those who still wait when it goes away are told.
    let mut waiting = JoinSet::new();
    let [inside, ..] = starts();
    waiting.spawn(inside.spawn());
    on_their_way(vm, 1).await;
    drop(stdin);
    mount.wait().within(CEILING).await.unwrap();
    match waiting.join_next().within(CEILING).await.unwrap().unwrap() {
        Err(ExecError::NotStarted(told)) => {
            assert_eq!(told.kind, FailureKind::BadCwd, "{told}");
            assert!(told.message.contains(HANGS), "{told}");
        }
        other => panic!("{other:?}"),
    }
    answer(vm, "mv /tmp/passwd /etc/passwd").await;
    assert_slots_come_free(vm).await;
}

// A VM of its own: its devices stay out of reach.
#[tokio::test]
async fn a_terminal_needs_nothing_that_a_command_can_mount_over() {
    let vm = &TestVm::boot().await;
    let mount = vm.exec(HELPER, ["hang", "/dev"]).stdin(Stdin::piped());
    let mut mount = mount.spawn().within(CEILING).await.unwrap();
    assert_eq!(first_line(&mut mount).await, "mounted\n");
    for _ in 0..3 {
        assert_eq!(shown(vm.shell("echo shown")).await, "shown\r\n");
        assert_answers(vm).await;
    }
}
