//! All slots at once, each with its output unread: the host holds the allowances and little beside.
//!
//! The benchmark's program is run for it, a process of its own for each case: memory that an earlier
//! one gave back to the allocator would hide what this one takes.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use forebay_tests::{Running, turn};
use serde::Deserialize;

use super::LONG;

/// Names the benchmark's program; else the one that cargo built with these tests.
const VARIABLE: &str = "FOREBAY_BENCH";

/// What the program says of a bound.
#[derive(Debug, Deserialize)]
struct Bound {
    /// Bytes.
    grown: u64,
    at_most: u64,
}

// B03
#[tokio::test]
async fn with_all_outputs_unread_the_host_holds_the_allowances_and_little_beside() {
    holds("output", 128 * (1024 * 1024) + 4 * 1024 * 1024).await;
}

// B03
#[tokio::test]
async fn so_it_does_when_each_unread_chunk_is_a_single_byte() {
    holds("tiny-output", 128 * (64 * 1024) + 4 * 1024 * 1024).await;
}

async fn holds(case: &str, at_most: u64) {
    let _turn = turn().await;
    let mut command = Command::new(program());
    command
        .args(["--quick", "--stand-still", case])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let child = Running::from(command.spawn().expect("the benchmark's program starts"));
    let ended = child.end(LONG);
    assert!(ended.status.success(), "{case}: {}", ended.status);
    let said = String::from_utf8(ended.stdout).unwrap();
    println!("{said}");
    let bounds: Vec<Bound> = serde_json::from_str(&said).unwrap();
    assert_eq!(bounds.len(), 1, "{said}");
    assert_eq!(bounds[0].at_most, at_most, "{said}");
    assert!(bounds[0].grown <= at_most, "{said}");
}

fn program() -> PathBuf {
    let built = || env!("CARGO_BIN_EXE_forebay-bench").into();
    std::env::var_os(VARIABLE).map_or_else(built, PathBuf::from)
}
