//! The threads that read what comes out of L1, and the one that feeds its standard input.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::qemu::Ends;
use crate::{Error, Result};

/// Arrivals in hand; further ones wait in the sockets, and so slow the program down.
const ARRIVALS: usize = 64;

/// What the reading threads hand over.
pub(crate) enum Arrival {
    Control(String),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Console(String),
    /// The archive of files was unpacked; its length in bytes.
    Files(io::Result<u64>),
}

/// Starts a thread for each end. All of them finish when the emulator is gone, which closes the
/// channel. The port for standard input is handed back: it is fed once L1 listens, and must stay
/// open until then.
pub(crate) fn spread(ends: Ends, files: &Path) -> Result<(Receiver<Arrival>, UnixStream)> {
    let (to_run, arrivals) = sync_channel(ARRIVALS);
    lines(ends.console, to_run.clone(), Arrival::Console)?;
    lines(ends.complaints, to_run.clone(), Arrival::Console)?;
    lines(ends.control, to_run.clone(), Arrival::Control)?;
    blocks(ends.stdout, to_run.clone(), Arrival::Stdout)?;
    blocks(ends.stderr, to_run.clone(), Arrival::Stderr)?;
    let target = files.to_path_buf();
    thread("rig files", move || {
        // The run may be over; then nobody waits for the files.
        let _ = to_run.send(Arrival::Files(unpack(ends.files, &target)));
    })?;
    Ok((arrivals, ends.stdin))
}

pub(crate) fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(drop)
        .map_err(Error::file("start thread", Path::new(name)))
}

fn lines(
    from: impl Read + Send + 'static,
    to: SyncSender<Arrival>,
    wrap: fn(String) -> Arrival,
) -> Result<()> {
    thread("rig lines", move || {
        let mut from = BufReader::new(from);
        let mut raw = Vec::new();
        while from.read_until(b'\n', &mut raw).is_ok_and(|n| n > 0) {
            let line = String::from_utf8_lossy(&raw).trim_end().to_owned();
            raw.clear();
            if !line.is_empty() && to.send(wrap(line)).is_err() {
                return;
            }
        }
    })
}

fn blocks(
    mut from: impl Read + Send + 'static,
    to: SyncSender<Arrival>,
    wrap: fn(Vec<u8>) -> Arrival,
) -> Result<()> {
    thread("rig output", move || {
        let mut block = vec![0; 64 * 1024];
        loop {
            match from.read(&mut block) {
                Ok(0) => return,
                Ok(n) if to.send(wrap(block[..n].to_vec())).is_err() => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    })
}

/// Copies this process's standard input to the port in blocks, each after its length in four bytes;
/// an empty one is its end. Closing the port would say so too, but the emulator then drops what L1
/// has not read yet; so it is also kept open for the rest of the run.
pub(crate) fn feed(mut port: &UnixStream) {
    let mut stdin = io::stdin().lock();
    let mut block = vec![0; 16 * 1024];
    loop {
        let n = match stdin.read(&mut block) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        // A block is far shorter than 4 GiB.
        let length = u32::try_from(n).unwrap_or(0).to_le_bytes();
        let sent = port
            .write_all(&length)
            .and_then(|()| port.write_all(&block[..n]));
        if n == 0 || sent.is_err() {
            return;
        }
    }
}

/// Unpacks the archive that arrives on a port, after its length in eight bytes, and returns that
/// length. L1 sends one per run; it is empty if no files were asked for. The port itself has no end.
fn unpack(mut from: UnixStream, target: &Path) -> io::Result<u64> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length == 0 {
        return Ok(0);
    }
    let mut tar = Command::new("tar")
        .args(["--extract", "--file", "-", "--directory"])
        .arg(target)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = tar.stdin.take() {
        io::copy(&mut from.take(length), &mut stdin)?;
    }
    let status = tar.wait()?;
    if status.success() {
        Ok(length)
    } else {
        Err(io::Error::other(format!("tar: {status}")))
    }
}

#[cfg(test)]
#[path = "ends_test.rs"]
mod tests;
