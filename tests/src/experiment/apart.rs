//! A sample in a process of its own: this program again, told which point to visit. What it says comes
//! back over its stdout.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::experiment::plan::Point;
use crate::experiment::sample::Recorded;

/// What came of a visit.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Visited {
    pub(super) recorded: Vec<Recorded>,
    /// Why the sample failed.
    pub(super) failure: Option<String>,
}

/// Has another process visit the point. That process keeps the deadline.
///
/// # Errors
/// If it did not say what came of it.
pub(super) fn visit(point: &Point) -> Result<Visited> {
    let done = Command::new(std::env::current_exe().context("find this program")?)
        .args(std::env::args_os().skip(1))
        .arg("--visit")
        .arg(serde_json::to_string(point)?)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run this program again")?;
    let status = done.status;
    ensure!(status.success(), "the sample's process ended with {status}");
    serde_json::from_slice(&done.stdout).context("understand the sample's process")
}

/// Is that process: tells what came of the visit.
pub(super) fn tell(visited: &Visited) -> Result<()> {
    println!("{}", serde_json::to_string(visited)?);
    Ok(())
}

/// Ends this process with the one that started it: nobody else reads what it says.
pub(super) fn end_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("be ended with the parent")
}
