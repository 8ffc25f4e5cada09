//! Random orders of everything that can begin, end or break an execution, through the public
//! handles: each slot comes back, once, and the count is right at every moment.
//!
//! A failing list is shrunk and printed by proptest; to replay a seed, set `PROPTEST_RNG_SEED`.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use forebay_exec_proto::frame::FromGuest;
use forebay_exec_proto::{ExecId, Header};
use proptest::prelude::*;
use tokio::io::AsyncReadExt as _;

use crate::clock;
use crate::fake_guest::{ByHand, FakeVm};
use crate::{
    ExecControl, ExecError, ExecExit, ExecHandle, ExecReader, ExecSink, ExecView, Limits,
    QuiesceError, QuiesceTicket, Renewal, Secret, Signal, Stdin,
};

const LIMITS: Limits = Limits {
    max_executions: 3,
    input_limit: 100,
    output_limit: 700,
    stdin_chunk_size: 40,
    output_chunk_size: 200,
};

/// Programs of the scripted guest: those that end, those that do not, one that does not exist,
/// and some with more output or a longer request than fits at once.
const PROGRAMS: [&[&str]; 9] = [
    &["echo", "hello"],
    &["exit", "3"],
    &["write", "3000", "500", "0"],
    &["write", "900", "900"],
    &["stall"],
    &["cat"],
    &["late"],
    &["deaf"],
    &["missing"],
];

#[derive(Debug, Clone)]
enum Op {
    /// Asks for this program, with a request this long, and maybe so many seconds to run.
    Start(usize, usize, Option<u64>),
    /// So many seconds pass.
    Pass(u64),
    /// The guest stands still, with its time, or goes on.
    StandStill(bool),
    /// Polls every start under way.
    PollStarts,
    /// Drops a start under way.
    CancelStart(usize),
    /// Asks a handle or part for what it has next, and lets the future go.
    Receive(usize),
    /// Writes this much, and cancels the write if it is not ready at once.
    Write(usize, usize),
    /// Sends a signal, unless it would have to wait.
    Signal(usize),
    /// Waits for the end, which discards the output, and lets the future go.
    Wait(usize),
    /// Lets go of a handle, or of what is left of one.
    Drop(usize),
    /// Lets go of everything at once, as a client that disconnects does.
    Disconnect,
    /// Keeps the sink of a handle beside it.
    TakeStdin(usize),
    /// Lets go of a handle, and keeps a control.
    KeepControl(usize),
    /// Takes a handle apart, and keeps one part.
    KeepPart(usize, usize),
    Detach(usize),
    /// Leaves a handle to whoever adopts it, if nothing of it is elsewhere.
    Leave(usize),
    /// Adopts what was left.
    Adopt(usize),
    Kill(usize),
    /// The command does no more than it has done.
    End(usize),
    /// The guest breaks a rule of an execution.
    Violate(usize, usize),
    /// Asks for the guest to come to rest, or polls that.
    Quiesce,
    /// Lets go of that.
    CancelQuiesce,
    Thaw,
    /// The VM goes on as a copy of itself, in which executions are adopted, discarded or killed, by
    /// the digits of this number.
    Restore(usize),
    /// Some frames pass.
    Round,
    /// The guest does not read, or reads again.
    Hold(bool),
    /// The connection ends.
    Close,
    /// The guest opens its port, whether or not it was open, with nothing running.
    Open,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![4 => Just(0usize), 1 => 0..40_000usize];
    let at = 0..8usize;
    prop_oneof![
        8 => (0..PROGRAMS.len(), size, prop::option::of(1..20u64))
            .prop_map(|(program, size, limit)| Op::Start(program, size, limit)),
        2 => (0..8u64).prop_map(Op::Pass),
        2 => any::<bool>().prop_map(Op::StandStill),
        8 => Just(Op::PollStarts),
        2 => at.clone().prop_map(Op::CancelStart),
        8 => at.clone().prop_map(Op::Receive),
        3 => (at.clone(), 1..200usize).prop_map(|(at, size)| Op::Write(at, size)),
        1 => at.clone().prop_map(Op::Signal),
        1 => at.clone().prop_map(Op::Wait),
        3 => at.clone().prop_map(Op::Drop),
        1 => Just(Op::Disconnect),
        2 => at.clone().prop_map(Op::TakeStdin),
        1 => at.clone().prop_map(Op::KeepControl),
        2 => (at.clone(), at.clone()).prop_map(|(at, part)| Op::KeepPart(at, part)),
        1 => at.clone().prop_map(Op::Detach),
        2 => at.clone().prop_map(Op::Leave),
        2 => at.clone().prop_map(Op::Adopt),
        2 => at.clone().prop_map(Op::Kill),
        3 => at.clone().prop_map(Op::End),
        2 => (at.clone(), at).prop_map(|(at, rule)| Op::Violate(at, rule)),
        3 => Just(Op::Quiesce),
        1 => Just(Op::CancelQuiesce),
        2 => Just(Op::Thaw),
        1 => (0..729usize).prop_map(Op::Restore),
        12 => Just(Op::Round),
        2 => any::<bool>().prop_map(Op::Hold),
        1 => Just(Op::Close),
        1 => Just(Op::Open),
    ]
}

