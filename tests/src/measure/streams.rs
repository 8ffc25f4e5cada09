//! Endless writers, read as fast as they write by a thread of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Result, bail};
use forebay::{ExecControl, ExecEvent, ExecHandle, Vm};

use crate::measure::runtime;
use crate::vm::HELPER;

/// More than anybody reads.
const WITHOUT_END: &str = "1125899906842624";

/// A command that writes without end.
pub async fn endless_writer(vm: &Vm) -> Result<ExecHandle> {
    let words = ["write", "--total", WITHOUT_END];
    Ok(vm.exec(HELPER, words).spawn().await?)
}

/// Endless writers that are read.
pub struct Streams {
    received: Vec<Arc<AtomicU64>>,
    controls: Vec<ExecControl>,
    reader: JoinHandle<Result<()>>,
}

impl Streams {
    /// Starts so many.
    pub async fn start(vm: &Vm, count: usize) -> Result<Self> {
        let mut commands = Vec::new();
        for _ in 0..count {
            commands.push((endless_writer(vm).await?, Arc::default()));
        }
        Ok(Self {
            received: commands
                .iter()
                .map(|(_, count)| Arc::clone(count))
                .collect(),
            controls: commands
                .iter()
                .map(|(command, _)| command.control())
                .collect(),
            reader: std::thread::spawn(move || read_all(commands)),
        })
    }

    /// Bytes read of each so far.
    pub fn counts(&self) -> Vec<u64> {
        let counts = self.received.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Kills them, and waits for their ends.
    pub fn end(self) -> Result<()> {
        for control in &self.controls {
            control.kill();
        }
        match self.reader.join() {
            Ok(ended) => ended,
            Err(_) => bail!("the thread that read the streams panicked"),
        }
    }
}

/// Reads until each was killed, counting.
fn read_all(commands: Vec<(ExecHandle, Arc<AtomicU64>)>) -> Result<()> {
    runtime()?.block_on(async {
        let tasks: Vec<_> = commands
            .into_iter()
            .map(|(mut command, count)| {
                tokio::spawn(async move {
                    while let Some(event) = command.recv().await {
                        if let ExecEvent::Stdout(data) = event {
                            count.fetch_add(data.len() as u64, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await?;
        }
        Ok(())
    })
}
