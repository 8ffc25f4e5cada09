//! Both ends against a naive model, over random operation lists.
//!
//! The model is as simple as can be: what goes into a stream comes out of it, in order, once;
//! what is outstanding never passes its limit; when everybody does their part the link comes to
//! rest with nothing owed. A failing list is shrunk and printed by proptest; to replay a seed,
//! set `PROPTEST_RNG_SEED`.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;
use proptest::prelude::*;

use crate::host::{Read, Stdin, Terminal};
use crate::pair::{Pair, exit_code};
use crate::{ExecId, FRAME_MAX, HEADER_LEN, Limits, Stream};

#[derive(Debug, Clone)]
enum Op {
    Start { piped: bool, size: usize },
    Write { exec: usize, n: usize },
    CancelWrite { exec: usize },
    Close { exec: usize },
    Signal { exec: usize },
    Kill { exec: usize },
    Take { exec: usize, stream: bool },
    Read { exec: usize, stream: bool, n: usize },
    Discard { exec: usize, stream: bool },
    Forget { exec: usize },
    Produce { exec: usize, stream: bool, n: usize },
    Eat { exec: usize, n: usize },
    Exit { exec: usize },
    HostSends { frames: usize },
    GuestReceives { n: usize },
    GuestWrites { size: usize },
    HostReceives { frames: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let exec = 0..6usize;
    let size = prop_oneof![1..40usize, 1..2000usize];
    prop_oneof![
        2 => (any::<bool>(), prop_oneof![4 => Just(0usize), 1 => 0..60_000usize])
            .prop_map(|(piped, size)| Op::Start { piped, size }),
        3 => (exec.clone(), size.clone()).prop_map(|(exec, n)| Op::Write { exec, n }),
        1 => exec.clone().prop_map(|exec| Op::CancelWrite { exec }),
        1 => exec.clone().prop_map(|exec| Op::Close { exec }),
        1 => exec.clone().prop_map(|exec| Op::Signal { exec }),
        1 => exec.clone().prop_map(|exec| Op::Kill { exec }),
        2 => (exec.clone(), any::<bool>()).prop_map(|(exec, stream)| Op::Take { exec, stream }),
        3 => (exec.clone(), any::<bool>(), size.clone())
            .prop_map(|(exec, stream, n)| Op::Read { exec, stream, n }),
        1 => (exec.clone(), any::<bool>()).prop_map(|(exec, stream)| Op::Discard { exec, stream }),
        1 => exec.clone().prop_map(|exec| Op::Forget { exec }),
        5 => (exec.clone(), any::<bool>(), size.clone())
            .prop_map(|(exec, stream, n)| Op::Produce { exec, stream, n }),
        3 => (exec.clone(), size.clone()).prop_map(|(exec, n)| Op::Eat { exec, n }),
        1 => exec.prop_map(|exec| Op::Exit { exec }),
        6 => (1..5usize).prop_map(|frames| Op::HostSends { frames }),
        6 => prop_oneof![1..20usize, 1..3000usize].prop_map(|n| Op::GuestReceives { n }),
        5 => (FRAME_MAX / 3..FRAME_MAX).prop_map(|size| Op::GuestWrites { size }),
        5 => (1..5usize).prop_map(|frames| Op::HostReceives { frames }),
    ]
}

/// Chunk sizes, often tiny: that is where an off-by-one stalls a stream.
fn chunk(max: u32) -> impl Strategy<Value = u32> {
    prop_oneof![1..4u32, 1..max]
}

fn limits() -> impl Strategy<Value = Limits> {
    (1..5u32, chunk(100), chunk(300), 0..300u32, 0..3000u32).prop_map(
        |(max, stdin_chunk, output_chunk, more_in, more_out)| Limits {
            max_executions: max,
            stdin_chunk_size: stdin_chunk,
            output_chunk_size: output_chunk,
            input_limit: stdin_chunk + more_in,
            output_limit: output_chunk + 256 + more_out,
        },
    )
}

/// What the model knows of one execution.
#[derive(Debug, Default)]
struct Model {
    /// Bytes submitted to stdin, less what a cancel took back.
    submitted: Vec<u8>,
    /// Bytes that the command put into its pipes, and how many were read from them here.
    produced: BTreeMap<Stream, Vec<u8>>,
    read: BTreeMap<Stream, Vec<u8>>,
    discarded: Vec<Stream>,
    forgotten: bool,
}

struct World {
    pair: Pair,
    limits: Limits,
    order: Vec<ExecId>,
    models: BTreeMap<ExecId, Model>,
    /// Frames that the guest has written and the host has not taken.
    in_flight: VecDeque<(Vec<u8>, usize)>,
    next_byte: u8,
}

fn stream(flag: bool) -> Stream {
    if flag { Stream::Stderr } else { Stream::Stdout }
}

impl World {
    fn new(limits: Limits) -> Self {
        Self {
            pair: Pair::new(limits),
            limits,
            order: Vec::new(),
            models: BTreeMap::new(),
            in_flight: VecDeque::new(),
            next_byte: 0,
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

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Start { piped, size } => {
                let word = "w".repeat(size);
                let stdin = if piped { Stdin::Pipe } else { Stdin::Null };
                let admitted = self.pair.host.active() < self.limits.max_executions;
                let started = self.pair.try_start(&["cmd", &word], stdin);
                assert_eq!(started.is_ok(), admitted, "admission is exact");
                if let Ok(id) = started {
                    self.order.push(id);
                    self.models.insert(id, Model::default());
                }
            }
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
        }
        self.pair.drain_notices();
        self.pair.notices.clear();
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
    fn check(&self) {
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

    /// Everybody does their part: commands read and exit, readers read.
    fn finish(&mut self) {
        while let Some((frame, rest)) = self.in_flight.pop_front() {
            self.pair.host_receives(&frame, rest);
        }
        for _ in 0..100_000 {
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
        self.check();
        assert_eq!(self.pair.host.active(), 0, "every slot came back");
        for (id, model) in &self.models {
            // Killed before the guest heard of it.
            let Some(command) = self.pair.commands.get(id) else {
                continue;
            };
            if !ended_early.contains(id) {
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_operations_keeps_every_byte_and_every_bound(
        limits in limits(),
        ops in prop::collection::vec(op(), 1..250),
    ) {
        let mut world = World::new(limits);
        for op in &ops {
            world.apply(op);
            world.check();
        }
        world.finish();
    }

    #[test]
    fn no_bytes_from_a_guest_make_the_host_panic_or_hold_more_than_it_allows(
        frames in prop::collection::vec(
            (
                prop_oneof![0x80..0x98u8, any::<u8>()],
                0..4u64,
                prop::collection::vec(any::<u8>(), 0..200),
                0..3usize,
            ),
            1..200,
        ),
    ) {
        let limits = Limits { output_limit: 2000, output_chunk_size: 150, ..Limits::default() };
        let mut pair = Pair::new(limits);
        for _ in 0..3 {
            let _ = pair.running(Stdin::Pipe);
        }
        for (kind, exec, payload, lie) in frames {
            let mut frame = crate::pair::raw(kind, exec, &payload);
            frame[0] = frame[0].wrapping_add(u8::try_from(lie / 2).unwrap());
            let rest = frame.len() - HEADER_LEN;
            let head: [u8; HEADER_LEN] = *frame.first_chunk().unwrap();
            match pair.host.judge(&head, rest) {
                crate::host::Verdict::Accept(n) => {
                    prop_assert!(n <= rest);
                    if let Err(why) = pair.host.deliver(frame[HEADER_LEN..HEADER_LEN + n].to_vec()) {
                        pair.host.handle_closed(why);
                    }
                }
                crate::host::Verdict::Discard(n) => prop_assert!(n <= rest),
                crate::host::Verdict::Close(why) => pair.host.handle_closed(why),
            }
            for exec in pair.host.inspect().executions {
                prop_assert!(exec.output_received - exec.output_released <= 2000);
            }
            while pair.host.poll_transmit().is_some() {}
            while pair.host.poll_notice().is_some() {}
        }
    }

    #[test]
    fn no_bytes_from_a_host_make_the_guest_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        cut in 1..50usize,
    ) {
        let mut guest = crate::guest::Conn::new();
        for piece in bytes.chunks(cut) {
            if guest.handle_bytes(piece).is_err() {
                break;
            }
        }
    }
}
