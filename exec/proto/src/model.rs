//! Both ends against a naive model, over lists of operations.
//!
//! The model is as simple as can be: what goes into a stream comes out of it, in order, once;
//! what is outstanding never passes its limit; when everybody does their part the link comes to
//! rest with nothing owed. [`World`] applies operations one by one; who chooses them, a property
//! test or a fuzzer, is not its business.
#![allow(
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests only: a failed expectation is the test's result"
)]

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use crate::host::{Conn, Notice, Read, StartError, Stdin};
use crate::message::StdinError;
use crate::pair::{self, Pair, exit_code};
use crate::{ExecId, FailureKind, HEADER_LEN, Limits, Renewal, Secret, Stream};

mod check;
mod naive;
mod ops;

pub use ops::Op;

use naive::{Model, Timeout};

/// Both ends, the link between them, and the model of each execution.
pub struct World {
    pair: Pair,
    limits: Limits,
    order: Vec<ExecId>,
    models: BTreeMap<ExecId, Model>,
    /// Frames that the guest has written and the host has not taken.
    in_flight: VecDeque<(Vec<u8>, usize)>,
    next_byte: u8,
    now: Duration,
    /// Pings that were taken, and how many of them were answered, in their order.
    pings: Vec<u64>,
    pongs: usize,
    /// What was asked of the guest as a whole, and not answered.
    asked: BTreeSet<u64>,
}

/// How long the guest may take to freeze; it decides by operations.
const LIMIT: Duration = Duration::from_secs(1);

fn stream(flag: bool) -> Stream {
    if flag { Stream::Stderr } else { Stream::Stdout }
}

impl World {
    /// Both ends after Ready.
    pub fn new(limits: Limits) -> Self {
        pair::set_now(Duration::ZERO);
        Self {
            pair: Pair::new(limits),
            limits,
            order: Vec::new(),
            models: BTreeMap::new(),
            in_flight: VecDeque::new(),
            next_byte: 0,
            now: Duration::ZERO,
            pings: Vec::new(),
            pongs: 0,
            asked: BTreeSet::new(),
        }
    }

    /// The host's end.
    pub fn host(&self) -> &Conn {
        &self.pair.host
    }

    /// A copy whose ends were saved and restored. Frames from the guest are in the device's
    /// rings, and stay.
    pub fn restored(&self) -> Self {
        pair::set_now(self.now);
        Self {
            pair: self.pair.restored(),
            limits: self.limits,
            order: self.order.clone(),
            models: self
                .models
                .iter()
                .map(|(id, m)| (*id, m.restored()))
                .collect(),
            in_flight: self.in_flight.clone(),
            next_byte: self.next_byte,
            now: self.now,
            pings: self.pings.clone(),
            pongs: self.pongs,
            asked: self.asked.clone(),
        }
    }

    /// Whether no question to the guest as a whole is open.
    pub fn can_be_saved(&self) -> bool {
        self.pair.host.save().is_ok()
    }

    fn pick(&self, exec: usize) -> Option<ExecId> {
        self.order.get(exec % self.order.len().max(1)).copied()
    }

    fn pattern(&mut self, n: usize) -> Vec<u8> {
        (0..n)
            .map(|_| {
                self.next_byte = self.next_byte.wrapping_mul(5).wrapping_add(73);
                self.next_byte
            })
            .collect()
    }

