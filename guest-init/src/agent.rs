//! The loop: one thread, one epoll, every event handled without waiting.
//!
//! ```text
//!  wait ──► what happened to processes and pipes ──► bytes from the host ──► stdin of commands
//!   ▲                                                                             │
//!   └── the end of the guest, if it is under way ◄── frames to the host ◄─────────┘
//! ```
//!
//! Each step takes a bounded share of a turn, so that no stream of events can hold up the others;
//! a step that could have gone on makes the next wait a glance.
//!
//! | module | owns |
//! |---|---|
//! | [`token`] | what an epoll event means |
//! | [`lifecycle`] | start, exit, signals, lingering pipes |
//! | [`traffic`] | bytes from and to the host |
//! | [`rest`] | standing still for a snapshot, and going on |
//! | [`connection`] | losing and regaining the host |

mod connection;
mod lifecycle;
mod rest;
mod token;
mod traffic;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use forebay_exec_proto::guest::Conn;
use forebay_exec_proto::{ExecId, Renew, Resources, Stream};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::boot::Clock;
use crate::cgroup::Parent;
use crate::command::Defaults;
use crate::console::{say, trace};
use crate::execution::Execution;
use crate::link::Link;
use crate::output::Lingering;
use crate::power::{DEFAULT_GRACE, End, Shutdown, Step};
use crate::signals::{self, SignalFd};
use crate::spawn::Spawner;
use crate::usage::Processes;

use rest::Rest;
use token::Token;

/// Events taken from epoll per turn.
const EVENTS_PER_TURN: usize = 64;

/// What a renewal does beside letting executions go on; the text says what failed.
pub(crate) type Renewer = Box<dyn Fn(&Renew) -> Result<(), String>>;

/// What the agent works with; PID 1 and tests differ here only.
pub(crate) struct Config {
    /// Where executions get their leaves.
    pub(crate) parent: Option<Parent>,
    /// Renews the system.
    pub(crate) renew: Renewer,
    /// Opens the port again after a lost connection; without it the loop ends then.
    pub(crate) reopen: Option<fn() -> Result<OwnedFd, String>>,
    /// This is PID 1: it collects orphans, listens to signals, and ends every process at the end.
    pub(crate) whole_system: bool,
    /// SIGUSR1 makes PID 1 exit.
    pub(crate) test_crash: bool,
    /// Since when the guest runs.
    pub(crate) clock: Clock,
}

/// Steps that had more to do than their share of the turn.
#[derive(Debug, Default)]
struct Unfinished {
    receive: bool,
    transmit: bool,
    orphans: bool,
}

/// PID 1's state.
pub(crate) struct Agent {
    config: Config,
    epoll: OwnedFd,
    signals: Option<SignalFd>,
    spawner: Spawner,
    defaults: Defaults,
    /// What each execution may take where its request does not say.
    resources: Resources,
    processes: Processes,
    conn: Conn,
    /// `None` between a lost connection and the next.
    link: Option<Link>,
    executions: BTreeMap<ExecId, Execution>,
    /// Which execution an uncollected leader belongs to, by pid.
    leaders: BTreeMap<i32, ExecId>,
    lingering: Lingering,
    /// Executions whose stdin has something new to write.
    unfed: Vec<ExecId>,
    unfinished: Unfinished,
    /// The port's ring is full.
    blocked: bool,
    /// When to try a starved write again.
    retry_at: Option<Instant>,
    /// When to try to open the port again.
    reopen_at: Option<Instant>,
    shutdown: Option<Shutdown>,
    rest: Rest,
    /// No process is left beside PID 1, as of the last look.
    alone: bool,
}