/// What the application has of an execution.
#[allow(clippy::large_enum_variant, reason = "a handful of them, in a test")]
enum Held {
    Whole(ExecHandle),
    Control(ExecControl),
    Reader(ExecReader),
    Exit(ExecExit),
    Sink(ExecSink),
}

type Starting = ByHand<Pin<Box<dyn Future<Output = Result<ExecHandle, ExecError>>>>>;

type Quiescing = ByHand<Pin<Box<dyn Future<Output = Result<QuiesceTicket, QuiesceError>>>>>;

struct World {
    vm: Arc<FakeVm>,
    starting: Vec<Starting>,
    held: Vec<Held>,
    quiesce: Option<Quiescing>,
    /// Of the last quiesce that was done, whether or not it is over.
    ticket: Option<QuiesceTicket>,
    /// Every execution that was admitted, and whether its slot came back.
    slots: BTreeMap<ExecId, bool>,
    admitted: usize,
    /// Those that nobody will kill.
    detached: BTreeSet<ExecId>,
    /// Seconds that have passed for the guest.
    now: u64,
    /// The guest stands still.
    still: bool,
    /// The seconds after which an execution has had its time.
    deadlines: BTreeMap<ExecId, u64>,
}

impl World {
    fn new() -> Self {
        Self {
            vm: FakeVm::with_limits(LIMITS),
            starting: Vec::new(),
            held: Vec::new(),
            quiesce: None,
            ticket: None,
            slots: BTreeMap::new(),
            admitted: 0,
            detached: BTreeSet::new(),
            now: 0,
            still: false,
            deadlines: BTreeMap::new(),
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Start(program, size, limit) => self.start(PROGRAMS[program], size, limit),
            Op::Pass(seconds) => {
                self.now += if self.still { 0 } else { seconds };
                clock::advance(Duration::from_secs(seconds));
                self.vm.hub.expire();
            }
            Op::StandStill(true) => {
                self.still = true;
                self.vm.hub.hold_time();
            }
            Op::StandStill(false) => self.go_on(),
            Op::PollStarts => self.poll_starts(),
            Op::CancelStart(at) => drop(take(&mut self.starting, at)),
            Op::Receive(at) => match pick(&mut self.held, at) {
                Some(Held::Whole(handle)) => drop(ByHand::new(handle.recv()).poll()),
                Some(Held::Reader(reader)) => {
                    drop(ByHand::new(reader.read(&mut [0; 150])).poll());
                }
                Some(Held::Exit(exit)) => drop(ByHand::new(exit.wait()).poll()),
                _ => {}
            },
            Op::Write(at, size) => {
                if let Some(Held::Sink(sink)) = pick(&mut self.held, at) {
                    drop(ByHand::new(sink.write(vec![7; size])).poll());
                }
            }
            Op::Signal(at) => match pick(&mut self.held, at) {
                Some(Held::Whole(handle)) => {
                    drop(ByHand::new(handle.signal(Signal::USR1)).poll());
                }
                Some(Held::Control(control)) => {
                    drop(ByHand::new(control.signal(Signal::USR1)).poll());
                }
                _ => {}
            },
            Op::Wait(at) => {
                if let Some(Held::Whole(handle)) = pick(&mut self.held, at) {
                    drop(ByHand::new(handle.wait()).poll());
                }
            }
            Op::Disconnect => {
                self.starting.clear();
                self.held.clear();
            }
            Op::TakeStdin(at) => {
                if let Some(Held::Whole(handle)) = pick(&mut self.held, at) {
                    let sink = handle.take_stdin();
                    self.held.extend(sink.map(Held::Sink));
                }
            }
            Op::Drop(at) => drop(take(&mut self.held, at)),
            Op::KeepControl(at) => {
                if let Some(held) = pick(&mut self.held, at)
                    && let Held::Whole(handle) = held
                {
                    *held = Held::Control(handle.control());
                }
            }
            Op::KeepPart(at, part) => match take(&mut self.held, at) {
                Some(Held::Whole(handle)) => {
                    let parts = handle.split();
                    let kept = match (part % 4, parts.stdin) {
                        (0, _) => Held::Reader(parts.stdout),
                        (1, _) => Held::Reader(parts.stderr),
                        (2, Some(sink)) => Held::Sink(sink),
                        _ => Held::Exit(parts.exit),
                    };
                    self.held.push(kept);
                }
                held => self.held.extend(held),
            },
            Op::Detach(at) => match take(&mut self.held, at) {
                Some(Held::Whole(handle)) => {
                    self.detached.insert(handle.detach());
                }
                held => self.held.extend(held),
            },
            Op::Leave(at) => match take(&mut self.held, at) {
                Some(Held::Whole(handle)) => match ByHand::new(Box::pin(handle.leave())).poll() {
                    Poll::Ready(Ok(id)) => assert!(self.vm.hub.adoptable().contains(&id)),
                    Poll::Ready(Err(refused)) => {
                        self.held.push(Held::Whole(refused.into_handle()));
                    }
                    Poll::Pending => panic!("nobody has to be asked"),
                },
                held => self.held.extend(held),
            },
            Op::Adopt(at) => {
                if let Some(id) = pick(&mut self.vm.hub.adoptable(), at) {
                    self.adopt(*id);
                }
            }
            Op::Kill(at) => match pick(&mut self.held, at) {
                Some(Held::Whole(handle)) => handle.kill(),
                Some(Held::Control(control)) => control.kill(),
                Some(Held::Exit(exit)) => exit.kill(),
                _ => {}
            },
            Op::End(at) => {
                if let Some(id) = self.id(at) {
                    self.end(id);
                }
            }
            Op::Violate(at, rule) => self.violate(at, rule),
            Op::Quiesce => {
                let hub = Arc::clone(&self.vm.hub);
                let begun = async move { hub.quiesce(Duration::from_secs(1000)).await };
                let quiesce = self.quiesce.take();
                let mut quiesce = quiesce.unwrap_or_else(|| ByHand::new(Box::pin(begun)));
                match quiesce.poll() {
                    Poll::Pending => self.quiesce = Some(quiesce),
                    Poll::Ready(done) => self.ticket = done.ok().or(self.ticket),
                }
            }
            Op::CancelQuiesce => self.quiesce = None,
            Op::Thaw => match self.ticket {
                Some(ticket) => self.vm.hub.thaw(ticket),
                None => self.renew(),
            },
            Op::Restore(choices) => self.restore(choices),
            Op::Round => {
                self.vm.round();
            }
            Op::Hold(hold) => self.vm.hold.store(hold, Ordering::Relaxed),
            Op::Close => {
                self.vm.hub.closed("the guest closed its agent port");
                self.vm.hub.settle();
            }
            Op::Open => self.open(),
        }
    }

