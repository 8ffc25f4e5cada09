//! Finds and opens the agent port.
//!
//! A virtio-console port is known by the name that its device gives it, in
//! `/sys/class/virtio-ports/*/name`. The node in `/dev` appears before the name does, so a look
//! that finds nothing is repeated when the kernel announces a change, until a deadline.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind,
    netlink::{KOBJECT_UEVENT, SocketAddrNetlink},
    recv, socket_with,
};

/// The name that the host gives the port.
const NAME: &str = "forebay.agent.0";

const CLASS: &str = "/sys/class/virtio-ports";

/// Longest wait between two looks, for kernels that announce nothing.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Why there is no port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PortError {
    /// No port of that name until the deadline.
    #[error(
        "no port named {NAME} in {CLASS} after {waited:?} (ports there: {present}); the host must \
         offer a virtio-console with that port, and the kernel needs CONFIG_VIRTIO_CONSOLE"
    )]
    Absent {
        /// How long was waited.
        waited: Duration,
        /// Names of the ports that exist.
        present: String,
    },
    /// It exists and cannot be opened.
    #[error("cannot open {path}: {errno}")]
    Open {
        /// The node.
        path: String,
        /// Why.
        errno: Errno,
    },
}

/// Opens the port if it is there already.
pub(crate) fn open_if_present() -> Option<OwnedFd> {
    open(&node()?).ok()
}

/// Opens the port again after its connection was lost. The host sees the opening and begins a new
/// connection.
pub(crate) fn reopen() -> Result<OwnedFd, String> {
    let path = node().ok_or_else(|| format!("no port named {NAME}"))?;
    open(&path).map_err(|errno| PortError::Open { path, errno }.to_string())
}

/// Waits until the port exists, and opens it.
pub(crate) fn wait_and_open(deadline: Duration) -> Result<OwnedFd, PortError> {
    let start = Instant::now();
    // Registered before the first look: an announcement between look and wait is not lost.
    let announcements = announcements().ok();
    loop {
        let failure = match node() {
            None => None,
            Some(path) => match open(&path) {
                Ok(port) => return Ok(port),
                Err(errno) => Some(PortError::Open { path, errno }),
            },
        };
        let waited = start.elapsed();
        let Some(left) = deadline.checked_sub(waited) else {
            return Err(failure.unwrap_or_else(|| PortError::Absent {
                waited: deadline,
                present: names().map(|(_, name)| name).collect::<Vec<_>>().join(", "),
            }));
        };
        wait(announcements.as_ref(), left.min(LOOK_AGAIN));
    }
}

fn open(path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        path,
        OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// The node of the port with our name.
fn node() -> Option<String> {
    names()
        .find(|(_, name)| name == NAME)
        .map(|(port, _)| format!("/dev/{port}"))
}

/// Every named port: kernel name and given name.
fn names() -> impl Iterator<Item = (String, String)> {
    fs::read_dir(CLASS)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = fs::read_to_string(entry.path().join("name")).ok()?;
            let port = entry.file_name().into_string().ok()?;
            Some((port, name.trim_end().to_owned()))
        })
}

/// The kernel's announcements of changed devices; naming a port is one.
fn announcements() -> Result<OwnedFd, Errno> {
    const KERNEL: u32 = 1;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        flags,
        Some(KOBJECT_UEVENT),
    )?;
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL))?;
    Ok(socket)
}

/// Sleeps until an announcement or the time limit, and takes what was announced.
fn wait(announcements: Option<&OwnedFd>, limit: Duration) {
    let limit = Timespec::try_from(limit).ok();
    let mut fds: Vec<PollFd<'_>> = announcements
        .iter()
        .map(|socket| PollFd::new(*socket, PollFlags::IN))
        .collect();
    // An interrupted or failed wait is an early look, which harms nothing.
    let _ = poll(&mut fds, limit.as_ref());
    if let Some(socket) = announcements {
        let mut discarded = [0u8; 4096];
        while recv(socket, &mut discarded[..], RecvFlags::empty()).is_ok() {}
    }
}