impl Agent {
    /// An agent that serves the host behind `port`.
    pub(crate) fn new(port: OwnedFd, config: Config) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let signals = if config.whole_system {
            Some(SignalFd::new(&[
                libc::SIGCHLD,
                libc::SIGTERM,
                libc::SIGUSR1,
                libc::SIGUSR2,
                signals::POWER_BUTTON,
            ])?)
        } else {
            None
        };
        let mut agent = Self {
            spawner: Spawner::new()?,
            epoll,
            signals,
            defaults: Defaults::default(),
            resources: Resources::default(),
            processes: Processes::open(),
            conn: Conn::new(),
            link: None,
            executions: BTreeMap::new(),
            leaders: BTreeMap::new(),
            lingering: Lingering::new(),
            unfed: Vec::new(),
            unfinished: Unfinished {
                orphans: config.whole_system,
                ..Unfinished::default()
            },
            blocked: false,
            retry_at: None,
            reopen_at: None,
            shutdown: None,
            rest: Rest::Running,
            alone: false,
            config,
        };
        if let Some(signals) = &agent.signals {
            agent.watch(signals.as_fd(), Token::Signals, epoll::EventFlags::IN)?;
        }
        if let Some(parent) = &agent.config.parent {
            agent.watch(parent.as_fd(), Token::Leaves, epoll::EventFlags::IN)?;
        }
        agent.connect(port)?;
        Ok(agent)
    }

    /// Serves until the guest ends. An error means that epoll itself failed.
    pub(crate) fn run(&mut self) -> io::Result<End> {
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        loop {
            let limit = self.wait_limit();
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                limit.as_ref(),
            ) {
                // Nothing is handled by signal handlers here; a tracer that attaches or a stop
                // interrupts the wait all the same.
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                // Copied out: the record is packed.
                let (data, flags) = (event.data, event.flags);
                if let Some(token) = Token::decode(data.u64()) {
                    self.dispatch(token, flags);
                }
            }
            if self.unfinished.orphans {
                self.collect_orphans();
            }
            self.exchange();
            self.unfinished.receive |= self.conn.take_credit_sought();
            // After the exits have left: nobody waits for this.
            if let Some(parent) = &mut self.config.parent {
                parent.tidy();
            }
            if self.link.is_none() {
                if self.config.reopen.is_none() {
                    return Ok(End::Disconnected);
                }
                self.reconnect();
            }
            if let Some(end) = self.advance_shutdown() {
                return Ok(end);
            }
        }
    }

    /// Bytes both ways; a lost connection is dealt with here.
    fn exchange(&mut self) {
        let done = self.receive().and_then(|()| {
            self.feed_commands();
            self.look_at_rest();
            self.transmit()
        });
        if let Err(why) = done {
            self.disconnect(&why);
        }
    }

    /// How long the next wait may take; `None` is for ever.
    fn wait_limit(&self) -> Option<Timespec> {
        let Unfinished {
            receive,
            transmit,
            orphans,
        } = self.unfinished;
        let untidy = self.config.parent.as_ref().is_some_and(Parent::is_untidy);
        if receive || transmit || orphans || untidy {
            return Some(Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            });
        }
        let deadlines = [
            self.retry_at,
            self.reopen_at,
            self.shutdown.as_ref().map(Shutdown::deadline),
            self.rest.deadline(),
        ];
        let next = deadlines.into_iter().flatten().min()?;
        let wait = next.saturating_duration_since(Instant::now());
        Some(Timespec::try_from(wait).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        }))
    }

    fn dispatch(&mut self, token: Token, flags: epoll::EventFlags) {
        match token {
            Token::Port => {
                self.unfinished.receive = true;
                if flags.contains(epoll::EventFlags::OUT) {
                    self.unblock();
                }
            }
            Token::Signals => self.take_signals(),
            Token::Leaves => {
                if let Some(parent) = &mut self.config.parent {
                    parent.take_changes();
                }
            }
            Token::Status(id) => self.check_start(id),
            Token::Leader(id) => self.check_leader(id),
            Token::Stdout(id) => self.conn.stream_ready(id, Stream::Stdout, true),
            Token::Stderr(id) => self.conn.stream_ready(id, Stream::Stderr, true),
            Token::Stdin(id) => self.unfed.push(id),
            Token::Lingering(number) => self.discard_lingering(number),
        }
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.signals.as_ref().and_then(SignalFd::next) {
            match signal {
                libc::SIGCHLD => self.unfinished.orphans = true,
                libc::SIGUSR1 if self.config.test_crash => std::process::exit(1),
                // What the image's own halt, poweroff and reboot send to PID 1.
                libc::SIGUSR1 | libc::SIGUSR2 | signals::POWER_BUTTON => {
                    self.begin_shutdown(End::PowerOff, DEFAULT_GRACE);
                }
                libc::SIGTERM => self.begin_shutdown(End::Reboot, DEFAULT_GRACE),
                _ => {}
            }
        }
    }

    /// The first request counts; later ones change nothing.
    fn begin_shutdown(&mut self, end: End, grace: Duration) {
        if self.shutdown.is_none() {
            self.stop_freezing("the guest is being powered off".to_owned());
            // What is frozen cannot act on SIGTERM, and must not run before a renewal.
            let grace = match self.rest {
                Rest::Frozen => Duration::ZERO,
                Rest::Running | Rest::Freezing { .. } => grace,
            };
            say(format_args!("{end:?} requested, processes have {grace:?}"));
            self.shutdown = Some(Shutdown::new(end, grace, Instant::now()));
        }
    }

    /// Does what is due. Returns how the guest ends once nothing is left to do before it.
    fn advance_shutdown(&mut self) -> Option<End> {
        let shutdown = self.shutdown.as_mut()?;
        let alone = if self.config.whole_system {
            self.alone
        } else {
            self.executions.is_empty()
        };
        let drained = self.link.as_ref().is_none_or(Link::is_empty)
            && self.conn.executions() == 0
            && !self.conn.wants_transmit();
        let signal = match shutdown.advance(alone, drained, Instant::now()) {
            Step::Wait => return None,
            Step::Finish(end) => return Some(end),
            Step::Terminate => libc::SIGTERM,
            Step::Kill => libc::SIGKILL,
        };
        trace!("shutdown: signal {signal} to everything");
        self.signal_everything(signal);
        // A guest that has no process left must not wait for the end of one.
        self.unfinished.orphans = self.config.whole_system;
        None
    }

    fn signal_everything(&mut self, signal: i32) {
        if self.config.whole_system {
            signals::send_everyone(signal);
            // A stopped process acts on SIGTERM only once it goes on.
            signals::send_everyone(libc::SIGCONT);
        } else {
            for execution in self.executions.values_mut() {
                execution.signal(signal.unsigned_abs());
            }
        }
    }

    /// Has epoll report on `fd`.
    fn watch(
        &self,
        fd: BorrowedFd<'_>,
        token: Token,
        flags: epoll::EventFlags,
    ) -> Result<(), Errno> {
        epoll::add(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(token.encode()),
            flags,
        )
    }

    /// Changes what epoll reports on `fd`.
    fn rewatch(
        &self,
        fd: BorrowedFd<'_>,
        token: Token,
        flags: epoll::EventFlags,
    ) -> Result<(), Errno> {
        epoll::modify(
            &self.epoll,
            fd,
            epoll::EventData::new_u64(token.encode()),
            flags,
        )
    }

    /// Ends epoll's interest in a descriptor before it is closed: a child between clone and exec
    /// holds a copy, and while it does, epoll would go on reporting.
    fn unwatch(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }
}

#[cfg(test)]
#[path = "agent_test.rs"]
mod tests;
