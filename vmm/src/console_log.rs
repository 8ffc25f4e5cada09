//! What the guest printed, as much of it as is worth keeping.
//!
//! The guest spins while its console output is being taken, and it can print without end. So output
//! goes into a ring of fixed size, at memory speed, and the oldest lines fall out. Where lines are
//! missing the log says so.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_virtio_console::ConsoleSink;

/// How far to look for a line end, in bytes.
const LINE: usize = 1024;

/// Sees output as it comes; see [`ConsoleLog::with_tap`].
pub type Tap = Box<dyn Fn(&[u8]) + Send + Sync>;

/// The console of one VM: port 0 of the console device, and the early serial port.
///
/// Everything in it was written by the guest and may be anything, control sequences included.
pub struct ConsoleLog {
    ring: Mutex<Ring>,
    capacity: usize,
    tap: Option<Tap>,
}

#[derive(Debug, Default)]
struct Ring {
    bytes: VecDeque<u8>,
    /// Bytes that fell out at the front.
    dropped: u64,
}

impl ConsoleLog {
    /// What a VM keeps unless told otherwise, in bytes.
    pub const DEFAULT_CAPACITY: usize = 64 * 1024;

    /// Keeps the last `capacity` bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Arc<Self> {
        Self::with_tap(capacity, None)
    }

    /// Also shows each piece of output to `tap` as it comes, in order. The guest waits while `tap`
    /// runs: it must not block.
    #[must_use]
    pub fn with_tap(capacity: usize, tap: Option<Tap>) -> Arc<Self> {
        Arc::new(Self {
            ring: Mutex::default(),
            capacity,
            tap,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds output.
    pub(crate) fn append(&self, bytes: &[u8]) {
        self.lock().append(bytes, self.capacity);
        if let Some(tap) = &self.tap {
            tap(bytes);
        }
    }

    /// Everything that is kept, as text. Begins with a line that says how many bytes are missing, if
    /// any are.
    #[must_use]
    pub fn text(&self) -> String {
        let ring = self.lock();
        let mut text = ring.gap();
        text.push_str(&ring.kept());
        text
    }

    /// The last `count` lines that have something on them.
    #[must_use]
    pub fn last_lines(&self, count: usize) -> String {
        let kept = self.lock().kept();
        let lines: Vec<_> = kept
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        lines
            .get(lines.len().saturating_sub(count)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// Number of bytes written so far, kept or not.
    #[must_use]
    pub fn written(&self) -> u64 {
        let ring = self.lock();
        ring.dropped + ring.bytes.len() as u64
    }
}

impl Ring {
    fn append(&mut self, bytes: &[u8], capacity: usize) {
        let skipped = bytes.len().saturating_sub(capacity);
        let fresh = bytes.get(skipped..).unwrap_or_default();
        let over = (self.bytes.len() + fresh.len()).saturating_sub(capacity);
        if over > 0 {
            // Whole lines: the cut moves to behind the next line end, if there is one near. Looking
            // further would let a guest that prints none make every piece cost the whole ring.
            let cut = self
                .bytes
                .iter()
                .skip(over - 1)
                .take(LINE)
                .position(|byte| *byte == b'\n')
                .map_or(over, |more| over + more)
                .min(self.bytes.len());
            self.bytes.drain(..cut);
            self.dropped += cut as u64;
        }
        self.dropped += skipped as u64;
        self.bytes.extend(fresh);
    }

    fn gap(&self) -> String {
        match self.dropped {
            0 => String::new(),
            dropped => format!("[{dropped} earlier bytes dropped]\n"),
        }
    }

    fn kept(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }
}

impl ConsoleSink for ConsoleLog {
    fn write(&self, bytes: &[u8]) {
        self.append(bytes);
    }
}

/// The same, for the serial port, which writes to an [`io::Write`].
#[derive(Debug, Clone)]
pub(crate) struct SerialOutput(pub(crate) Arc<ConsoleLog>);

impl io::Write for SerialOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for ConsoleLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleLog")
            .field("capacity", &self.capacity)
            .field("written", &self.written())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "console_log_test.rs"]
mod tests;