    fn restore(&mut self, mut choices: usize) {
        if self.vm.hub.save().is_err() {
            return;
        }
        let copy = self.vm.restored();
        self.still = false;
        // Of the source, which nobody looks at any more.
        let _gone = (
            std::mem::replace(&mut self.vm, Arc::clone(&copy)),
            std::mem::take(&mut self.starting),
            std::mem::take(&mut self.held),
            self.quiesce.take(),
            self.ticket.take(),
        );
        for id in copy.hub.adoptable() {
            match choices % 3 {
                0 => {
                    let adopted = copy.hub.adopt(id).expect("nobody has decided");
                    self.held.push(Held::Whole(adopted.handle));
                }
                1 => {
                    copy.hub.discard(id);
                    self.detached.insert(id);
                }
                _ => assert!(copy.hub.kill(id)),
            }
            choices /= 3;
        }
        assert_eq!(copy.hub.adoptable(), []);
    }

    fn adopt(&mut self, id: ExecId) {
        let adopted = self.vm.hub.adopt(id).expect("nobody holds it");
        assert!(self.vm.hub.adopt(id).is_none(), "adopted twice");
        self.held.push(Held::Whole(adopted.handle));
    }

    fn go_on(&mut self) {
        self.still = false;
        self.vm.hub.release_time();
    }

