//! Losing the host and getting it back.
//!
//! A connection lives from one opening of the port to its closing. When it is lost, everything
//! that it had started is killed, background jobs of ended executions included, and the port is
//! opened again: the host sees the opening and greets anew.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use forebay_exec_proto::guest::Conn;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::Agent;
use super::token::Token;
use crate::console::{say, trace};
use crate::link::{Link, Lost};

/// Wait before the port is opened (again): a host that breaks every connection at once must not
/// keep the guest busy.
const REOPEN: Duration = Duration::from_millis(100);

impl Agent {
    /// Begins a connection over `port`.
    pub(super) fn connect(&mut self, port: OwnedFd) -> Result<(), Errno> {
        let link = Link::new(port);
        self.watch(link.as_fd(), Token::Port, EventFlags::IN | EventFlags::ET)?;
        self.link = Some(link);
        self.conn = Conn::new();
        self.blocked = false;
        self.retry_at = None;
        self.reopen_at = None;
        // The host may have sent something before epoll was told of the port.
        self.unfinished.receive = true;
        Ok(())
    }

    /// Ends the connection and kills what it had started.
    pub(super) fn disconnect(&mut self, why: &Lost) {
        say(format_args!(
            "{why}; ending {} executions",
            self.executions.len()
        ));
        self.link = None;
        self.conn = Conn::new();
        self.unfed.clear();
        self.unfinished.receive = false;
        self.unfinished.transmit = false;
        self.retry_at = None;
        self.reopen_at = Some(Instant::now() + REOPEN);
        let all_killed = match &self.config.parent {
            None => false,
            Some(parent) => match parent.kill() {
                Ok(()) => true,
                Err(errno) => {
                    say(format_args!(
                        "what ended executions left behind cannot be killed: {errno}"
                    ));
                    false
                }
            },
        };
        for execution in self.executions.values_mut() {
            if !all_killed {
                execution.kill();
            }
            execution.abandon_pipes();
        }
        // Dead by now, or about to die: a process that is killed runs no more of its program.
        if let Err(error) = self.thaw() {
            say(format_args!("{error}"));
        }
        // Those whose leader was collected wait for nothing any more; the others go when it is.
        let ids: Vec<_> = self.executions.keys().copied().collect();
        for id in ids {
            self.remove_if_over(id);
        }
    }

    /// Opens the port again when it is time to.
    pub(super) fn reconnect(&mut self) {
        let Some(reopen) = self.config.reopen else {
            return;
        };
        if self.reopen_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let opened = reopen().and_then(|port| self.connect(port).map_err(|e| e.to_string()));
        match opened {
            Ok(()) => say(format_args!("the agent port is open again")),
            Err(error) => {
                trace!("the agent port cannot be opened again yet: {error}");
                self.reopen_at = Some(Instant::now() + REOPEN);
            }
        }
    }
}
