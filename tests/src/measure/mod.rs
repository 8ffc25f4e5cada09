//! What benchmarks and experiments have in common: how time passes, what is said of samples, tables,
//! and what guests are given to do meanwhile.
//!
//! | module | owns |
//! |---|---|
//! | `clock` | how time passes, and the units that follow from it |
//! | [`statistics`] | samples, their least, their median, their tail; numbers for people |
//! | [`table`] | rows of figures, for people and as JSON |
//! | [`commands`] | a command that does nothing, a command that writes |
//! | [`streams`] | endless writers, and a thread that reads them |
//! | [`beside`] | what runs beside the command that is measured |
//! | [`still`] | waiting until executions stand still |

pub mod beside;
mod clock;
pub mod commands;
pub mod statistics;
pub mod still;
pub mod streams;
pub mod table;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use forebay::Vm;
use tokio::runtime::{Builder, Runtime};

pub use clock::Clock;

/// The application's side: one thread, ours, that polls what we wait for.
pub fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Far beyond any sample: what takes so long is not measured but reported.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something that a VM does; if it takes too long, the error has the VM's state.
pub async fn within<T>(vm: &Vm, what: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(PATIENCE, what).await {
        Ok(done) => done,
        Err(_) => bail!(
            "no end within {PATIENCE:?}; the VM: {}; its console: {}",
            serde_json::to_string(&vm.inspect())?,
            vm.console().last_lines(20)
        ),
    }
}

/// Milliseconds since then.
pub fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
