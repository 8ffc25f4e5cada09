//! A Unix socket that passes everything on to another one, later: a client that is far away.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Most that is read at a time, in bytes.
const BLOCK: usize = 64 << 10;
/// Blocks under way at most, each way: a wire holds only so much.
const UNDER_WAY: usize = 256;

/// A socket for one client. Bytes each way arrive after the delay, however many there are; the
/// threads end with the connection.
pub(crate) struct Relay {
    path: PathBuf,
    _directory: TempDir,
}

impl Relay {
    /// Delays what goes to `target`, and what comes back, by `delay` each.
    pub(crate) fn start(target: &Path, delay: Duration) -> Result<Self> {
        let directory = tempfile::tempdir().context("make a directory for a socket")?;
        let path = directory.path().join("relay.sock");
        let listener = UnixListener::bind(&path).context("bind a socket")?;
        let target = target.to_owned();
        thread::spawn(move || {
            // A connection that fails is one that its client sees end.
            let Ok((client, _)) = listener.accept() else {
                return;
            };
            let Ok(server) = UnixStream::connect(target) else {
                return;
            };
            if let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) {
                pass_on(from_client, server, delay);
                pass_on(from_server, client, delay);
            }
        });
        Ok(Self {
            path,
            _directory: directory,
        })
    }

    /// Where the client connects.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

type Block = (Instant, Vec<u8>);

fn pass_on(from: UnixStream, to: UnixStream, delay: Duration) {
    let (sender, receiver) = sync_channel(UNDER_WAY);
    thread::spawn(move || read(from, &sender, delay));
    thread::spawn(move || write(to, &receiver));
}

fn read(mut from: UnixStream, sender: &SyncSender<Block>, delay: Duration) {
    let mut block = vec![0; BLOCK];
    while let Ok(n @ 1..) = from.read(&mut block) {
        let due = Instant::now() + delay;
        if sender.send((due, block[..n].to_vec())).is_err() {
            break;
        }
    }
}

fn write(mut to: UnixStream, receiver: &Receiver<Block>) {
    while let Ok((due, block)) = receiver.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&block).is_err() {
            break;
        }
    }
    // Refused when the other side was faster.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
#[path = "relay_test.rs"]
mod tests;
