//! `forebay snapshot`, `restore` and `fork`.

use std::collections::HashSet;
use std::process::Output;

use super::{forebay, output};

/// `forebay SUBCOMMAND` in the test image, with these arguments behind it.
fn in_image(subcommand: &[&str], arguments: &[&str]) -> Output {
    let image = forebay_tests::image();
    let mut command = forebay(subcommand);
    command
        .arg("--image")
        .arg(image.directory())
        .args(arguments);
    output(command)
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_warm_vm_is_saved_restored_and_copied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("warm");
    let path = path.to_str().unwrap();
    let warm = ["--", "sh", "-c", "echo warm > /tmp/state; echo done"];
    let out = in_image(&["snapshot", "--cpus", "2"], &[&[path][..], &warm].concat());
    assert_eq!(
        (said(&out.stdout).as_str(), out.status.code()),
        ("done\n", Some(0))
    );
    assert!(said(&out.stderr).contains(path), "{}", said(&out.stderr));

    let script = "cat /tmp/state; hostname; exit 5";
    let out = output(forebay(&[
        "restore",
        "--hostname",
        "copy",
        path,
        "--",
        "sh",
        "-c",
        script,
    ]));
    assert_eq!(
        (said(&out.stdout).as_str(), out.status.code()),
        ("warm\ncopy\n", Some(5))
    );

    // The same VM without its memory.
    let script = "ls /tmp/state; nproc; hostname; exit 5";
    let fresh = ["restore", "--disk-only", "--hostname", "fresh", path, "--"];
    let out = output(forebay(&[&fresh[..], &["sh", "-c", script]].concat()));
    assert_eq!(
        (said(&out.stdout).as_str(), out.status.code()),
        ("2\nfresh\n", Some(5)),
        "{}",
        said(&out.stderr)
    );

    let uuid = "/proc/sys/kernel/random/uuid";
    let out = output(forebay(&[
        "fork", "-n", "3", "--from", path, "--", "cat", uuid,
    ]));
    assert_eq!(out.status.code(), Some(0), "{}", said(&out.stderr));
    let printed = said(&out.stdout);
    let uuids: HashSet<_> = printed
        .lines()
        .filter_map(|line| line.split_once(": "))
        .collect();
    assert_eq!(uuids.len(), 3, "{printed}");
    let table = said(&out.stderr);
    assert!(
        table.contains("private MiB") && table.contains("median"),
        "{table}"
    );

    // What is there is not written over, and that is said before anything is booted.
    let out = in_image(&["snapshot"], &[path]);
    assert_eq!(out.status.code(), Some(125));
    assert!(
        said(&out.stderr).contains("not empty"),
        "{}",
        said(&out.stderr)
    );
}

#[test]
fn a_warm_up_that_fails_leaves_no_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cold");
    let out = in_image(
        &["snapshot"],
        &[path.to_str().unwrap(), "--", "sh", "-c", "exit 6"],
    );
    assert_eq!(out.status.code(), Some(6));
    assert!(!path.exists());
}

#[test]
fn a_vm_is_booted_to_be_copied_and_what_its_copies_come_to_is_told() {
    let arguments = [
        "--warm-up",
        "echo warm > /tmp/state",
        "--",
        "sh",
        "-c",
        "cat /tmp/state; exit 3",
    ];
    let out = in_image(&["fork", "-n", "2"], &arguments);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out.stderr));
    let printed = said(&out.stdout);
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1: warm", "2: warm"]);
}