    /// Does one operation at both ends and in the model.
    pub fn apply(&mut self, op: &Op) {
        // Worlds of one thread share a clock.
        pair::set_now(self.now);
        match *op {
            Op::Start { piped, size } => {
                let word = "w".repeat(size);
                let stdin = if piped { Stdin::Pipe } else { Stdin::Null };
                self.start(|pair| pair.try_start(&["cmd", &word], stdin));
            }
            Op::StartWithBytes { n } => {
                let data = self.pattern(n);
                let stdin = Stdin::Bytes(Bytes::from(data.clone()));
                if let Some(id) = self.start(|pair| pair.try_start(&["cmd"], stdin)) {
                    self.models.get_mut(&id).unwrap().submitted = data;
                }
            }
            Op::StartWithin { ms } => {
                let limit = Duration::from_millis(ms as u64 + 1);
                if let Some(id) = self.start(|pair| pair.try_start_within(limit)) {
                    self.models.get_mut(&id).unwrap().timeout = Some(Timeout {
                        limit,
                        expires: self.now + limit,
                        expired: None,
                    });
                }
            }
            Op::Pass { ms } => {
                let time = Duration::from_millis(ms as u64);
                self.now += time;
                pair::set_now(self.now);
                for exec in self.pair.host.inspect().executions {
                    if self.pair.host.terminal(exec.id).is_none() {
                        let model = self.models.get_mut(&exec.id).unwrap();
                        model.pass(self.now, &exec);
                    }
                }
                self.pair.pass(Duration::ZERO);
            }
            Op::FailNextStart => self.pair.refuse = Some(FailureKind::NotFound),
            Op::Write { exec, n } => {
                let Some(id) = self.pick(exec) else { return };
                let data = self.pattern(n);
                if self
                    .pair
                    .host
                    .write_stdin(id, Bytes::from(data.clone()))
                    .is_ok()
                {
                    self.models.get_mut(&id).unwrap().submitted.extend(data);
                }
            }
            Op::CancelWrite { exec } => {
                let Some(id) = self.pick(exec) else { return };
                let before = self.pair.host.pending_stdin(id);
                self.pair.host.cancel_write(id);
                let taken_back = before - self.pair.host.pending_stdin(id);
                let submitted = &mut self.models.get_mut(&id).unwrap().submitted;
                submitted.truncate(submitted.len() - taken_back);
            }
            Op::Close { exec } => {
                let Some(id) = self.pick(exec) else { return };
                let _ = self.pair.host.close_stdin(id);
            }
            Op::Signal { exec } => {
                let Some(id) = self.pick(exec) else { return };
                let _ = self.pair.host.signal(id, 10);
            }
            Op::Kill { exec } => {
                let Some(id) = self.pick(exec) else { return };
                let model = self.models.get_mut(&id).unwrap();
                model.killed |= self.pair.host.kill(id).is_ok();
            }
            Op::PassOn { exec, stream: flag } => {
                let Some(id) = self.pick(exec).filter(|id| !self.models[id].left) else {
                    return;
                };
                if let Some(chunk) = self.pair.host.take_forwarded(id, stream(flag)) {
                    let passed = &mut self.models.get_mut(&id).unwrap().passed;
                    passed.entry(stream(flag)).or_default().extend(chunk);
                }
            }
            Op::Consume {
                exec,
                stream: flag,
                n,
            } => {
                let Some(id) = self.pick(exec) else { return };
                let passed = &mut self.models.get_mut(&id).unwrap().passed;
                let Some(passed) = passed.get_mut(&stream(flag)) else {
                    return;
                };
                let bytes: Vec<u8> = passed.drain(..n.min(passed.len())).collect();
                let progress = self.pair.host.progress(id).unwrap();
                let mut consumed = [progress.stdout_consumed, progress.stderr_consumed];
                consumed[usize::from(flag)] += bytes.len() as u64;
                let units = self.pair.host.release_forwarded(id, consumed).unwrap();
                assert!(units >= bytes.len() as u64);
                self.took(id, stream(flag), &bytes);
            }
            Op::ConsumeTooMuch {
                exec,
                stream: flag,
                n,
            } => {
                let Some(id) = self.pick(exec) else { return };
                let Some(progress) = self.pair.host.progress(id) else {
                    return;
                };
                let before = self.pair.host.inspect().executions;
                let passed = |stream| self.models[&id].passed.get(&stream).map_or(0, Vec::len);
                let mut consumed = [progress.stdout_consumed, progress.stderr_consumed];
                consumed[usize::from(flag)] += n.min(passed(stream(flag))) as u64;
                consumed[usize::from(!flag)] += passed(stream(!flag)) as u64 + 1;
                let refused = self.pair.host.release_forwarded(id, consumed);
                assert!(refused.is_err(), "{refused:?}");
                assert_eq!(self.pair.host.inspect().executions, before);
            }
            Op::Leave { exec } => {
                let Some(id) = self.pick(exec) else { return };
                self.leave(id);
            }
            Op::TakeUp { exec } => {
                let Some(id) = self.pick(exec) else { return };
                self.take_up(id);
            }
            Op::Take { exec, stream: flag } => {
                let Some(id) = self.pick(exec).filter(|id| self.models[id].is_read()) else {
                    return;
                };
                if let Some(chunk) = self.pair.host.take_chunk(id, stream(flag)) {
                    self.took(id, stream(flag), &chunk);
                }
            }
            Op::Read {
                exec,
                stream: flag,
                n,
            } => {
                let Some(id) = self.pick(exec).filter(|id| self.models[id].is_read()) else {
                    return;
                };
                let mut buf = vec![0; n];
                if let Read::Data(n) = self.pair.host.read(id, stream(flag), &mut buf) {
                    self.took(id, stream(flag), &buf[..n]);
                }
            }
            Op::Discard { exec, stream: flag } => {
                let Some(id) = self.pick(exec) else { return };
                self.pair.host.discard(id, stream(flag));
                let model = self.models.get_mut(&id).unwrap();
                model.discarded.push(stream(flag));
                model.passed.remove(&stream(flag));
            }
            Op::Forget { exec } => {
                let Some(id) = self.pick(exec) else { return };
                self.pair.host.forget(id);
                let model = self.models.get_mut(&id).unwrap();
                model.forgotten = true;
                model.left = false;
                model.discarded.extend(Stream::ALL);
                model.passed.clear();
            }
            Op::Produce {
                exec,
                stream: flag,
                n,
            } => {
                let Some(id) = self.pick(exec) else { return };
                let data = self.pattern(n);
                if self.pair.commands.get(&id).is_some_and(|c| !c.exited) {
                    self.pair.produce(id, stream(flag), &data);
                    let model = self.models.get_mut(&id).unwrap();
                    model.produced.entry(stream(flag)).or_default().extend(data);
                }
            }
            Op::Eat { exec, n } => {
                let Some(id) = self.pick(exec) else { return };
                self.pair.eat(id, n);
            }
            Op::BreakStdin { exec } => {
                let Some(id) = self.pick(exec) else { return };
                if self.pair.commands.get(&id).is_some_and(|c| !c.exited) {
                    let epipe = StdinError {
                        errno: 32,
                        name: "EPIPE".into(),
                        message: "Broken pipe".into(),
                    };
                    self.pair.guest.stdin_error(id, epipe);
                    self.models.get_mut(&id).unwrap().broken = true;
                }
            }
            Op::Ping => {
                let seq = self.pings.len() as u64;
                if self.pair.host.ping(seq).is_ok() {
                    self.pings.push(seq);
                }
            }
            Op::Exit { exec } => {
                let Some(id) = self.pick(exec) else { return };
                self.pair.exit(id, exit_code(0));
            }
            Op::HostSends { frames } => {
                for _ in 0..frames {
                    self.pair.host_sends();
                }
            }
            Op::GuestReceives { n } => {
                self.pair.guest_receives(n);
            }
            Op::GuestWrites { size } => {
                let frames = self.pair.guest_write(size);
                let mut rest: usize = frames.iter().map(Vec::len).sum();
                for frame in frames {
                    rest -= frame.len();
                    let after = rest + frame.len() - HEADER_LEN;
                    self.in_flight.push_back((frame, after));
                }
            }
            Op::HostReceives { frames } => {
                for _ in 0..frames {
                    let Some((frame, rest)) = self.in_flight.pop_front() else {
                        break;
                    };
                    self.host_receives(&frame, rest);
                }
            }
            Op::Quiesce => self.asked.extend(self.pair.host.quiesce(LIMIT).ok()),
            Op::Freeze { done } => {
                self.pair.freeze(if done {
                    Ok(())
                } else {
                    Err("it waits for a disk")
                });
            }
            Op::Renew { dull } => {
                self.pair.dull = dull;
                let renewal = Renewal {
                    entropy: Secret([7; 32]),
                    generation: [9; 16],
                    hostname: None,
                };
                let asked = self.pair.host.renew(renewal);
                self.asked.extend(asked.ok());
            }
            Op::Thaw => self.asked.extend(self.pair.host.thaw()),
            Op::Restore if !self.can_be_saved() => {}
            Op::Restore => *self = self.restored(),
        }
        self.heed_notices();
    }

