//! Sending and receiving on a non-blocking stream socket.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// What a receive gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    /// This many bytes; more than zero.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The other end is closed.
    End,
}

/// Receives at most `buf.len()` bytes.
pub(super) fn receive(from: impl AsFd, buf: &mut [u8]) -> io::Result<Received> {
    loop {
        return match rustix::net::recv(&from, &mut *buf, RecvFlags::empty()) {
            Ok((0, _)) => Ok(Received::End),
            Ok((n, _)) => Ok(Received::Bytes(n)),
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(Errno::INTR) => continue,
            // What its last bytes met is no matter.
            Err(Errno::CONNRESET) => Ok(Received::End),
            Err(error) => Err(error.into()),
        };
    }
}

/// Sends a beginning of `buf`; gives its length, zero while there is no room.
pub(super) fn send(to: impl AsFd, buf: &[u8]) -> io::Result<usize> {
    loop {
        // A reader that is gone is an error here, never a signal to the process.
        return match rustix::net::send(&to, buf, SendFlags::NOSIGNAL) {
            Ok(n) => Ok(n),
            Err(Errno::AGAIN) => Ok(0),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}
