//! The `forebay` command under test.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Names the program under test.
const VARIABLE: &str = "FOREBAY_COMMAND";

/// `forebay` with no arguments yet, its streams piped and its stdin at its end: the program that
/// `FOREBAY_COMMAND` names, otherwise the one beside this, where cargo puts it.
///
/// # Panics
/// Without one; the message says how to get it.
#[must_use]
pub fn command() -> Command {
    let mut command = Command::new(program());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn program() -> PathBuf {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return path.into();
    }
    let tests = std::env::current_exe().unwrap_or_default();
    let beside = tests
        .ancestors()
        .nth(2)
        .map(|directory| directory.join("forebay"));
    beside.filter(|path| path.exists()).unwrap_or_else(|| {
        panic!("no `forebay` to test: build it (cargo build -p forebay-cli) or set {VARIABLE}")
    })
}
