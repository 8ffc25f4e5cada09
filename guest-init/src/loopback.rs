//! Brings the loopback interface up with one netlink message.

use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink, sendto,
    socket_with,
};

use crate::console::trace;

/// `RTM_NEWLINK` for the interface with index 1, which is the loopback in a network namespace
/// that nobody has changed: flag `IFF_UP` on, no other flag touched.
fn message() -> [u8; 32] {
    const LENGTH: u32 = 32;
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const LOOPBACK_INDEX: i32 = 1;
    const IFF_UP: u32 = 1;
    let mut bytes = [0; LENGTH as usize];
    let fields: [(usize, &[u8]); 6] = [
        // struct nlmsghdr: length, type, flags, sequence, port
        (0, &LENGTH.to_ne_bytes()),
        (4, &RTM_NEWLINK.to_ne_bytes()),
        (6, &NLM_F_REQUEST.to_ne_bytes()),
        // struct ifinfomsg: family, type, index, flags, mask of flags to change
        (20, &LOOPBACK_INDEX.to_ne_bytes()),
        (24, &IFF_UP.to_ne_bytes()),
        (28, &IFF_UP.to_ne_bytes()),
    ];
    for (at, value) in fields {
        if let Some(to) = bytes.get_mut(at..at + value.len()) {
            to.copy_from_slice(value);
        }
    }
    bytes
}

/// Brings the loopback interface up; the kernel then gives it 127.0.0.1 itself. A kernel without
/// networking has none, which is not an error.
pub(crate) fn up() {
    let done = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )
    .and_then(|socket| {
        sendto(
            &socket,
            &message(),
            SendFlags::empty(),
            &SocketAddrNetlink::new(0, 0),
        )
    });
    if let Err(error) = done {
        trace!("loopback stays down: {error}");
    }
}