    /// Nobody holds it from here on, unless nothing of it is left.
    fn leave(&mut self, id: ExecId) {
        let holds_slot = |pair: &Pair| {
            let mut executions = pair.host.inspect().executions.into_iter();
            executions.any(|exec| exec.id == id && exec.admitted)
        };
        let model = self.models.get_mut(&id).unwrap();
        let possible = !model.forgotten && holds_slot(&self.pair);
        assert_eq!(self.pair.host.leave(id).is_ok(), possible);
        if possible {
            model.left = true;
            model.passed.clear();
        }
        assert_eq!(self.pair.host.left(id), model.left.then_some(id));
    }

    fn take_up(&mut self, id: ExecId) {
        self.pair.host.take_up(id);
        self.models.get_mut(&id).unwrap().left = false;
        assert_eq!(self.pair.host.left(id), None);
    }

    /// Everything is held by somebody who reads it here.
    pub fn take_all_up(&mut self) {
        for id in self.order.clone() {
            if !self.models[&id].is_read() {
                self.leave(id);
            }
            self.take_up(id);
        }
    }

    /// Starts a command, if there is a slot and only then.
    fn start(
        &mut self,
        start: impl FnOnce(&mut Pair) -> Result<ExecId, StartError>,
    ) -> Option<ExecId> {
        let admitted = self.pair.host.active() < self.limits.max_executions;
        let started = start(&mut self.pair);
        assert_eq!(started.is_ok(), admitted, "admission is exact");
        let id = started.ok()?;
        self.order.push(id);
        self.models.insert(id, Model::default());
        Some(id)
    }

