//! What programs expect to find in any Linux, root or not: devices, file systems, the loopback.

use forebay::{Exec, Stdin};
use forebay_tests::{CEILING, HELPER, TestVm, Within as _};

use super::{answer, shared};

const USERS: [&str; 2] = ["0", "1000"];

/// A command's stdout; it has to succeed.
async fn said(exec: Exec) -> String {
    let out = exec.within(CEILING).await.unwrap();
    let stderr = out.stderr_str().unwrap();
    assert!(out.status().success(), "{}: {stderr}", out.status());
    out.stdout_str().unwrap().to_owned()
}

// B41
#[tokio::test]
async fn the_usual_devices_are_there_for_every_user() {
    let vm: &TestVm = &*shared().await;
    for user in USERS {
        let by = |script: &str| vm.shell(script).user(user);
        let devices = "for d in null zero full random urandom tty ptmx; do \
                       [ -c /dev/$d ] || echo no /dev/$d; done; \
                       for d in null zero random urandom; do \
                       [ -r /dev/$d ] || echo unreadable /dev/$d; done; \
                       for d in null zero full; do \
                       [ -w /dev/$d ] || echo unwritable /dev/$d; done";
        assert_eq!(said(by(devices)).await, "", "for {user}");
        let read = by("cat /dev/stdin; cat /dev/fd/0").stdin(Stdin::bytes("in\n"));
        assert_eq!(said(read).await, "in\n");
        let written = by("echo out > /dev/stdout; echo out > /dev/fd/1");
        assert_eq!(said(written).await, "out\nout\n");
        let wrong = by("echo wrong > /dev/stderr")
            .within(CEILING)
            .await
            .unwrap();
        assert_eq!(wrong.stderr(), b"wrong\n");
        let full = by("echo x > /dev/full").status().within(CEILING).await;
        assert!(!full.unwrap().success());
    }
}

// B41
#[tokio::test]
async fn memory_and_semaphores_are_shared_by_name_by_every_user() {
    let vm: &TestVm = &*shared().await;
    for user in USERS {
        assert_eq!(said(vm.exec(HELPER, ["share"]).user(user)).await, "");
    }
}

// B41
#[tokio::test]
async fn the_usual_file_systems_are_mounted_and_anybody_may_write_where_anybody_should() {
    let vm: &TestVm = &*shared().await;
    let mounts = answer(vm, "cut -d' ' -f2,3 /proc/mounts").await;
    for mount in [
        "/proc proc",
        "/sys sysfs",
        "/dev devtmpfs",
        "/dev/pts devpts",
        "/dev/shm tmpfs",
        "/tmp tmpfs",
        "/run tmpfs",
        "/sys/fs/cgroup cgroup2",
    ] {
        assert!(
            mounts.lines().any(|line| line == mount),
            "{mount}: {mounts}"
        );
    }
    let modes = answer(vm, "stat -c '%a %n' /tmp /dev/shm").await;
    assert_eq!(modes, "1777 /tmp\n1777 /dev/shm");
    let write = "for d in /tmp /dev/shm; do echo $d > $d/by-1000 && cat $d/by-1000; \
                 rm $d/by-1000; done";
    assert_eq!(said(vm.shell(write).user("1000")).await, "/tmp\n/dev/shm\n");
}

// B41
#[tokio::test]
async fn the_loopback_interface_is_up() {
    let vm: &TestVm = &*shared().await;
    // A server that says one line to whoever comes, and a client that comes when it is there.
    let talk = "echo hello | nc -l -p 4141 & \
                until nc 127.0.0.1 4141 < /dev/null; do sleep .05; done 2> /dev/null; wait";
    assert_eq!(answer(vm, talk).await, "hello");
}
