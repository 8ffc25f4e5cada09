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

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::host::{Conn, Notice, Read, Stdin, Terminal};
use crate::message::StdinError;
use crate::pair::{Pair, exit_code};
use crate::{ExecId, FailureKind, HEADER_LEN, Limits, Stream};

/// One step of somebody. `exec` picks an execution by the order of their starts, modulo how many
/// there are; `stream` is set for stderr; sizes are bytes.
#[derive(Debug, Clone)]
pub enum Op {
    Start {
        piped: bool,
        size: usize,
    },
    /// One whose stdin is `n` bytes and then ends.
    StartWithBytes {
        n: usize,
    },
    /// The next request that reaches the guest fails there.
    FailNextStart,
    Write {
        exec: usize,
        n: usize,
    },
    CancelWrite {
        exec: usize,
    },
    Close {
        exec: usize,
    },
    Signal {
        exec: usize,
    },
    Kill {
        exec: usize,
    },
    Take {
        exec: usize,
        stream: bool,
    },
    Read {
        exec: usize,
        stream: bool,
        n: usize,
    },
    Discard {
        exec: usize,
        stream: bool,
    },
    Forget {
        exec: usize,
    },
    Produce {
        exec: usize,
        stream: bool,
        n: usize,
    },
    Eat {
        exec: usize,
        n: usize,
    },
    /// The command closes its stdin.
    BreakStdin {
        exec: usize,
    },
    Exit {
        exec: usize,
    },
    Ping,
    HostSends {
        frames: usize,
    },
    GuestReceives {
        n: usize,
    },
    GuestWrites {
        size: usize,
    },
    HostReceives {
        frames: usize,
    },
    /// Both ends are saved and restored.
    Restore,
}

/// What the model knows of one execution.
#[derive(Debug, Clone, Default)]
struct Model {
    /// Bytes submitted to stdin, less what a cancel took back.
    submitted: Vec<u8>,
    /// Bytes that the command put into its pipes, and how many were read from them here.
    produced: BTreeMap<Stream, Vec<u8>>,
    read: BTreeMap<Stream, Vec<u8>>,
    discarded: Vec<Stream>,
    forgotten: bool,
    /// Its command has closed its stdin.
    broken: bool,
}

/// Both ends, the link between them, and the model of each execution.
pub struct World {
    pair: Pair,
    limits: Limits,
    order: Vec<ExecId>,
    models: BTreeMap<ExecId, Model>,
    /// Frames that the guest has written and the host has not taken.
    in_flight: VecDeque<(Vec<u8>, usize)>,
    next_byte: u8,
    /// Pings that were taken, and how many of them were answered, in their order.
    pings: Vec<u64>,
    pongs: usize,
}

fn stream(flag: bool) -> Stream {
    if flag { Stream::Stderr } else { Stream::Stdout }
}

impl World {
    /// Both ends after Ready.
    pub fn new(limits: Limits) -> Self {
        Self {
            pair: Pair::new(limits),
            limits,
            order: Vec::new(),
            models: BTreeMap::new(),
            in_flight: VecDeque::new(),
            next_byte: 0,
            pings: Vec::new(),
            pongs: 0,
        }
    }

    /// The host's end.
    pub fn host(&self) -> &Conn {
        &self.pair.host
    }

    /// A copy whose ends were saved and restored. Frames from the guest are in the device's
    /// rings, and stay.
    pub fn restored(&self) -> Self {
        Self {
            pair: self.pair.restored(),
            limits: self.limits,
            order: self.order.clone(),
            models: self.models.clone(),
            in_flight: self.in_flight.clone(),
            next_byte: self.next_byte,
            pings: self.pings.clone(),
            pongs: self.pongs,
        }
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
        match *op {
            Op::Start { piped, size } => {
                let word = "w".repeat(size);
                let stdin = if piped { Stdin::Pipe } else { Stdin::Null };
                self.start(&word, stdin);
            }
            Op::StartWithBytes { n } => {
                let data = self.pattern(n);
                if let Some(id) = self.start("", Stdin::Bytes(Bytes::from(data.clone()))) {
                    self.models.get_mut(&id).unwrap().submitted = data;
                }
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
                let _ = self.pair.host.kill(id);
            }
            Op::Take { exec, stream: flag } => {
                let Some(id) = self.pick(exec) else { return };
                if let Some(chunk) = self.pair.host.take_chunk(id, stream(flag)) {
                    self.took(id, stream(flag), &chunk);
                }
            }
            Op::Read {
                exec,
                stream: flag,
                n,
            } => {
                let Some(id) = self.pick(exec) else { return };
                let mut buf = vec![0; n];
                if let Read::Data(n) = self.pair.host.read(id, stream(flag), &mut buf) {
                    self.took(id, stream(flag), &buf[..n]);
                }
            }
            Op::Discard { exec, stream: flag } => {
                let Some(id) = self.pick(exec) else { return };
                self.pair.host.discard(id, stream(flag));
                self.models
                    .get_mut(&id)
                    .unwrap()
                    .discarded
                    .push(stream(flag));
            }
            Op::Forget { exec } => {
                let Some(id) = self.pick(exec) else { return };
                self.pair.host.forget(id);
                let model = self.models.get_mut(&id).unwrap();
                model.forgotten = true;
                model.discarded.extend(Stream::ALL);
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
                    self.pair.host_receives(&frame, rest);
                }
            }
            Op::Restore => self.pair = self.pair.restored(),
        }
        self.heed_notices();
    }

    /// Starts a command, if there is a slot and only then.
    fn start(&mut self, word: &str, stdin: Stdin) -> Option<ExecId> {
        let admitted = self.pair.host.active() < self.limits.max_executions;
        let started = self.pair.try_start(&["cmd", word], stdin);
        assert_eq!(started.is_ok(), admitted, "admission is exact");
        let id = started.ok()?;
        self.order.push(id);
        self.models.insert(id, Model::default());
        Some(id)
    }

    fn heed_notices(&mut self) {
        self.pair.drain_notices();
        for notice in self.pair.notices.drain(..) {
            if let Notice::Pong(seq) = notice {
                let asked = self.pings.get(self.pongs);
                assert_eq!(asked, Some(&seq), "pings are answered once and in order");
                self.pongs += 1;
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

    /// Everybody does their part: commands read and exit, readers read. Then nothing may be owed.
    pub fn finish(&mut self) {
        while let Some((frame, rest)) = self.in_flight.pop_front() {
            self.pair.host_receives(&frame, rest);
        }
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
                    matches!(self.pair.host.terminal(*id), Some(Terminal::Exited(_))),
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

#[cfg(test)]
#[path = "model_test.rs"]
mod tests;