    /// Thaws the guest, whoever quiesced it.
    fn renew(&self) {
        let renewal = Renewal {
            entropy: Secret([7; 32]),
            generation: [9; 16],
            hostname: None,
        };
        // What was asked for is done though nobody waits for it.
        let limit = Duration::from_secs(1000);
        let _ = ByHand::new(Box::pin(self.vm.hub.renew(renewal, limit))).poll();
    }

    fn start(&mut self, words: &[&str], size: usize, limit: Option<u64>) {
        let before = self.vm.client.active();
        let exec = self.vm.client.exec(words[0], &words[1..]);
        let mut exec = exec.env("PAD", "p".repeat(size)).stdin(Stdin::piped());
        if let Some(limit) = limit {
            exec = exec.timeout(Duration::from_secs(limit));
        }
        let mut start: Starting = ByHand::new(Box::pin(exec.spawn()));
        match start.poll() {
            Poll::Pending => {
                assert!(before < LIMITS.max_executions, "admitted beyond the cap");
                assert_eq!(self.vm.client.active(), before + 1);
                self.admitted += 1;
                let view = self.vm.hub.inspect();
                let id = view.executions.last().map(|exec| exec.id);
                self.deadlines
                    .extend(id.zip(limit.map(|limit| self.now + limit)));
                self.starting.push(start);
            }
            Poll::Ready(Err(ExecError::AtCapacity { limit, active, .. })) => {
                assert_eq!((limit, active), (LIMITS.max_executions, before));
                assert_eq!(before, limit, "refused below the cap");
            }
            Poll::Ready(Err(ExecError::NotReady | ExecError::VmGone { .. })) => {
                assert_ne!(self.vm.hub.inspect().state, "ready");
            }
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Ready(Ok(_)) => panic!("started before a frame passed"),
        }
    }

    fn poll_starts(&mut self) {
        for mut start in std::mem::take(&mut self.starting) {
            match start.poll() {
                Poll::Pending => self.starting.push(start),
                Poll::Ready(Ok(handle)) => self.held.push(Held::Whole(handle)),
                Poll::Ready(Err(
                    ExecError::NotStarted(_)
                    | ExecError::Unconfirmed { .. }
                    | ExecError::Protocol(_)
                    | ExecError::VmGone { .. },
                )) => {}
                Poll::Ready(Err(error)) => panic!("{error}"),
            }
        }
    }

    /// An execution that the hub knows.
    fn id(&self, at: usize) -> Option<ExecId> {
        let view = self.vm.hub.inspect();
        let count = view.executions.len().max(1);
        view.executions.get(at % count).map(|exec| exec.id)
    }

    fn end(&self, id: ExecId) {
        if self.vm.guest_knows(id) {
            self.vm.command(id, |command| {
                command.exit = Some(0);
                command.hold_start = false;
                command.reads = false;
            });
        }
    }

    fn violate(&mut self, at: usize, rule: usize) {
        let view = self.vm.hub.inspect();
        let Some(id) = self.id(at).filter(|_| view.state == "ready") else {
            return;
        };
        // Output of one that is cut off already would be acknowledged, which the agent that plays
        // on beside this villain could not know.
        let cut_off = |exec: &ExecView| exec.id == id && exec.phase == "condemned";
        if view.executions.iter().any(cut_off) {
            return;
        }
        let (kind, body) = match rule % 4 {
            0 => (FromGuest::Stdout, vec![0; 201]),
            1 => (FromGuest::Stderr, Vec::new()),
            2 => (FromGuest::Started, vec![0; 4]),
            _ => (FromGuest::StdinAck, vec![0xff; 8]),
        };
        let header = Header {
            len: u32::try_from(body.len()).unwrap(),
            kind: kind.to_wire(),
            flags: 0,
            reserved: 0,
            exec: id.get(),
        };
        let mut chain = header.encode().to_vec();
        chain.extend(body);
        assert_eq!(self.vm.deliver_chain(&chain), None, "others are untouched");
        self.vm.hub.settle();
    }

