//! What memory is held in the guest at a moment.

use anyhow::{Result, bail};
use forebay::Vm;

use crate::bench::flow::answer;

/// Memory in the guest, in bytes.
pub(crate) struct Guest {
    /// Resident in PID 1, which is the agent.
    pub(crate) agent: u64,
    /// What the kernel could still give away.
    pub(crate) free: u64,
}

impl Guest {
    /// Now.
    pub(crate) async fn look(vm: &Vm) -> Result<Self> {
        let script = "awk '/^VmRSS|^MemAvailable/ { print $2 }' /proc/1/status /proc/meminfo";
        let text = answer(vm, script).await?;
        let mut numbers = text.lines().map(str::parse::<u64>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(agent)), Some(Ok(free))) => Ok(Self {
                agent: agent << 10,
                free: free << 10,
            }),
            _ => bail!("the guest's memory is not told by {text:?}"),
        }
    }
}
