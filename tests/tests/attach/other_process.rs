//! `forebay exec --attach` as a shell sees it.

use std::io::Write as _;
use std::process::Stdio;

use forebay_guest_helper::pattern::Pattern;
use forebay_tests::{CEILING, Within as _, command, turn};

use super::{Attached, end};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_exit_code_and_options_are_as_with_run() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let out = end(attached
        .exec(&["sh", "-c", "echo hello; echo oops >&2; exit 3"])
        .spawn()
        .unwrap())
    .await;
    assert_eq!(out.stdout, b"hello\n");
    assert_eq!(out.stderr, b"oops\n");
    assert_eq!(out.status.code(), Some(3));

    let mut options = command();
    options.args(["exec", "--attach"]).arg(attached.path());
    options.args([
        "-e",
        "A=b=c",
        "-w",
        "/tmp",
        "--",
        "sh",
        "-c",
        "pwd; echo $A",
    ]);
    let out = end(options.spawn().unwrap()).await;
    assert_eq!(String::from_utf8_lossy(&out.stdout), "/tmp\nb=c\n");

    let missing = end(attached.exec(&["nosuch"]).spawn().unwrap()).await;
    assert_eq!(missing.status.code(), Some(127));
    let killed = end(attached.exec(&["sh", "-c", "kill -9 $$"]).spawn().unwrap()).await;
    assert_eq!(killed.status.code(), Some(137));

    let mut nowhere = command();
    nowhere.args(["exec", "--attach", "/nowhere/vm.sock", "true"]);
    let nowhere = end(nowhere.spawn().unwrap()).await;
    assert_eq!(nowhere.status.code(), Some(125));
    let text = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(text.contains("/nowhere/vm.sock"), "{text}");
    attached.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_pass_unchanged_both_ways_and_the_library_sees_them_in_its_guest() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let data = Pattern::new(3).take(8 << 20);
    let mut cat = attached.exec(&["sh", "-c", "echo $$ > /tmp/pid; exec cat"]);
    let mut cat = cat.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = cat.stdin.take().unwrap();
    let fed = data.clone();
    let feed = std::thread::spawn(move || stdin.write_all(&fed));
    let out = end(cat).await;
    feed.join().unwrap().unwrap();
    assert_eq!(
        (out.status.code(), String::from_utf8_lossy(&out.stderr)),
        (Some(0), "".into())
    );
    assert!(
        out.stdout == data,
        "{} bytes, or other ones",
        out.stdout.len()
    );
    let same_guest = attached.exec_in_library("cat /tmp/pid").await;
    assert!(same_guest.trim().parse::<u32>().is_ok(), "{same_guest}");
    attached.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vm_that_ends_ends_the_other_process_with_the_reason() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let sleeper = attached.exec(&["sleep", "1000"]).spawn().unwrap();
    attached.active(1).await;
    attached.kill();
    let out = end(sleeper).await;
    assert_eq!(out.status.code(), Some(125));
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("the VM is gone"), "{text}");
    attached.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vm_that_is_dropped_says_so_to_the_other_process() {
    let _turn = turn().await;
    let attached = Attached::boot().await;
    let sleeper = attached.exec(&["sleep", "1000"]).spawn().unwrap();
    attached.active(1).await;
    let Attached { vm, directory } = attached;
    drop(vm);
    let out = end(sleeper).await;
    assert_eq!(out.status.code(), Some(125));
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("the VM was dropped"), "{text}");
    drop(directory);
}

impl Attached {
    async fn exec_in_library(&self, line: &str) -> String {
        let out = self.shell(line).within(CEILING).await.unwrap();
        out.stdout_str().unwrap().to_owned()
    }
}