    fn open(&mut self) {
        self.vm.agent(|conn| *conn = Default::default());
        self.vm.hub.opened();
        self.vm.hub.settle();
    }

    /// What must hold after every operation.
    fn check(&mut self) {
        let view = self.vm.hub.inspect();
        let holding = view.executions.iter().filter(|exec| exec.admitted);
        assert_eq!(holding.count(), view.active as usize, "{view:#?}");
        assert!(view.active <= LIMITS.max_executions);
        for exec in &view.executions {
            let over = exec.phase == "ended" && exec.chunks_held == 0;
            // What was left keeps its slot.
            assert!(over != exec.admitted || exec.adoptable, "{exec:?}");
            let returned = self.slots.entry(exec.id).or_insert(false);
            assert!(!(*returned && exec.admitted), "{exec:?} has its slot again");
            *returned |= !exec.admitted;
        }
        for (id, returned) in &mut self.slots {
            // What is forgotten has given its slot back.
            *returned |= view.executions.iter().all(|exec| exec.id != *id);
        }
        let out = self.slots.values().filter(|returned| !**returned).count();
        assert_eq!(out, view.active as usize, "a slot came back twice");
    }

    /// Everything ends; then every slot is there again.
    fn finish(mut self, gone: bool) {
        self.vm.hold.store(false, Ordering::Relaxed);
        self.quiesce = None;
        for id in self.vm.hub.adoptable() {
            self.adopt(id);
        }
        self.go_on();
        self.renew();
        self.vm.hub.expire();
        self.vm.settle();
        assert!(!self.vm.hub.is_quiesced());
        let view = self.vm.hub.inspect();
        let cut_off = view.executions.iter().find(|e| e.phase == "condemned");
        assert_eq!(cut_off, None, "what broke a rule ends whoever reads it");
        for exec in &view.executions {
            let expired = self
                .deadlines
                .get(&exec.id)
                .is_some_and(|at| *at <= self.now);
            assert!(
                !(expired && exec.phase == "started"),
                "{exec:?} had its time"
            );
        }
        if gone {
            self.vm.hub.vm_gone("stopped");
            self.check();
            assert_eq!(self.readers_left(), self.vm.client.active() as usize);
        }
        drop((
            std::mem::take(&mut self.starting),
            std::mem::take(&mut self.held),
        ));
        self.vm.settle();
        // Dropping has killed all others, and so has the hub what broke a rule.
        for id in &self.detached {
            self.end(*id);
        }
        self.vm.settle();
        self.check();
        assert_eq!(self.vm.client.active(), 0, "{:#?}", self.vm.hub.inspect());
        assert!(self.vm.hub.inspect().executions.is_empty());
        assert_eq!(self.slots.len(), self.admitted);
        if !gone {
            self.open();
            self.vm.settle();
            for _ in 0..=LIMITS.max_executions {
                self.start(&["stall"], 0, None);
            }
            assert_eq!(self.vm.client.active(), LIMITS.max_executions);
        }
    }

    /// Executions whose slot is held by output that somebody may still read.
    fn readers_left(&self) -> usize {
        let view = self.vm.hub.inspect();
        view.executions.iter().filter(|e| e.chunks_held > 0).count()
    }
}

fn pick<T>(list: &mut [T], at: usize) -> Option<&mut T> {
    let count = list.len().max(1);
    list.get_mut(at % count)
}

fn take<T>(list: &mut Vec<T>, at: usize) -> Option<T> {
    (!list.is_empty()).then(|| list.swap_remove(at % list.len()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_order_of_starts_ends_and_drops_gives_each_slot_back_once(
        ops in prop::collection::vec(op(), 1..120),
        gone: bool,
    ) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
            world.check();
        }
        world.finish(gone);
    }
}
