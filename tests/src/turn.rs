//! One test at a time.
//!
//! Tests here share a VM, count what the process holds and use up processors. Two at once would
//! see each other, so each takes a turn, whatever `--test-threads` says.

use tokio::sync::{Mutex, MutexGuard};

/// A test's turn, until it is dropped.
pub type Turn = MutexGuard<'static, ()>;

/// Waits for the turn. A test that panics gives it back.
pub async fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}
