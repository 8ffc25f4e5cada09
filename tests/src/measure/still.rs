//! Waiting until executions stand still because nobody reads, or nobody may write.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use forebay::{ExecutionView, Vm};

use crate::measure::PATIENCE;

/// How often memory is looked at, and whether all stand still.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What a chunk costs beside its bytes.
const CHARGE: u64 = 256;

/// Waits until the output of so many executions has filled their allowances; says what is held.
pub async fn until_full(vm: &Vm, count: usize) -> Result<String> {
    until_still(vm, |vm| full(vm, count)).await
}

/// The same for what was written to their stdin.
pub async fn until_stdin_full(vm: &Vm, count: usize) -> Result<String> {
    let stalled = |execution: &&ExecutionView| execution.stdin_window == 0;
    until_still(vm, |vm| {
        let executions = vm.inspect().executions.executions;
        let stalled = executions.iter().filter(stalled).count();
        (stalled == count).then(|| stalled.to_string())
    })
    .await
}

/// Waits until two looks in a row find the same.
async fn until_still(vm: &Vm, look: impl Fn(&Vm) -> Option<String>) -> Result<String> {
    let since = Instant::now();
    let mut before = None;
    loop {
        let now = look(vm);
        if now.is_some() && now == before {
            return Ok(now.unwrap_or_default());
        }
        // One-byte chunks take their time.
        if since.elapsed() > 4 * PATIENCE {
            bail!(
                "executions do not come to stand still: {}",
                serde_json::to_string(&vm.inspect().executions)?
            );
        }
        before = now;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What is held of output, if exactly so many executions have no room for another chunk.
pub fn full(vm: &Vm, count: usize) -> Option<String> {
    let chunk = u64::from(vm.client().limits().output_chunk_size) + CHARGE;
    let no_room = |execution: &&ExecutionView| execution.output_window < chunk;
    let executions = vm.inspect().executions.executions;
    let stalled: Vec<_> = executions.iter().filter(no_room).collect();
    let bytes: usize = stalled.iter().map(|execution| execution.output_held).sum();
    let chunks: usize = stalled.iter().map(|execution| execution.chunks_held).sum();
    (stalled.len() == count).then(|| format!("{bytes} bytes in {chunks} chunks unread"))
}
