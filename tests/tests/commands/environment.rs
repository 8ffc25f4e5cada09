//! What a command sees of its surroundings: what was declared, nothing of the agent's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use forebay::{ExecError, FailureKind, Stdin};
use forebay_tests::{CEILING, HELPER, TestVm, Within as _, builder, turn};

use super::shared;

#[tokio::test]
async fn the_vms_environment_is_the_ground_and_the_requests_wins() {
    let _turn = turn().await;
    let vm = TestVm::start(
        builder()
            .hostname("basin")
            .env("LEVEL", "vm")
            .env("KEPT", "yes")
            .current_dir("/workspace"),
    )
    .await;
    let exec = vm
        .exec("env", [""; 0])
        .env("LEVEL", "first")
        .env("LEVEL", "request")
        .env("OWN", "1");
    let out = exec.within(CEILING).await.unwrap();
    let mut lines: Vec<_> = out.stdout_str().unwrap().lines().collect();
    lines.sort_unstable();
    let expected = [
        "HOME=/root",
        "KEPT=yes",
        "LEVEL=request",
        "OWN=1",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ];
    assert_eq!(lines, expected);

    let out = vm.shell("hostname; pwd").within(CEILING).await.unwrap();
    assert_eq!(out.stdout_str().unwrap(), "basin\n/workspace\n");
    let out = vm
        .exec("pwd", [""; 0])
        .current_dir("/tmp")
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(out.stdout_str().unwrap(), "/tmp\n");
    vm.close().await;
}

// B12
#[tokio::test]
async fn odd_bytes_in_words_and_values_arrive_unchanged() {
    let vm = &*shared().await;
    let odd = OsStr::from_bytes(b"a\nb=\x80\xff c");
    let out = vm
        .exec("printf", [OsStr::new("%s|"), odd, OsStr::new("")])
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(out.stdout(), b"a\nb=\x80\xff c||");
    let out = vm
        .shell("printf %s \"$ODD\"")
        .env("ODD", odd)
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(out.stdout(), odd.as_bytes());
}

// B11
#[tokio::test]
async fn a_program_is_looked_up_in_the_path_that_it_gets() {
    let vm = &*shared().await;
    let files = "mkdir -p /opt/x /opt/y; printf '#!/bin/sh\\necho hi\\n' > /opt/x/hi; \
                 chmod 755 /opt/x/hi; echo no > /opt/y/hi; chmod 644 /opt/y/hi";
    assert!(
        vm.shell(files)
            .within(CEILING)
            .await
            .unwrap()
            .status()
            .success()
    );
    let hi = |path: &'static str| vm.exec("hi", [""; 0]).env("PATH", path).within(CEILING);
    assert_eq!(hi("/opt/x").await.unwrap().stdout(), b"hi\n");
    assert_eq!(hi("/opt/y:/opt/x").await.unwrap().stdout(), b"hi\n");
    for elsewhere in ["", "/bin:/usr/bin"] {
        match hi(elsewhere).await {
            Err(ExecError::NotStarted(failure)) => assert_eq!(failure.kind, FailureKind::NotFound),
            other => panic!("PATH={elsewhere}: {other:?}"),
        }
    }
    let here = vm
        .exec("./hi", [""; 0])
        .current_dir("/opt/x")
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(here.stdout(), b"hi\n");
}

// B16
#[tokio::test]
async fn a_command_holds_its_three_streams_and_nothing_of_the_agents() {
    let vm = &*shared().await;
    let mut others = Vec::new();
    for _ in 0..20 {
        let other = vm.exec("cat", [""; 0]).stdin(Stdin::piped());
        others.push(other.spawn().within(CEILING).await.unwrap());
    }
    for stdin in [Stdin::null(), Stdin::bytes("x")] {
        let null = stdin == Stdin::null();
        let out = vm
            .exec(HELPER, ["fds"])
            .stdin(stdin)
            .within(CEILING)
            .await
            .unwrap();
        let lines: Vec<_> = out.stdout_str().unwrap().lines().collect();
        let [first, second, third] = lines.as_slice() else {
            panic!("{lines:?}")
        };
        let source = if null { "0 /dev/null" } else { "0 pipe:[" };
        assert!(first.starts_with(source), "{lines:?}");
        assert!(second.starts_with("1 pipe:["), "{lines:?}");
        assert!(third.starts_with("2 pipe:["), "{lines:?}");
    }
    // The fourth is the directory that `ls` itself reads, which is closed when it is looked at.
    let out = vm
        .exec("ls", ["-l", "/proc/self/fd"])
        .within(CEILING)
        .await
        .unwrap();
    let listing = out.stdout_str().unwrap();
    assert_eq!(
        listing.lines().filter(|line| line.contains(" -> ")).count(),
        3,
        "{listing}"
    );
    for agents in ["vport", "hvc", "console", "socket:", "anon_inode"] {
        assert!(!listing.contains(agents), "{listing}");
    }
}

// B14, B15
#[tokio::test]
async fn a_command_begins_with_no_signal_blocked_or_ignored() {
    let vm = &*shared().await;
    let out = vm
        .exec("grep", ["-E", "Sig(Blk|Ign)", "/proc/self/status"])
        .within(CEILING)
        .await
        .unwrap();
    let expected = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n";
    assert_eq!(out.stdout_str().unwrap(), expected);

    let out = vm
        .shell("yes | head -n 3; echo $?")
        .within(CEILING)
        .await
        .unwrap();
    assert_eq!(
        (out.stdout(), out.stderr()),
        (&b"y\ny\ny\n0\n"[..], &b""[..])
    );
}

#[tokio::test]
async fn a_command_leads_its_own_session_group_and_cgroup() {
    let vm = &*shared().await;
    // Fields of stat: pid, name, state, parent, group, session.
    let line = "read pid name state parent group session rest < /proc/self/stat; \
                echo $pid $parent $group $session; cat /proc/self/cgroup; umask";
    let command = vm.shell(line).spawn().within(CEILING).await.unwrap();
    let (id, pid) = (command.id(), command.pid());
    let out = command.collect().within(CEILING).await.unwrap();
    let lines: Vec<_> = out.stdout_str().unwrap().lines().collect();
    let [family, group, umask] = lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(family, format!("{pid} 1 {pid} {pid}"));
    // Below the group in which its memory is accounted for.
    assert!(group.starts_with("0::/forebay/account-"), "{group}");
    assert!(group.ends_with(&format!("/{id}")), "{group}");
    assert_eq!(umask, "0022");
}
