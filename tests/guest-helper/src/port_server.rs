//! `port-server`: PID 1 of a guest without an agent, serving a virtio port directly.
//!
//! Measurements of a port alone, of any virtual machine monitor, use it: it says hello as the first
//! thing user space does, and then moves bytes as it is told. It knows no frames, but every write
//! to the port has at least [`RECORD`] bytes, as a device that reads headers wants it.
//!
//! The host sends commands of [`COMMAND`] bytes: operation (1 byte), three zero bytes, size of one
//! transfer (`u32`), amount (`u64`), the rest zero; numbers are little-endian.
//!
//! | operation | the server |
//! |---|---|
//! | `w` | writes *amount* bytes in writes of *size* |
//! | `c` | copies *amount* bytes from a pipe, which a child fills by `write`, into writes of at most *size*: [`RECORD`] bytes of header and the rest read into the same buffer |
//! | `k` | as `c`, with the child in control groups as the agent makes them for a command without limits |
//! | `r` | reads *amount* bytes in reads of *size*, then answers with one record |
//! | `e` | *amount* times: reads *size* bytes and writes them back |
//!
//! A record has [`RECORD`] bytes: `H` as hello, `D` as done, seven zero bytes, and the time since
//! the kernel started in nanoseconds (`u64`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::time::{ClockId, clock_gettime};

use crate::Outcome;

/// Bytes of a command.
const COMMAND: usize = 32;
/// Bytes of a record.
const RECORD: usize = 16;
/// Port 1 of the first virtio-serial device.
const PORT: &str = "/dev/vport0p1";
/// The node appears some time after the kernel has started us. Short, since a measured boot waits
/// for it.
const PORT_POLL: Duration = Duration::from_micros(50);
/// What the child of `c` writes at a time.
const PIPE_BLOCK: &str = "65536";

/// Serves until the host goes away.
pub(crate) fn serve() -> Outcome {
    let mut port = open_port()?;
    port.write_all(&record(b'H'))?;
    let mut command = [0; COMMAND];
    loop {
        port.read_exact(&mut command)?;
        let order = Order::read(&command);
        match order.operation {
            b'w' => write(&mut port, &order)?,
            b'c' => copy(&mut port, &order, None)?,
            b'k' => copy(&mut port, &order, Some(groups()?))?,
            b'r' => read(&mut port, &order)?,
            b'e' => echo(&mut port, &order)?,
            other => return Err(format!("there is no operation {other:#x}").into()),
        }
    }
}

struct Order {
    operation: u8,
    size: usize,
    amount: u64,
}

impl Order {
    fn read(bytes: &[u8; COMMAND]) -> Self {
        let [
            operation,
            _,
            _,
            _,
            s0,
            s1,
            s2,
            s3,
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            a6,
            a7,
            ..,
        ] = *bytes;
        Self {
            operation,
            size: u32::from_le_bytes([s0, s1, s2, s3]) as usize,
            amount: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
        }
    }

    /// One transfer of the bytes still due.
    fn next(&self, left: u64) -> usize {
        usize::try_from(left).map_or(self.size, |left| left.min(self.size))
    }
}

/// Opens the port, when it is there.
pub(crate) fn open_port() -> io::Result<File> {
    loop {
        match OpenOptions::new().read(true).write(true).open(PORT) {
            // The node may be there before the device behind it.
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::NOENT | Errno::NXIO)
                ) =>
            {
                std::thread::sleep(PORT_POLL);
            }
            opened => return opened,
        }
    }
}

fn record(kind: u8) -> [u8; RECORD] {
    let now = clock_gettime(ClockId::Boottime);
    let nanoseconds = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    let mut record = [0; RECORD];
    let (head, time) = record.split_at_mut(8);
    head[0] = kind;
    time.copy_from_slice(&nanoseconds.to_le_bytes());
    record
}

fn write(port: &mut File, order: &Order) -> io::Result<()> {
    let block = vec![0x5a; order.size];
    let mut left = order.amount;
    while left > 0 {
        let n = order.next(left);
        port.write_all(&block[..n])?;
        left -= n as u64;
    }
    Ok(())
}

fn copy(port: &mut File, order: &Order, group: Option<&Path>) -> io::Result<()> {
    let mut child = Command::new("/proc/self/exe")
        .args(["write", "--chunk", PIPE_BLOCK, "--total"])
        .arg(order.amount.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(group) = group {
        fs::write(group.join("cgroup.procs"), child.id().to_string())?;
    }
    let Some(mut pipe) = child.stdout.take() else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut frame = vec![0; order.size];
    loop {
        let n = pipe.read(&mut frame[RECORD..])?;
        if n == 0 {
            break;
        }
        port.write_all(&frame[..RECORD + n])?;
    }
    child.wait().map(drop)
}

/// Makes the groups of a command without limits, once: all controllers for the parent and the
/// account, none for the leaf. Gives the leaf.
fn groups() -> io::Result<&'static Path> {
    const ROOT: &str = "/sys/fs/cgroup";
    const PARENT: &str = "/sys/fs/cgroup/forebay";
    const ACCOUNT: &str = "/sys/fs/cgroup/forebay/account-1";
    const LEAF: &str = "/sys/fs/cgroup/forebay/account-1/1";
    let leaf = Path::new(LEAF);
    if leaf.is_dir() {
        return Ok(leaf);
    }
    // Else moving the child into its group waits for the kernel to have finished with all that it
    // looks at without a lock, some 20 ms, which would count as a part of the copy.
    let data = Some(c"favordynmods");
    mount("cgroup2", ROOT, "cgroup2", MountFlags::empty(), data)?;
    for (group, below) in [(ROOT, PARENT), (PARENT, ACCOUNT)] {
        let control = Path::new(group).join("cgroup.subtree_control");
        fs::write(control, "+cpu +memory +pids")?;
        fs::create_dir(below)?;
    }
    fs::create_dir(leaf)?;
    Ok(leaf)
}

fn read(port: &mut File, order: &Order) -> io::Result<()> {
    let mut block = vec![0; order.size];
    let mut left = order.amount;
    while left > 0 {
        let n = order.next(left);
        match port.read(&mut block[..n])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => left -= n as u64,
        }
    }
    port.write_all(&record(b'D'))
}

fn echo(port: &mut File, order: &Order) -> io::Result<()> {
    let mut block = vec![0; order.size];
    for _ in 0..order.amount {
        port.read_exact(&mut block)?;
        port.write_all(&block)?;
    }
    Ok(())
}
