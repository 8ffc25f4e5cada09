//! Executions from their start to their end.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use forebay_exec_proto::{ExecId, ExitStatus, Failure, FailureKind, Request, Stream};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::Agent;
use super::token::{ID_MAX, Token};
use crate::cgroup::{self, Leaf};
use crate::command::Command;
use crate::console::trace;
use crate::execution::{Execution, Phase};
use crate::failure::{self, Stage};
use crate::output::Then;
use crate::reaper::{self, Exit, Look, Reaped};
use crate::spawn::{self, Progress};
use crate::usage::{self, Io};

/// What is known of a leader whose start is looked at.
#[derive(Debug, Clone, Copy)]
enum Leader {
    MayRun,
    Ended,
}

/// Orphans collected per turn.
const ORPHANS_PER_TURN: usize = 256;

impl Agent {
    /// Starts what the host asked for. Whether the program runs is learned later, from its status
    /// pipe; only what fails before the process exists is reported here.
    pub(super) fn start(&mut self, id: ExecId, request: &Request) {
        match self.try_start(id, request) {
            Ok(mut execution) => {
                trace!("{id}: pid {}", execution.pid);
                self.leaders
                    .insert(execution.pid.as_raw_nonzero().get(), id);
                for stream in Stream::ALL {
                    if execution.output(stream).has_ended() {
                        self.conn.stream_ended(id, stream);
                    }
                }
                self.executions.insert(id, execution);
                self.alone = false;
            }
            Err(failure) => self.report_failure(id, failure),
        }
    }

    fn try_start(&mut self, id: ExecId, request: &Request) -> Result<Execution, Failure> {
        if self.shutdown.is_some() {
            let message = "the guest is being powered off".to_owned();
            return Err(failure::refused(FailureKind::Other, message));
        }
        if id.get() > ID_MAX || self.executions.contains_key(&id) {
            let message = format!("execution id {id} cannot be used");
            return Err(failure::refused(FailureKind::Protocol, message));
        }
        let command = Command::new(request, &self.defaults)?;
        let begun = Instant::now();
        let leaf = self.leaf(id, request, &command)?;
        let started = self.spawner.spawn(
            &command,
            request.stdin,
            request.terminal,
            leaf.as_ref().map(AsFd::as_fd),
        );
        let child = match started {
            Ok(child) => child,
            Err(failure) => {
                if let (Some(parent), Some(leaf)) = (&mut self.config.parent, leaf) {
                    parent.release(leaf);
                }
                return Err(failure);
            }
        };
        let sources = [
            (Some(child.status.as_fd()), Token::Status(id)),
            (Some(child.pidfd.as_fd()), Token::Leader(id)),
            (child.streams.stdout.as_fd(), Token::Stdout(id)),
            (child.streams.stderr.as_fd(), Token::Stderr(id)),
        ];
        let watched = sources
            .into_iter()
            .filter_map(|(fd, token)| Some((fd?, token)))
            .try_for_each(|(fd, token)| self.watch(fd, token, EventFlags::IN | EventFlags::ET));
        let mut execution = Execution::new(child, command, leaf, begun);
        match watched {
            Ok(()) => Ok(execution),
            Err(errno) => {
                // Nobody would learn of its end. It becomes an orphan that PID 1 collects.
                execution.kill();
                if let (Some(parent), Some(leaf)) = (&mut self.config.parent, execution.take_leaf())
                {
                    parent.release(leaf);
                }
                Err(failure::step(Stage::Clone, errno, "the command"))
            }
        }
    }

    /// Makes the execution's group, with its limits. There are no leaves where there are no groups,
    /// and then no limit can be kept.
    fn leaf(
        &mut self,
        id: ExecId,
        request: &Request,
        command: &Command,
    ) -> Result<Option<Leaf>, Failure> {
        let limits = cgroup::limits(request.resources.as_ref(), &self.resources);
        let Some(parent) = &mut self.config.parent else {
            return cgroup::unlimited(&limits).map(|()| None);
        };
        let leaf = parent
            .leaf(id, cgroup::is_limited(&limits))
            .map_err(|errno| failure::step(Stage::Cgroup, errno, &command.shown_program()))?;
        match leaf.limit(&limits) {
            Ok(()) => Ok(Some(leaf)),
            Err(failure) => {
                parent.release(leaf);
                Err(failure)
            }
        }
    }

    fn report_failure(&mut self, id: ExecId, failure: Failure) {
        trace!("{id}: did not start: {}", failure.message);
        self.conn.failed(id, failure);
    }

    /// The status pipe has something to say: the program runs, or did not start.
    pub(super) fn check_start(&mut self, id: ExecId) {
        self.settle_start(id, Leader::MayRun);
    }

