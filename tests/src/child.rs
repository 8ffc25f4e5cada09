//! Programs of this machine that a test started: none outlives its test.

use std::io::Read;
use std::ops::{Deref, DerefMut};
use std::process::{Child, ExitStatus, Output};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::pace::scaled;

/// How often [`Running::end`] looks when the streams have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A child of this process. Dropping it kills it and waits for it, so that a test that gives up
/// leaves no VM behind that takes the processors from the next.
#[derive(Debug)]
pub struct Running(Child);

impl From<Child> for Running {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Running {
    /// The child's end, with what it wrote to the streams that are piped and were not taken.
    ///
    /// # Panics
    /// When it has not ended within `ceiling` (as on hardware; it is scaled): a hang.
    #[must_use]
    pub fn end(mut self, ceiling: Duration) -> Output {
        let ceiling = scaled(ceiling);
        let deadline = Instant::now() + ceiling;
        drop(self.stdin.take());
        // Both are read by threads of their own: a child may write much to either.
        let stdout = self.stdout.take().map(read_all);
        let stderr = self.stderr.take().map(read_all);
        let wait = || {
            let output = Output {
                stdout: received(stdout, deadline)?,
                stderr: received(stderr, deadline)?,
                status: self.status(deadline)?,
            };
            Some(output)
        };
        wait().unwrap_or_else(|| panic!("hang: pid {} has not ended within {ceiling:?}", self.id()))
    }

    fn status(&mut self, deadline: Instant) -> Option<ExitStatus> {
        while Instant::now() < deadline {
            if let Some(status) = self.try_wait().expect("it is our child") {
                return Some(status);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        None
    }
}

fn read_all(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("a pipe can be read");
        // Refused only when the test has given up.
        let _ = sender.send(all);
    });
    receiver
}

/// Nothing of a stream that is not there; `None` when its end has not come.
fn received(stream: Option<Receiver<Vec<u8>>>, deadline: Instant) -> Option<Vec<u8>> {
    let Some(stream) = stream else {
        return Some(Vec::new());
    };
    let left = deadline.saturating_duration_since(Instant::now());
    stream.recv_timeout(left).ok()
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

#[cfg(test)]
#[path = "child_test.rs"]
mod tests;
