//! A command that counts for ever, whose every byte is known: what is lost, twice or out of order
//! shows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay::{ExecEvent, ExecHandle, Vm};
use tokio::task::JoinHandle;

use crate::pace::{CEILING, Within as _};

/// For the guest's shell: prints the numbers from 0 on, a line each, until it is killed.
pub const COUNT: &str = "i=0; while :; do echo $i; i=$((i + 1)); done";

/// The bytes of what [`COUNT`] prints.
#[must_use]
pub fn counted(bytes: Range<usize>) -> Vec<u8> {
    let mut text = String::new();
    for number in 0_u64.. {
        if text.len() >= bytes.end {
            break;
        }
        text += &format!("{number}\n");
    }
    text.into_bytes().drain(bytes).collect()
}

/// How many lines of [`COUNT`] this is, of which the last may be cut.
///
/// # Panics
/// If a byte is not the one that belongs there, or there is no whole line.
pub fn assert_counts(output: &[u8]) -> usize {
    let expected = counted(0..output.len());
    // Not by assert_eq, which would show megabytes.
    let differs = output.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "where the bytes differ, of {}", output.len());
    let lines = output.iter().filter(|byte| **byte == b'\n').count();
    assert!(lines > 0, "not one whole line in {} bytes", output.len());
    lines
}

/// Commands that count, each read by a task of its own as fast as it can.
#[derive(Debug)]
pub struct Counters {
    stop: Arc<AtomicBool>,
    readers: Vec<JoinHandle<Vec<u8>>>,
}

impl Counters {
    /// Starts so many, and waits until each of them counts.
    ///
    /// # Panics
    /// If one does not.
    pub async fn start(vm: &Vm, number: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut counters = Vec::new();
        for _ in 0..number {
            let counter = vm.shell(COUNT).spawn().within(CEILING).await;
            counters.push(counter.expect("a counter starts"));
        }
        let mut readers = Vec::new();
        for mut counter in counters {
            let mut output = next(&mut counter).within(CEILING).await;
            let stop = Arc::clone(&stop);
            readers.push(tokio::spawn(async move {
                // So that what comes last was waited for behind the call to stop.
                let mut last = false;
                while !last {
                    last = stop.load(Ordering::Relaxed);
                    output.append(&mut next(&mut counter).await);
                }
                output
            }));
        }
        Self { stop, readers }
    }

    /// Waits until each has counted on, and kills them.
    ///
    /// # Panics
    /// If one did not print its numbers, all of them in order.
    pub async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for reader in self.readers {
            let output = reader.within(CEILING).await;
            assert_counts(&output.expect("its task has not panicked"));
        }
    }
}

/// The next that a counter prints.
async fn next(counter: &mut ExecHandle) -> Vec<u8> {
    loop {
        match counter.recv().await {
            Some(ExecEvent::Stdout(data)) => return data.to_vec(),
            Some(ExecEvent::Started { .. }) => {}
            other => panic!("a counter ended: {other:?}"),
        }
    }
}

#[cfg(test)]
#[path = "counter_test.rs"]
mod tests;
