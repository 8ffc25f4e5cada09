use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

fn shell(line: &str) -> Running {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]);
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::from(shell.spawn().unwrap())
}

#[test]
fn an_end_has_both_streams_whichever_is_larger() {
    let out = shell("head -c 300000 /dev/zero >&2; echo out; exit 3").end(Duration::from_secs(10));
    assert_eq!(
        (out.status.code(), out.stdout),
        (Some(3), b"out\n".to_vec())
    );
    assert_eq!(out.stderr.len(), 300_000);
}

#[test]
fn a_child_that_hangs_is_killed_by_the_panic_that_says_so() {
    for line in ["exec sleep 1000", "exec >&- 2>&-; exec sleep 1000"] {
        let child = shell(line);
        let process = format!("/proc/{}", child.id());
        let ended = catch_unwind(AssertUnwindSafe(|| child.end(Duration::from_millis(50))));
        assert!(ended.is_err(), "{line}");
        assert!(!Path::new(&process).exists(), "{line} goes on");
    }
}
