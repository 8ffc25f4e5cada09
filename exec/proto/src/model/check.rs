//! What must hold after every operation, and when everybody has done their part.

use alloc::vec::Vec;

use super::World;
use crate::host::Terminal;
use crate::pair::exit_code;
use crate::{ExecId, Stream};

impl World {
    /// What must hold after every operation.
    pub fn check(&self) {
        assert!(
            self.pair.host.is_ready(),
            "honest ends never close the connection"
        );
        let view = self.pair.host.inspect();
        assert_eq!(view.faults, 0, "honest ends never fault");
        assert!(view.active <= self.limits.max_executions);
        let admitted = view.executions.iter().filter(|e| e.admitted).count();
        assert_eq!(
            admitted, view.active as usize,
            "the count is the number of slots held"
        );
        for exec in &view.executions {
            let outstanding = exec.output_received - exec.output_released;
            assert!(
                outstanding <= u64::from(self.limits.output_limit),
                "{exec:?}"
            );
            assert!(exec.output_held as u64 <= outstanding, "{exec:?}");
            let stdin = exec.stdin_sent - exec.stdin_acked;
            assert!(stdin <= u64::from(self.limits.input_limit), "{exec:?}");
            if let Some((a, b)) = self.pair.guest.stdin_pending(exec.id) {
                assert!(a.len() + b.len() <= self.limits.input_limit as usize);
            }
        }
        self.check_deadlines();
        assert!(
            !self.pair.host.is_frozen() || self.pair.frozen || !self.can_be_saved(),
            "the host knows what stands still"
        );
        for (id, model) in &self.models {
            if let Some(progress) = self.pair.host.progress(*id) {
                let submitted = model.submitted.len() as u64;
                assert!(progress.stdin_accepted <= submitted, "stdin of {id}");
                assert!(
                    progress.stdin_accepted == submitted
                        || model.broken
                        || self.pair.host.terminal(*id).is_some(),
                    "all that was submitted to {id} was accepted"
                );
                for (stream, consumed) in [
                    (Stream::Stdout, progress.stdout_consumed),
                    (Stream::Stderr, progress.stderr_consumed),
                ] {
                    let read = model.read.get(&stream).map_or(0, Vec::len);
                    assert!(
                        consumed == read as u64 || model.discarded.contains(&stream),
                        "{stream:?} of {id} was read to {read}, not to {consumed}"
                    );
                }
            }
            if let Some(command) = self.pair.commands.get(id) {
                let eaten = &command.eaten;
                assert_eq!(eaten[..], model.submitted[..eaten.len()], "stdin of {id}");
            }
            for (stream, read) in &model.read {
                assert_eq!(
                    read[..],
                    model.produced[stream][..read.len()],
                    "{stream:?} of {id}"
                );
            }
        }
    }

    /// Deadlines that run, and what ended by one.
    fn check_deadlines(&self) {
        let host = &self.pair.host;
        let mut next = Vec::new();
        for exec in host.inspect().executions {
            let timeout = self.models[&exec.id].timeout;
            let expired = timeout.and_then(|timeout| timeout.expired);
            let unconfirmed = match host.terminal(exec.id) {
                None => {
                    next.extend(match expired {
                        None => timeout.map(|timeout| timeout.expires),
                        Some(expired) => expired.until(),
                    });
                    expired.is_some_and(|expired| expired.until().is_none())
                }
                Some(Terminal::TimedOut { status, limit }) => {
                    assert_eq!((status.signal, status.code), (Some(9), None));
                    assert!(expired.is_some_and(|expired| !expired.killed), "{exec:?}");
                    assert_eq!(timeout.map(|timeout| timeout.limit), Some(*limit));
                    false
                }
                Some(Terminal::Exited(status)) => {
                    let own = expired.is_none_or(|expired| expired.killed);
                    assert!(own || status.signal != Some(9), "{exec:?}");
                    false
                }
                Some(_) => false,
            };
            assert_eq!(host.unconfirmed(exec.id).is_some(), unconfirmed, "{exec:?}");
        }
        assert_eq!(host.next_deadline(), next.into_iter().min());
    }

    /// Everybody does their part: commands read and exit, readers read. Then nothing may be owed.
    pub fn finish(&mut self) {
        while let Some((frame, rest)) = self.in_flight.pop_front() {
            self.pair.host_receives(&frame, rest);
        }
        self.take_all_up();
        self.pair.dull = false;
        loop {
            self.asked.extend(self.pair.host.thaw());
            self.heed_notices();
            self.pair.settle();
            self.pair.freeze(Ok(()));
            self.pair.settle();
            self.heed_notices();
            if !self.pair.frozen && self.can_be_saved() {
                break;
            }
        }
        assert!(self.asked.is_empty(), "every question was answered");
        for _ in 0..1_000_000 {
            self.pair.settle();
            let mut moved = false;
            for id in self.order.clone() {
                let before = self.pair.commands.get(&id).map_or(0, |c| c.eaten.len());
                self.pair.eat(id, usize::MAX);
                moved |= self.pair.commands.get(&id).map_or(0, |c| c.eaten.len()) > before;
                for stream in Stream::ALL {
                    while let Some(chunk) = self.pair.host.take_chunk(id, stream) {
                        self.took(id, stream, &chunk);
                        moved = true;
                    }
                }
            }
            self.pair.settle();
            if !moved {
                break;
            }
        }
        let ended_early: Vec<ExecId> = self
            .order
            .iter()
            .copied()
            .filter(|id| {
                self.pair
                    .commands
                    .get(id)
                    .is_none_or(|command| command.exited)
            })
            .collect();
        for (id, model) in &self.models {
            let expired = model
                .timeout
                .is_some_and(|timeout| timeout.expired.is_some());
            assert!(!expired || ended_early.contains(id), "{id} had its time");
        }
        for id in self.order.clone() {
            self.pair.exit(id, exit_code(0));
        }
        self.pair.settle();
        self.heed_notices();
        assert_eq!(self.pongs, self.pings.len(), "every ping was answered");
        self.check();
        assert_eq!(self.pair.host.active(), 0, "every slot came back");
        for (id, model) in &self.models {
            // Killed before the guest heard of it, or refused there.
            let Some(command) = self.pair.commands.get(id) else {
                if !model.forgotten {
                    assert!(
                        matches!(self.pair.host.terminal(*id), Some(Terminal::Failed(_))),
                        "{id} has never run"
                    );
                }
                continue;
            };
            if !ended_early.contains(id) && !model.broken {
                assert_eq!(command.eaten, model.submitted, "stdin of {id} is complete");
            }
            for (stream, produced) in &model.produced {
                if !model.discarded.contains(stream) {
                    let read = model.read.get(stream).cloned().unwrap_or_default();
                    assert_eq!(&read, produced, "{stream:?} of {id} is complete");
                }
            }
            if !model.forgotten {
                assert!(
                    matches!(
                        self.pair.host.terminal(*id),
                        Some(Terminal::Exited(_) | Terminal::TimedOut { .. })
                    ),
                    "{id} has its end"
                );
            }
        }
        for id in self.order.clone() {
            self.pair.host.forget(id);
        }
        assert!(
            self.pair.host.inspect().executions.is_empty(),
            "no entry stays behind"
        );
        assert_eq!(self.pair.guest.executions(), 0);
    }
}
