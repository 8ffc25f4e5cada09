//! A guest for tests: the protocol's own guest end with scripted commands behind it, joined to a
//! hub in memory.
//!
//! Tests drive it in one of two ways. [`FakeVm::run`] polls one future only when it was woken
//! and moves frames in between, so that a lost wake-up or a deadlock fails at once instead of
//! hanging, and no clock is involved. [`FakeVm::spawn_loop`] moves frames on a thread of its
//! own, as a VM does, for tests on a real runtime.

pub(crate) mod agent;

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Instant;

use forebay_exec_proto::frame::FromGuest;
use forebay_exec_proto::guest::Conn;
use forebay_exec_proto::host::{Config, Verdict};
use forebay_exec_proto::{ExecId, HEADER_LEN, Limits};

use crate::{Client, Hub, Link, RestoreOptions, SavedConn};

use agent::{Agent, Command};

/// Frames that one round moves towards the guest at most.
const ROUND: usize = 64;

thread_local! {
    /// This thread is inside a call that a VM makes with its device's locks held.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Makes a call of the hub as a VM's device does.
pub(crate) fn inside<T>(call: impl FnOnce() -> T) -> T {
    INSIDE.set(true);
    let outcome = call();
    INSIDE.set(false);
    outcome
}

/// Whether this thread is inside such a call.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// A hub with a scripted guest behind it.
pub(crate) struct FakeVm {
    pub(crate) hub: Arc<Hub>,
    pub(crate) client: Client,
    link: Arc<FakeLink>,
    agent: Mutex<Agent>,
    /// The guest does not read: nothing leaves towards it.
    pub(crate) hold: AtomicBool,
}

/// Counts the kicks and wakes the loop thread.
#[derive(Default)]
struct FakeLink {
    kicks: AtomicUsize,
    alarms: Mutex<Vec<Instant>>,
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Link for FakeLink {
    fn transmit(&self) {
        assert!(
            !INSIDE.get(),
            "asked to pull inside a call of the device: a VM would deadlock here"
        );
        self.kicks.fetch_add(1, Ordering::Relaxed);
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }

    fn expire_at(&self, at: Instant) {
        assert!(!INSIDE.get(), "no lock of the device may be held");
        self.alarms.lock().unwrap().push(at);
        self.state.lock().unwrap().0 = true;
        self.changed.notify_all();
    }
}

impl FakeVm {
    /// A VM whose agent is ready.
    pub(crate) fn new() -> Arc<Self> {
        Self::with_limits(Limits::default())
    }

    pub(crate) fn with_limits(limits: Limits) -> Arc<Self> {
        let vm = Self::before_open(limits);
        vm.open();
        vm
    }

    /// The guest opens its port.
    pub(crate) fn open(&self) {
        inside(|| self.hub.opened());
        while self.round() {}
    }

    /// A VM whose guest has not opened its port.
    pub(crate) fn before_open(limits: Limits) -> Arc<Self> {
        Self::around(Config {
            limits,
            ..Config::default()
        })
    }

    /// A hub that has nothing but a connection to another program's VM.
    pub(crate) fn attached() -> Arc<Self> {
        let hub = Hub::facing_relay(Config::default()).unwrap();
        let vm = Self::joined(hub, Agent::default(), false);
        vm.open();
        vm
    }

    /// A VM that allows legacy guests, and an agent whose Ready names no limits. In all else the
    /// agent is the usual one.
    pub(crate) fn legacy() -> Arc<Self> {
        let vm = Self::allowing_legacy();
        vm.open_legacy();
        vm
    }

    /// The same before its guest has opened its port.
    pub(crate) fn allowing_legacy() -> Arc<Self> {
        Self::around(Config {
            hostname: Some("museum".to_owned()),
            allow_legacy_guest: true,
            ..Config::default()
        })
    }

    /// The guest opens its port, and its Ready names no limits.
    pub(crate) fn open_legacy(&self) {
        inside(|| self.hub.opened());
        let bootstrap = self.hub.next_to_guest().unwrap();
        let mut agent = self.agent.lock().unwrap();
        *agent = Agent::default();
        agent.handle(&bootstrap.head);
        agent.handle(&bootstrap.body);
        drop((agent.next_chain(), agent));
        let connection = u8::try_from(self.hub.inspect().connection).unwrap();
        // A CBOR map: generation 1, the connection, version "old".
        let ready = [b"\xa3\x00\x01\x01", &[connection][..], b"\x03\x63old"].concat();
        let mut chain = vec![0; HEADER_LEN];
        chain[0] = u8::try_from(ready.len()).unwrap();
        chain[4] = FromGuest::Ready.to_wire();
        chain.extend_from_slice(&ready);
        assert_eq!(self.deliver_chain(&chain), None);
        self.settle();
    }

    fn around(config: Config) -> Arc<Self> {
        Self::joined(Hub::new(config).unwrap(), Agent::default(), false)
    }

    /// A copy, as a snapshot makes one: the hub by way of the bytes of a state file, the guest as
    /// it is.
    pub(crate) fn restored(&self) -> Arc<Self> {
        let saved = self.hub.save().unwrap();
        let saved = SavedConn::decode(&saved.encode()).unwrap();
        let hub = Hub::restore(saved, RestoreOptions::default()).unwrap();
        hub.release_time();
        let agent = self.agent.lock().unwrap().clone();
        Self::joined(hub, agent, self.hold.load(Ordering::Relaxed))
    }

    fn joined(hub: Arc<Hub>, agent: Agent, hold: bool) -> Arc<Self> {
        let link = Arc::new(FakeLink::default());
        let weak: Weak<FakeLink> = Arc::downgrade(&link);
        hub.set_link(weak);
        Arc::new(Self {
            client: Client::new(Arc::clone(&hub)),
            hub,
            link,
            agent: Mutex::new(agent),
            hold: AtomicBool::new(hold),
        })
    }

    pub(crate) fn kicks(&self) -> usize {
        self.link.kicks.load(Ordering::Relaxed)
    }

    /// The guest reads again, and its loop learns of it.
    pub(crate) fn go_on(&self) {
        self.hold.store(false, Ordering::Relaxed);
        self.link.state.lock().unwrap().0 = true;
        self.link.changed.notify_all();
    }

    /// The times at which the link was asked to have deadlines looked at.
    pub(crate) fn alarms(&self) -> Vec<Instant> {
        self.link.alarms.lock().unwrap().clone()
    }

    /// Moves some frames each way and lets the commands do what they can. Whether anything
    /// moved.
    pub(crate) fn round(&self) -> bool {
        let mut agent = self.agent.lock().unwrap();
        let mut moved = false;
        if !self.hold.load(Ordering::Relaxed) {
            for _ in 0..ROUND {
                // Placing a frame, and dropping what held it, is inside as well.
                let placed = inside(|| {
                    let frame = self.hub.next_to_guest()?;
                    agent.handle(&frame.head);
                    agent.handle(&frame.body);
                    Some(())
                });
                if placed.is_none() {
                    break;
                }
                moved = true;
            }
        }
        let chain = agent.next_chain();
        drop(agent);
        moved |= !chain.is_empty();
        self.deliver_chain(&chain);
        let kicks = self.kicks();
        self.hub.settle();
        moved | (self.kicks() != kicks)
    }

    /// Moves frames until nothing moves any more.
    pub(crate) fn settle(&self) {
        for _ in 0..1_000_000 {
            if !self.round() {
                return;
            }
        }
        panic!("the guest never comes to rest");
    }

    /// Hands one chain to the hub as the device does. Gives the reason if framing is broken.
    pub(crate) fn deliver_chain(&self, mut chain: &[u8]) -> Option<&'static str> {
        while let Some((head, rest)) = chain.split_first_chunk::<HEADER_LEN>() {
            let (n, delivered) = match inside(|| self.hub.judge(head, rest.len())) {
                Verdict::Accept(n) => (n, inside(|| self.hub.deliver(rest[..n].to_vec()))),
                Verdict::Discard(n) => (n, Ok(())),
                Verdict::Close(reason) => (0, Err(reason)),
            };
            if let Err(reason) = delivered {
                inside(|| self.hub.closed(reason));
                return Some(reason);
            }
            chain = &rest[n..];
        }
        None
    }

    /// Drives `future` to its end, polling it only when it was woken.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Woken::new();
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        for _ in 0..1_000_000 {
            if woken.take()
                && let Poll::Ready(output) = future.as_mut().poll(&mut cx)
            {
                return output;
            }
            let moved = self.round();
            assert!(
                moved || woken.is_set(),
                "stuck: nothing moves and nobody was woken\n{:#?}",
                self.hub.inspect()
            );
        }
        panic!("the future never ends\n{:#?}", self.hub.inspect());
    }

    /// Moves frames on a thread, as the VM's loop does, until the returned value is dropped.
    pub(crate) fn spawn_loop(self: &Arc<Self>) -> Loop {
        let vm = Arc::clone(self);
        let thread = std::thread::spawn(move || {
            loop {
                let deadline = vm.hub.expire();
                while vm.round() && !vm.link.state.lock().unwrap().1 {}
                let mut state = vm.link.state.lock().unwrap();
                while !state.0 && !state.1 {
                    let Some(deadline) = deadline else {
                        state = vm.link.changed.wait(state).unwrap();
                        continue;
                    };
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    state = vm.link.changed.wait_timeout(state, left).unwrap().0;
                }
                if state.1 {
                    return;
                }
                state.0 = false;
            }
        });
        Loop {
            link: Arc::clone(&self.link),
            thread: Some(thread),
        }
    }

    /// Looks at a command, or changes it.
    pub(crate) fn command<T>(&self, id: ExecId, look: impl FnOnce(&mut Command) -> T) -> T {
        look(
            self.agent
                .lock()
                .unwrap()
                .commands
                .get_mut(&id)
                .expect("the guest knows it"),
        )
    }

    pub(crate) fn guest_knows(&self, id: ExecId) -> bool {
        self.agent.lock().unwrap().commands.contains_key(&id)
    }

    /// Looks at the agent, or changes what it does.
    pub(crate) fn with_agent<T>(&self, act: impl FnOnce(&mut Agent) -> T) -> T {
        act(&mut self.agent.lock().unwrap())
    }

    /// The agent's end of the connection, for reports that no script makes.
    pub(crate) fn agent<T>(&self, act: impl FnOnce(&mut Conn) -> T) -> T {
        act(&mut self.agent.lock().unwrap().conn)
    }
}

