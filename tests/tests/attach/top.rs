//! `forebay top` as a shell sees it.

use std::process::Stdio;

use forebay_tests::{command, turn};

use super::end;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_of_no_vm_says_where_it_looked() {
    let _turn = turn().await;
    let mut nowhere = command();
    nowhere.args(["top", "--attach", "/nowhere/vm.sock", "--once"]);
    let out = end(nowhere.stdin(Stdio::null()).spawn().unwrap()).await;
    assert_eq!(out.status.code(), Some(125));
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("/nowhere/vm.sock"), "{text}");
}
