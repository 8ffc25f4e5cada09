//! Commands that drive a virtio-console port directly: the floors and ceilings that an exec's
//! streams are measured against.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::Outcome;

/// Largest write that the driver takes as one chain.
const CHAIN_MAX: usize = 32 * 1024;

/// Bytes before the payload of a frame.
const HEADER: usize = 16;

/// How long a port may take to appear.
const DEADLINE: Duration = Duration::from_secs(30);

/// Opens the port with this path or name, blocking.
fn open(port: &str) -> Result<OwnedFd, String> {
    let start = Instant::now();
    loop {
        let path = if port.starts_with('/') {
            Some(port.to_owned())
        } else {
            by_name(port)
        };
        let outcome = match &path {
            None => Err(Errno::NOENT),
            Some(path) => rustix::fs::open(path.as_str(), OFlags::RDWR, Mode::empty()),
        };
        match outcome {
            Ok(fd) => return Ok(fd),
            Err(Errno::NOENT | Errno::NXIO) if start.elapsed() < DEADLINE => {
                sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(format!("cannot open port {port}: {error}")),
        }
    }
}

fn by_name(name: &str) -> Option<String> {
    fs::read_dir("/sys/class/virtio-ports")
        .ok()?
        .flatten()
        .find_map(|entry| {
            let own = fs::read_to_string(entry.path().join("name")).ok()?;
            let port = entry.file_name().into_string().ok()?;
            (own.trim_end() == name).then(|| format!("/dev/{port}"))
        })
}

/// Until the host has opened its end, a read gives nothing.
fn read_some(port: &OwnedFd, room: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::read(port, &mut *room)? {
            0 => sleep(Duration::from_millis(1)),
            got => return Ok(got),
        }
    }
}

fn write_all(port: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let taken = rustix::io::write(port, bytes)?;
        bytes = bytes.get(taken..).unwrap_or_default();
    }
    Ok(())
}

fn report(what: &str, bytes: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let rate = bytes as f64 / f64::from(1 << 20) / seconds;
    println!("{what} bytes={bytes} seconds={seconds:.6} mib_per_s={rate:.1}");
}

/// Writes to the port as fast as it takes it.
pub(crate) fn write(port: &str, chunk: usize, mib: u64) -> Outcome {
    if !(1..=CHAIN_MAX).contains(&chunk) {
        return Err(format!("the chunk must be 1 to {CHAIN_MAX} bytes").into());
    }
    let port = open(port)?;
    let block = vec![b'x'; chunk];
    let total = mib << 20;
    let start = Instant::now();
    let mut left = total;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(chunk).min(chunk);
        write_all(&port, &block[..now])?;
        left -= now as u64;
    }
    report("raw-port", total, start);
    Ok(0)
}

/// Reads from the port as fast as it gives; the byte at the end tells the host that all has come.
pub(crate) fn read(port: &str, mib: u64) -> Outcome {
    let port = open(port)?;
    let total = mib << 20;
    let mut room = vec![0; 64 * 1024];
    let mut got = read_some(&port, &mut room)? as u64;
    let start = Instant::now();
    while got < total {
        got += read_some(&port, &mut room)? as u64;
    }
    write_all(&port, b".")?;
    report("read-port", got, start);
    Ok(0)
}

/// Sends back what comes.
pub(crate) fn echo(port: &str, n: u64) -> Outcome {
    let port = open(port)?;
    let mut room = vec![0; 4096];
    for _ in 0..n {
        let got = read_some(&port, &mut room)?;
        write_all(&port, &room[..got])?;
    }
    Ok(0)
}

/// Copies what a child writes into a pipe to the port, as an agent must at the least: one read
/// behind room for a header, one write. Each chain is a whole frame of the size that the pipe
/// gave, with zeroes for its header.
pub(crate) fn pipe(port: &str, chunk: usize, mib: u64) -> Outcome {
    let port = open(port)?;
    let total = mib << 20;
    let mut child = Command::new("/proc/self/exe")
        .args([
            "write",
            "--chunk",
            &chunk.to_string(),
            "--total",
            &total.to_string(),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let pipe = child.stdout.take().ok_or("the child has no stdout")?;
    let mut frame = vec![0; CHAIN_MAX];
    let start = Instant::now();
    let mut copied = 0u64;
    loop {
        let got = rustix::io::read(pipe.as_fd(), &mut frame[HEADER..])?;
        if got == 0 {
            break;
        }
        write_all(&port, &frame[..HEADER + got])?;
        copied += got as u64;
    }
    report("pipe-to-port", copied, start);
    let status = child.wait()?;
    if status.success() {
        Ok(0)
    } else {
        Err(format!("the child ended with {status}").into())
    }
}
