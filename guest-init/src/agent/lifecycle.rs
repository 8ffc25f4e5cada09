//! Executions from their start to their end.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use forebay_exec_proto::{ExecId, ExitStatus, Failure, FailureKind, Request, Stream};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::Agent;
use super::token::{ID_MAX, Token};
use crate::command::Command;
use crate::console::trace;
use crate::execution::{Execution, Phase};
use crate::failure::{self, Stage};
use crate::output::Then;
use crate::reaper::{self, Exit, Look};
use crate::spawn::{self, Progress};

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
            Ok(execution) => {
                trace!("{id}: pid {}", execution.pid);
                self.leaders
                    .insert(execution.pid.as_raw_nonzero().get(), id);
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
        let leaf =
            match &self.config.parent {
                None => None,
                Some(parent) => Some(parent.leaf(id).map_err(|errno| {
                    failure::step(Stage::Cgroup, errno, &command.shown_program())
                })?),
            };
        let started = self
            .spawner
            .spawn(&command, request.stdin, leaf.as_ref().map(AsFd::as_fd));
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
            (child.status.as_fd(), Token::Status(id)),
            (child.pidfd.as_fd(), Token::Leader(id)),
            (child.stdout.as_fd(), Token::Stdout(id)),
            (child.stderr.as_fd(), Token::Stderr(id)),
        ];
        let watched = sources
            .into_iter()
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
            (
                Progress::Failed {
                    stage,
                    errno,
                    found,
                },
                _,
            ) => {
                let failure = match stage {
                    Stage::Exec => failure::exec(
                        errno,
                        found,
                        &command.shown_program(),
                        command.shown_path().as_deref(),
                    ),
                    Stage::Cwd => failure::step(stage, errno, &command.shown_cwd()),
                    _ => failure::step(stage, errno, &command.shown_program()),
                };
                execution.phase = Phase::Failed;
                execution.abandon_pipes();
                self.report_failure(id, failure);
            }
        }
    }

    /// The leader may have ended.
    pub(super) fn check_leader(&mut self, id: ExecId) {
        let exit = self
            .executions
            .get(&id)
            .and_then(|e| reaper::reap(e.pidfd.as_fd()));
        if let Some(exit) = exit {
            self.leader_ended(id, exit);
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

    fn leader_ended(&mut self, id: ExecId, exit: Exit) {
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
            let (code, signal) = match exit {
                Exit::Code(code) => (Some(code), None),
                Exit::Signal(signal) => (None, Some(signal)),
            };
            trace!("{id}: {exit:?}");
            self.conn.exited(
                id,
                ExitStatus {
                    code,
                    signal,
                    duration_us: u64::try_from(duration).unwrap_or(u64::MAX),
                    ..ExitStatus::default()
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
        if self.executions.get(&id).is_some_and(Execution::is_over)
            && let Some(mut execution) = self.executions.remove(&id)
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
