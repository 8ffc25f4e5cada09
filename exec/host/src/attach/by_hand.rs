//! Clients that are served by the caller's own calls, on its thread: for tests and fuzzing, where
//! what happens must depend on nothing but what is put in.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::bell::Bell;
use super::clients::{CLIENTS_MAX, Clients};
use crate::client::Client;
use crate::hub::Hub;

const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// The clients of a VM without a thread and a socket file.
pub struct ClientsByHand(Clients);

impl ClientsByHand {
    /// Nobody is attached to the VM behind `hub`.
    ///
    /// # Errors
    /// A system call failed.
    pub fn new(hub: Arc<Hub>) -> io::Result<Self> {
        Ok(Self(Clients::new(Client::new(hub), Bell::new()?)?))
    }

    /// Somebody connects; gives that end of the connection, which does not block.
    ///
    /// # Errors
    /// A system call failed.
    pub fn attach(&mut self) -> io::Result<UnixStream> {
        let (theirs, ours) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        ours.set_nonblocking(true)?;
        self.0.greet(OwnedFd::from(ours));
        Ok(theirs)
    }

    /// Takes one turn; gives whether the next would do anything, if nothing happens meanwhile.
    ///
    /// # Errors
    /// A system call failed.
    pub fn turn(&mut self) -> io::Result<bool> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(CLIENTS_MAX.saturating_add(2));
        epoll::wait(&self.0.epoll, spare_capacity(&mut events), Some(&AT_ONCE))?;
        let news = !events.is_empty();
        for event in events {
            self.0.note(event);
        }
        self.0.turn();
        Ok(news || self.0.have_work())
    }

    /// Parts from those that have not greeted the server in time, by the clock's `now`.
    pub fn expire(&mut self, now: Instant) {
        self.0.expire(now);
    }

    /// How many are attached.
    #[must_use]
    pub fn attached(&self) -> usize {
        self.0.len()
    }
}

impl std::fmt::Debug for ClientsByHand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientsByHand")
            .field("attached", &self.attached())
            .finish()
    }
}
