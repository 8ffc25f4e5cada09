//! Who a command runs as: from the guest's own files, whatever those are.

use forebay::{ExecError, Failure, FailureKind, TerminalSize};
use forebay_tests::{CEILING, TestVm, Within as _};

use super::{answer, assert_answers, assert_slots_come_free, shared};

/// Gives the guest its users, whatever stands in their place.
async fn with_users(vm: &TestVm) {
    let script = "rm -rf /etc/passwd /etc/group; \
        printf '%s\\n' root:x:0:0:root:/root:/bin/sh \
            app:x:2000:2000:App:/home/app:/bin/ash bare:x:2001:2001::: > /etc/passwd; \
        printf '%s\\n' root:x:0:root tty:x:5: app:x:2000: audio:x:29:app,bare staff:x:50: \
            video:x:44:bare,app > /etc/group; \
        rm -rf /workspace/users; mkdir -p /workspace/users; chmod 1777 /workspace/users";
    answer(vm, script).await;
}

/// What a script prints as `user`, trimmed. It has to succeed and to be silent on stderr.
async fn answer_as(vm: &TestVm, user: &str, script: &str) -> String {
    let out = vm.shell(script).user(user).within(CEILING).await.unwrap();
    let stdout = out.stdout_str().unwrap().trim().to_owned();
    assert_eq!(out.stderr(), b"", "{user}: {script}");
    assert!(out.status().success(), "{user}: {}: {stdout}", out.status());
    stdout
}

/// Why nothing can run as `user`.
async fn refused(vm: &TestVm, user: &str) -> Failure {
    match vm.exec("true", [""; 0]).user(user).within(CEILING).await {
        Err(ExecError::NotStarted(failure)) => {
            assert_eq!(failure.kind, FailureKind::UserSetup, "{failure}");
            assert_eq!(failure.stage, "user", "{failure}");
            failure
        }
        other => panic!("{user}: {other:?}"),
    }
}

// B17
#[tokio::test]
async fn a_command_has_the_ids_groups_and_home_of_its_user_and_makes_files_of_that_user() {
    let vm = &*shared().await;
    with_users(vm).await;
    // ids, all groups, what it is told of itself, and the owner of a file that it makes
    let script = "id -u; id -g; id -G; echo $HOME,$USER,$LOGNAME,$SHELL; \
                  touch /workspace/users/u; stat -c %u:%g /workspace/users/u; \
                  rm /workspace/users/u; grep -E 'Cap(Prm|Eff)' /proc/self/status | cut -f2";
    let none = "0000000000000000";
    for (user, uid, gid, groups, told) in [
        (
            "app",
            2000,
            2000,
            "2000 29 44",
            "/home/app,app,app,/bin/ash",
        ),
        (
            "2000",
            2000,
            2000,
            "2000 29 44",
            "/home/app,app,app,/bin/ash",
        ),
        ("bare", 2001, 2001, "2001 29 44", "/,bare,bare,/bin/sh"),
        ("1000", 1000, 1000, "1000", "/,,,"),
        ("1000:1001", 1000, 1001, "1001", "/,,,"),
        ("app:staff", 2000, 50, "50", "/home/app,app,app,/bin/ash"),
        ("app:1001", 2000, 1001, "1001", "/home/app,app,app,/bin/ash"),
    ] {
        let seen = answer_as(vm, user, script).await;
        let expected = format!("{uid}\n{gid}\n{groups}\n{told}\n{uid}:{gid}\n{none}\n{none}");
        assert_eq!(seen, expected, "{user}");
    }
    let seen = answer_as(vm, "0", "id -u; id -G; echo $HOME,$USER,$LOGNAME,$SHELL").await;
    assert_eq!(seen, "0\n0\n/root,root,root,/bin/sh");
}

// B17
#[tokio::test]
async fn what_the_request_sets_wins_over_what_the_user_brings() {
    let vm = &*shared().await;
    with_users(vm).await;
    let exec = vm.shell("echo $HOME,$USER,$LOGNAME,$SHELL; pwd");
    let exec = exec.user("app").env("HOME", "/own").env("SHELL", "");
    let out = exec.within(CEILING).await.unwrap();
    assert_eq!(out.stdout_str().unwrap(), "/own,app,app,\n/\n");
    // Without a user nothing is said of one.
    let out = vm.exec("env", [""; 0]).within(CEILING).await.unwrap();
    let mut names: Vec<_> = out.stdout_str().unwrap().lines().collect();
    names.sort_unstable();
    assert!(
        matches!(names[..], ["HOME=/root", path] if path.starts_with("PATH=")),
        "{names:?}"
    );
}