    fn settle_start(&mut self, id: ExecId, leader: Leader) {
        let Some(execution) = self.executions.get_mut(&id) else {
            return;
        };
        let Phase::Starting {
            status, command, ..
        } = &execution.phase
        else {
            return;
        };
        match (spawn::progress(status.as_fd()), leader) {
            (Progress::Pending, Leader::MayRun) => {}
            // A leader that is gone has said what it had to say. Its pipe may be kept open for a
            // moment longer by a copy of it.
            (Progress::Started | Progress::Pending, _) => {
                let pid = execution.pid.as_raw_nonzero().get().unsigned_abs();
                // Signals that came too early are for a leader that lives.
                if let Leader::MayRun = leader {
                    execution.run();
                }
                self.conn.started(id, pid);
            }
            (Progress::Failed(report), _) => {
                let failure = report.failure(command);
                execution.phase = Phase::Failed;
                execution.abandon_pipes();
                self.report_failure(id, failure);
            }
        }
    }

    /// The leader may have ended.
    pub(super) fn check_leader(&mut self, id: ExecId) {
        let Some(execution) = self.executions.get(&id) else {
            return;
        };
        if execution.is_collected() {
            return;
        }
        // What it read and wrote is gone once it is collected.
        let io = self.processes.io(execution.pid);
        if let Some(leader) = reaper::reap(execution.pidfd.as_fd()) {
            self.leader_ended(id, &leader, io);
        }
    }

    /// Collects every child that has ended: leaders for their execution, orphans for good.
    pub(super) fn collect_orphans(&mut self) {
        for _ in 0..ORPHANS_PER_TURN {
            match reaper::look() {
                Look::Ended(pid) => match self.leaders.get(&pid.as_raw_nonzero().get()) {
                    Some(id) => self.check_leader(*id),
                    None => reaper::reap_orphan(pid),
                },
                found => {
                    self.alone = found == Look::Alone;
                    self.unfinished.orphans = false;
                    return;
                }
            }
        }
        self.alone = false;
        self.unfinished.orphans = true;
    }

    fn leader_ended(&mut self, id: ExecId, leader: &Reaped, io: Option<Io>) {
        // The status pipe may be behind in the same batch of events; its word comes first.
        self.settle_start(id, Leader::Ended);
        let Some(execution) = self.executions.get_mut(&id) else {
            return;
        };
        self.leaders.remove(&execution.pid.as_raw_nonzero().get());
        let failed = matches!(execution.phase, Phase::Failed);
        execution.phase = Phase::Exited;
        if !failed {
            let duration = execution.begun.elapsed().as_micros();
            let (code, signal) = match leader.exit {
                Exit::Code(code) => (Some(code), None),
                Exit::Signal(signal) => (None, Some(signal)),
            };
            let leaf = execution.leaf();
            let usage = usage::usage(leaf, io, leader);
            let oom_killed = leaf.and_then(Leaf::oom_killed);
            trace!("{id}: {:?}, {usage:?}", leader.exit);
            if let Some(stdin) = &mut execution.stdin {
                stdin.leader_exited();
            }
            self.conn.exited(
                id,
                ExitStatus {
                    code,
                    signal,
                    duration_us: u64::try_from(duration).unwrap_or(u64::MAX),
                    usage: Some(usage),
                    oom_killed,
                },
            );
            for stream in Stream::ALL {
                let then = match self.executions.get_mut(&id) {
                    Some(execution) => execution.output(stream).leader_exited(),
                    None => break,
                };
                self.continue_stream(id, stream, then);
            }
            // Pending stdin that nobody reads now frees the host's writers.
            self.unfed.push(id);
        }
        self.remove_if_over(id);
    }

    /// Passes on what a stream said it can do next.
    pub(super) fn continue_stream(&mut self, id: ExecId, stream: Stream, then: Then) {
        match then {
            Then::Readable => self.conn.stream_ready(id, stream, true),
            Then::Empty => self.conn.stream_ready(id, stream, false),
            Then::Ended(pipe) => {
                self.conn.stream_ended(id, stream);
                if let Some(pipe) = pipe {
                    self.linger(pipe);
                }
            }
        }
    }

    /// Forgets an execution that has nothing more to give.
    pub(super) fn remove_if_over(&mut self, id: ExecId) {
        if !self.executions.get(&id).is_some_and(Execution::is_over) {
            return;
        }
        // What is left of its terminal may outlive it.
        self.close_stdin(id);
        if let Some(mut execution) = self.executions.remove(&id)
            && let Some(leaf) = execution.take_leaf()
            && let Some(parent) = &mut self.config.parent
        {
            parent.release(leaf);
        }
    }

    /// Keeps a pipe open for the descendants that still write to it.
    fn linger(&mut self, pipe: OwnedFd) {
        let (number, oldest) = self.lingering.add(pipe);
        if let Some(oldest) = oldest {
            trace!("too many pipes outlive their command, the oldest is closed");
            self.unwatch(&oldest);
        }
        let watched = match self.lingering.get(number) {
            Some(pipe) => self.rewatch(pipe, Token::Lingering(number), EventFlags::IN),
            None => Err(Errno::NOENT),
        };
        if let Err(error) = watched {
            trace!("a pipe cannot outlive its command: {error}");
            self.lingering.remove(number);
        }
    }

    /// Empties a pipe that outlives its command, and closes it when its last writer has.
    pub(super) fn discard_lingering(&mut self, number: u64) {
        if let Some(pipe) = self.lingering.discard(number) {
            self.unwatch(&pipe);
        }
    }
}
