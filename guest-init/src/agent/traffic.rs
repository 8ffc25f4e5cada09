//! Bytes from the host and to it.

use std::time::{Duration, Instant};

use forebay_exec_proto::guest::{Event, FRAMES_PER_READ, Transmit};
use forebay_exec_proto::{Bootstrap, ExecId, HEADER_LEN, QUIESCE, Ready, Stream};
use rustix::event::epoll::EventFlags;

use super::Agent;
use super::token::Token;
use crate::command::Defaults;
use crate::console::{say, trace};
use crate::link::{Flushed, Lost, Received, Which};
use crate::power::End;
use crate::stdin::Fed;

/// Reads of the port per turn, 4 KiB each: half the usual `input_limit`. What they brought is
/// acknowledged before the other half is read, so the host refills the ring while the agent is
/// still reading. With a whole window per turn each waited for the other, with an interrupt and a
/// sleep for every 64 KiB.
const READS_PER_TURN: usize = 8;

/// Times per turn that both write buffers are filled, 32 KiB each.
const FILLS_PER_TURN: usize = 4;

/// Wait before a write that the kernel had no memory for is tried again.
const STARVED: Duration = Duration::from_millis(5);

impl Agent {
    /// Takes what the host has sent, up to a turn's share.
    pub(super) fn receive(&mut self) -> Result<(), Lost> {
        if !self.unfinished.receive {
            return Ok(());
        }
        for _ in 0..READS_PER_TURN {
            let Some(link) = &mut self.link else {
                // An event of the port that was just closed.
                self.unfinished.receive = false;
                return Ok(());
            };
            if link.receive(&mut self.conn)? == Received::Nothing {
                self.unfinished.receive = false;
                return Ok(());
            }
            while let Some(event) = self.conn.poll_event() {
                self.handle(event);
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Bootstrap(bootstrap) => self.bootstrap(bootstrap),
            Event::Start { id, request } => self.start(id, &request),
            Event::StdinData(id) => self.unfed.push(id),
            Event::StdinEof(id) => {
                if let Some(stdin) = self.executions.get_mut(&id).and_then(|e| e.stdin.as_mut()) {
                    stdin.end();
                    self.unfed.push(id);
                }
            }
            Event::Signal { id, signal } => {
                if let Some(execution) = self.executions.get_mut(&id) {
                    execution.signal(signal);
                }
            }
            Event::Resize { id, size } => {
                if let Some(execution) = self.executions.get(&id) {
                    execution.resize(size);
                }
            }
            Event::Kill(id) => {
                if let Some(execution) = self.executions.get(&id) {
                    execution.kill();
                }
            }
            Event::Quiesce(quiesce) => self.quiesce(&quiesce),
            Event::Renew(renew) => self.renew(&renew),
            // A relay alone is asked for these, and the connection of an agent refuses them.
            Event::Adopt { .. } | Event::Leave { .. } => {}
            Event::PowerOff { reboot, grace_ms } => {
                let end = if reboot { End::Reboot } else { End::PowerOff };
                self.begin_shutdown(end, Duration::from_millis(u64::from(grace_ms)));
            }
        }
    }

    fn bootstrap(&mut self, bootstrap: Bootstrap) {
        if let Some(hostname) = &bootstrap.hostname
            && self.config.whole_system
            && let Err(error) = rustix::system::sethostname(hostname.as_bytes())
        {
            say(format_args!(
                "cannot set the hostname to {hostname}: {error}"
            ));
        }
        let cwd = bootstrap
            .cwd
            .and_then(|cwd| std::ffi::CString::new(Vec::from(cwd)).ok());
        self.defaults = Defaults {
            env: bootstrap.env,
            cwd,
        };
        self.resources = bootstrap.resources.unwrap_or_default();
        self.conn.ready(Ready {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid1_us: Some(self.config.clock.entry_us()),
            ready_us: Some(self.config.clock.now_us()),
            capabilities: Some(vec![QUIESCE.to_owned()]),
            ..Ready::default()
        });
        trace!("ready after {} us", self.config.clock.now_us());
    }

    /// Writes pending stdin into the commands that have some.
    pub(super) fn feed_commands(&mut self) {
        let mut unfed = std::mem::take(&mut self.unfed);
        unfed.sort_unstable();
        unfed.dedup();
        for id in unfed.drain(..) {
            self.feed(id);
        }
        // Feeding adds nothing to the list; its allocation is kept.
        self.unfed = unfed;
    }

    fn feed(&mut self, id: ExecId) {
        let Some(execution) = self.executions.get_mut(&id) else {
            return;
        };
        let Some(stdin) = &mut execution.stdin else {
            return;
        };
        match stdin.feed(&mut self.conn, id) {
            Fed::Dry => {}
            Fed::Over => self.close_stdin(id),
            Fed::Full if stdin.watched => {}
            Fed::Full => {
                stdin.watched = true;
                let flags = EventFlags::OUT | EventFlags::ET;
                let watched = self
                    .executions
                    .get(&id)
                    .and_then(|e| e.stdin.as_ref())
                    .map(|stdin| self.watch(stdin.as_fd(), Token::Stdin(id), flags));
                if let Some(Err(error)) = watched {
                    say(format_args!(
                        "stdin of {id} cannot be watched and is closed: {error}"
                    ));
                    self.close_stdin(id);
                }
            }
        }
    }

    /// Closes a command's stdin. A terminal's is a copy of its master, which stays open: epoll would
    /// go on reporting it.
    pub(super) fn close_stdin(&mut self, id: ExecId) {
        let execution = self.executions.get_mut(&id);
        let Some(stdin) = execution.and_then(|execution| execution.stdin.take()) else {
            return;
        };
        if stdin.watched {
            self.unwatch(stdin.as_fd());
        }
    }

    /// Sends what is due to the host, up to a turn's share.
    pub(super) fn transmit(&mut self) -> Result<(), Lost> {
        if self.blocked || self.retry_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        self.retry_at = None;
        self.unfinished.transmit = false;
        for _ in 0..FILLS_PER_TURN {
            let Some(link) = &mut self.link else {
                return Ok(());
            };
            match link.flush()? {
                Flushed::All => {}
                Flushed::Blocked => {
                    self.block();
                    return Ok(());
                }
                Flushed::Starved => {
                    self.retry_at = Some(Instant::now() + STARVED);
                    return Ok(());
                }
            }
            self.fill();
            if self.link.as_ref().is_none_or(|link| link.is_empty()) {
                return Ok(());
            }
        }
        self.unfinished.transmit = true;
        Ok(())
    }

    /// Fills the first write with as many whole frames as fit and are due.
    fn fill(&mut self) {
        loop {
            let Some(link) = &mut self.link else { return };
            match self.conn.poll_transmit(link.room(Which::First)) {
                Transmit::Frame(length) => link.commit(Which::First, length),
                Transmit::Read { id, stream, max } => self.read_output(id, stream, max),
                Transmit::Full | Transmit::Idle => return,
            }
        }
    }

    /// Reads a command's pipe straight into the write buffer, behind room for the header; and on,
    /// for the frames behind and those of the second write, if they will be of the same stream. A
    /// pipe that its writer keeps full is emptied by one read.
    fn read_output(&mut self, id: ExecId, stream: Stream, max: usize) {
        let Some(link) = &mut self.link else { return };
        let Some(execution) = self.executions.get_mut(&id) else {
            return self.conn.stream_ended(id, stream);
        };
        let mut sizes = [0; FRAMES_PER_READ];
        let mut writes = [Which::First; FRAMES_PER_READ];
        let mut payloads: [&mut [u8]; FRAMES_PER_READ] = Default::default();
        let mut frames = 0;
        for (which, mut room) in [Which::First, Which::Second].into_iter().zip(link.rooms()) {
            while frames < FRAMES_PER_READ {
                let size = match frames {
                    0 => max,
                    _ => {
                        let planned = sizes.get(..frames).unwrap_or_default();
                        self.conn.further_read(id, stream, planned, room.len())
                    }
                };
                let end = HEADER_LEN.saturating_add(size);
                let Some((frame, rest)) = room.split_at_mut_checked(end).filter(|_| size > 0)
                else {
                    break;
                };
                room = rest;
                (sizes[frames], writes[frames]) = (size, which);
                payloads[frames] = frame.split_at_mut(HEADER_LEN).1;
                frames += 1;
            }
        }
        let (mut got, then) = execution.output(stream).read(payloads);
        for (size, which) in sizes.into_iter().zip(writes) {
            let n = got.min(size);
            got -= n;
            if n > 0 {
                let frame = self.conn.output_read(id, stream, n, link.room(which));
                link.commit(which, frame);
            }
        }
        self.continue_stream(id, stream, then);
        self.remove_if_over(id);
    }

    /// The ring is full: epoll tells when it has room.
    fn block(&mut self) {
        if !self.blocked {
            self.blocked = true;
            self.watch_port(EventFlags::IN | EventFlags::OUT | EventFlags::ET);
        }
    }

    /// The ring has room again. Interest in room ends here: the port reports room with every
    /// interrupt, which would wake the loop for nothing.
    pub(super) fn unblock(&mut self) {
        if self.blocked {
            self.blocked = false;
            self.watch_port(EventFlags::IN | EventFlags::ET);
        }
    }

    fn watch_port(&mut self, flags: EventFlags) {
        let Some(link) = &self.link else { return };
        if let Err(error) = self.rewatch(link.as_fd(), Token::Port, flags) {
            say(format_args!("the agent port cannot be watched: {error}"));
            // Without epoll's word the write is tried again after a while.
            self.blocked = false;
            self.retry_at = Some(Instant::now() + STARVED);
        }
    }
}