// B17
#[tokio::test]
async fn a_user_or_group_that_nobody_knows_is_no_start() {
    let vm = &*shared().await;
    with_users(vm).await;
    let ghost = refused(vm, "ghost").await;
    assert!(ghost.message.contains("ghost"), "{ghost}");
    assert!(ghost.message.contains("/etc/passwd"), "{ghost}");
    assert_eq!(ghost.errno, None);
    let group = refused(vm, "app:ghosts").await;
    assert!(group.message.contains("app:ghosts"), "{group}");
    assert!(group.message.contains("/etc/group"), "{group}");
    match vm.exec("true", [""; 0]).user("").within(CEILING).await {
        Err(ExecError::NotStarted(Failure { kind, .. })) => {
            assert_eq!(kind, FailureKind::UserSetup);
        }
        Err(ExecError::InvalidRequest { field, .. }) => assert_eq!(field, "user"),
        other => panic!("{other:?}"),
    }
    assert_slots_come_free(vm).await;
}

// B17
#[tokio::test]
async fn numbers_run_in_a_guest_without_users() {
    let vm = &*shared().await;
    with_users(vm).await;
    answer(vm, "rm /etc/passwd /etc/group").await;
    for (user, ids) in [
        ("0", "0 0"),
        ("1000", "1000 1000"),
        ("1000:1001", "1000 1001"),
    ] {
        let seen = answer_as(vm, user, "echo $(id -u) $(id -G)").await;
        assert_eq!(seen, ids, "{user}");
    }
    refused(vm, "app").await;
    with_users(vm).await;
    assert_eq!(answer_as(vm, "app", "id -u").await, "2000");
}

// A hostile image.
#[tokio::test]
async fn files_of_users_that_are_none_fail_only_who_asks_for_a_user() {
    let vm = &*shared().await;
    for (place, reason) in [
        ("mkfifo /etc/passwd", "no regular file"),
        ("mkdir /etc/passwd", "no regular file"),
        ("ln -s /dev/zero /etc/passwd", "no regular file"),
        ("ln -s passwd /etc/passwd", "ELOOP"),
        ("yes | head -c 2000000 > /etc/passwd", "larger than 1 MiB"),
        ("truncate -s 1000000000000 /etc/passwd", "larger than 1 MiB"),
    ] {
        with_users(vm).await;
        answer(vm, &format!("rm /etc/passwd; {place}")).await;
        let failure = refused(vm, "app").await;
        assert!(failure.message.contains(reason), "{place}: {failure}");
        assert!(failure.errno.is_some(), "{place}: {failure}");
        assert_answers(vm).await;
    }
    with_users(vm).await;
    assert_eq!(answer_as(vm, "app", "id -u").await, "2000");
}

#[tokio::test]
async fn a_users_streams_are_its_own() {
    let vm = &*shared().await;
    with_users(vm).await;
    let out = vm
        .shell("cat /dev/stdin; echo out > /dev/stdout; echo err > /dev/stderr")
        .user("app")
        .stdin(forebay::Stdin::bytes("in\n"))
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(out.stdout_str().unwrap(), "in\nout\n", "{:?}", out.stderr());
    assert_eq!(out.stderr_str().unwrap(), "err\n");
    // The null device stays everybody's.
    answer_as(vm, "app", "cat /dev/stdin").await;
    assert_eq!(answer(vm, "stat -c %u:%a /dev/null").await, "0:666");
}

// B41: a terminal of somebody who is not root.
#[tokio::test]
async fn a_users_terminal_is_its_own_and_of_the_group_tty() {
    let vm = &*shared().await;
    with_users(vm).await;
    let script = "stat -c %u:%g:%a $(tty); echo tty > /dev/tty; echo name > $(tty)";
    for (user, uid) in [("app", 2000), ("1000", 1000)] {
        let exec = vm
            .shell(script)
            .user(user)
            .terminal(TerminalSize::default());
        let out = exec.within(CEILING).await.unwrap();
        let expected = format!("{uid}:5:620\r\ntty\r\nname\r\n");
        assert_eq!(out.stdout_str().unwrap(), expected);
    }
}