/// Joins `hub` to a link that counts its kicks.
pub(crate) fn counted(hub: &Hub) -> impl Fn() -> usize {
    let link = Arc::new(FakeLink::default());
    let weak: Weak<FakeLink> = Arc::downgrade(&link);
    hub.set_link(weak);
    move || link.kicks.load(Ordering::Relaxed)
}

/// Keeps the loop thread going.
pub(crate) struct Loop {
    link: Arc<FakeLink>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.link.state.lock().unwrap().1 = true;
        self.link.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A waker that remembers that it was woken. Set at first, since a future is polled once
/// without being woken.
pub(crate) struct Woken(AtomicBool);

impl Woken {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        assert!(
            !INSIDE.get(),
            "woken inside a call of the device: what a waker does would deadlock here"
        );
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A future that a test polls by hand.
pub(crate) struct ByHand<F: Future> {
    future: std::pin::Pin<Box<F>>,
    pub(crate) woken: Arc<Woken>,
}

impl<F: Future> ByHand<F> {
    pub(crate) fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            woken: Woken::new(),
        }
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        self.woken.take();
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// The rest of the future, to be driven by another way.
    pub(crate) fn into_inner(self) -> std::pin::Pin<Box<F>> {
        self.future
    }
}

/// Fails where a deadlock would otherwise hang the tests.
pub(crate) fn without_deadlock(test: fn()) {
    let (done, wait) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match wait.recv_timeout(std::time::Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("deadlock"),
        _ => thread.join().unwrap(),
    }
}

/// Byte `index` of what `write` writes.
pub(crate) fn pattern(index: usize) -> u8 {
    (index.wrapping_mul(31) >> 3) as u8
}
