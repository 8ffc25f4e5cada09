//! The most memory that this process holds over a time, looked at by a thread of its own: what an
//! asynchronous test waits for does not keep it from looking.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::host_use::resident_beyond_guests;

/// Looks until it is asked, or dropped.
#[derive(Debug)]
pub struct MemoryWatch {
    before: u64,
    most: Arc<AtomicU64>,
    /// Its end is the thread's.
    goes_on: Sender<()>,
    thread: JoinHandle<()>,
}

impl MemoryWatch {
    /// Begins: what is held now is what [`grown`](Self::grown) compares with.
    ///
    /// # Panics
    /// Where there is no `/proc`, or no further thread.
    #[must_use]
    pub fn start(every: Duration) -> Self {
        let most = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&most);
        let (goes_on, over) = channel::<()>();
        let (first, begun) = channel();
        let watch = move || {
            let look = || {
                let now = resident_beyond_guests();
                seen.fetch_max(now, Ordering::Relaxed);
                now
            };
            // By this thread too, so that what it needs itself is no growth.
            if first.send(look()).is_err() {
                return;
            }
            while over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                look();
            }
            look();
        };
        let thread = std::thread::Builder::new().name("memory-watch".to_owned());
        let thread = thread.spawn(watch).expect("a thread can be started");
        Self {
            before: begun.recv().expect("it looks first of all"),
            most,
            goes_on,
            thread,
        }
    }

    /// By how many bytes memory beyond the guests' had grown when it was most, with a last look now.
    ///
    /// # Panics
    /// Where there is no `/proc` any more.
    #[must_use]
    pub fn grown(self) -> u64 {
        drop(self.goes_on);
        self.thread.join().expect("it only looks");
        self.most.load(Ordering::Relaxed) - self.before
    }
}

#[cfg(test)]
#[path = "memory_watch_test.rs"]
mod tests;