    /// A frame reaches the host; it may be the start of a command.
    fn host_receives(&mut self, frame: &[u8], rest: usize) {
        let runs = |pair: &Pair, id| pair.host.pid(id).is_some();
        let waiting = self.order.iter().copied();
        let waiting: Vec<ExecId> = waiting.filter(|id| !runs(&self.pair, *id)).collect();
        self.pair.host_receives(frame, rest);
        for id in waiting {
            if runs(&self.pair, id) {
                let view = self.pair.view(id);
                self.models.get_mut(&id).unwrap().start(self.now, &view);
            }
        }
    }

    fn heed_notices(&mut self) {
        self.pair.drain_notices();
        for notice in self.pair.notices.drain(..) {
            match notice {
                Notice::Pong(seq) => {
                    let asked = self.pings.get(self.pongs);
                    assert_eq!(asked, Some(&seq), "pings are answered once and in order");
                    self.pongs += 1;
                }
                Notice::Quiesced { seq, .. } | Notice::Renewed { seq, .. } => {
                    assert!(self.asked.remove(&seq), "{seq} is answered once");
                }
                _ => {}
            }
        }
    }

    fn took(&mut self, id: ExecId, stream: Stream, bytes: &[u8]) {
        self.models
            .get_mut(&id)
            .unwrap()
            .read
            .entry(stream)
            .or_default()
            .extend(bytes);
    }
}

#[cfg(test)]
#[path = "model_test.rs"]
mod tests;
