//! A guest for tests: the protocol's own guest end with scripted commands behind it, joined to a
//! hub in memory.
//!
//! Tests drive it in one of two ways. [`FakeVm::run`] polls one future only when it was woken
//! and moves frames in between, so that a lost wake-up or a deadlock fails at once instead of
//! hanging, and no clock is involved. [`FakeVm::spawn_loop`] moves frames on a thread of its
//! own, as a VM does, for tests on a real runtime.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;

use forebay_exec_proto::guest::{Conn, Event, Transmit};
use forebay_exec_proto::host::{Config, Verdict};
use forebay_exec_proto::{
    ExecId, ExitStatus, FRAME_MAX, Failure, FailureKind, HEADER_LEN, Limits, Ready, Request,
    StdinError, Stream,
};

use crate::{Client, Hub, Link};

/// Frames that one round moves towards the guest at most.
const ROUND: usize = 64;

thread_local! {
    /// This thread is inside `next_to_guest`, and a VM would hold its queue's lock.
    static PULLING: Cell<bool> = const { Cell::new(false) };
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
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Link for FakeLink {
    fn transmit(&self) {
        assert!(!PULLING.get(), "asked to pull while pulling: a VM would deadlock here");
        self.kicks.fetch_add(1, Ordering::Relaxed);
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
        vm.hub.opened();
        while vm.round() {}
        vm
    }

    /// A VM whose guest has not opened its port.
    pub(crate) fn before_open(limits: Limits) -> Arc<Self> {
        let hub = Hub::new(Config { limits, ..Config::default() }).unwrap();
        let link = Arc::new(FakeLink::default());
        let weak: Weak<FakeLink> = Arc::downgrade(&link);
        hub.set_link(weak);
        Arc::new(Self {
            client: Client::new(Arc::clone(&hub)),
            hub,
            link,
            agent: Mutex::new(Agent::default()),
            hold: AtomicBool::new(false),
        })
    }

    pub(crate) fn kicks(&self) -> usize {
        self.link.kicks.load(Ordering::Relaxed)
    }

    /// Moves some frames each way and lets the commands do what they can. Whether anything
    /// moved.
    pub(crate) fn round(&self) -> bool {
        let mut agent = self.agent.lock().unwrap();
        let mut moved = false;
        if !self.hold.load(Ordering::Relaxed) {
            for _ in 0..ROUND {
                PULLING.set(true);
                let frame = self.hub.next_to_guest();
                PULLING.set(false);
                let Some(frame) = frame else { break };
                agent.handle(&frame.head);
                agent.handle(&frame.body);
                moved = true;
            }
        }
        let chain = agent.next_chain();
        drop(agent);
        moved |= !chain.is_empty();
        self.from_guest(&chain);
        moved
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
    pub(crate) fn from_guest(&self, mut chain: &[u8]) -> Option<&'static str> {
        while let Some((head, rest)) = chain.split_first_chunk::<HEADER_LEN>() {
            let (n, delivered) = match self.hub.judge(head, rest.len()) {
                Verdict::Accept(n) => (n, self.hub.deliver(rest[..n].to_vec())),
                Verdict::Discard(n) => (n, Ok(())),
                Verdict::Close(reason) => (0, Err(reason)),
            };
            if let Err(reason) = delivered {
                self.hub.closed(reason);
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
                while vm.round() && !vm.link.state.lock().unwrap().1 {}
                let mut state = vm.link.state.lock().unwrap();
                while !state.0 && !state.1 {
                    state = vm.link.changed.wait(state).unwrap();
                }
                if state.1 {
                    return;
                }
                state.0 = false;
            }
        });
        Loop { link: Arc::clone(&self.link), thread: Some(thread) }
    }

    /// Looks at a command, or changes it.
    pub(crate) fn command<T>(&self, id: ExecId, look: impl FnOnce(&mut Command) -> T) -> T {
        look(self.agent.lock().unwrap().commands.get_mut(&id).expect("the guest knows it"))
    }

    pub(crate) fn guest_knows(&self, id: ExecId) -> bool {
        self.agent.lock().unwrap().commands.contains_key(&id)
    }

    /// The agent's end of the connection, for reports that no script makes.
    pub(crate) fn agent<T>(&self, act: impl FnOnce(&mut Conn) -> T) -> T {
        act(&mut self.agent.lock().unwrap().conn)
    }
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
        Self { future: Box::pin(future), woken: Woken::new() }
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        self.woken.take();
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

/// A scripted command in the guest.
#[derive(Default)]
pub(crate) struct Command {
    /// Stdout and stderr that it still wants to write.
    out: [VecDeque<u8>; 2],
    /// Writes to stdout for ever.
    endless: bool,
    /// Copies stdin to stdout.
    cat: bool,
    /// Reads stdin; cleared, it leaves stdin alone.
    pub(crate) reads: bool,
    /// Stdin that it read.
    pub(crate) received: Vec<u8>,
    pub(crate) eof: bool,
    /// Signals that it got and survived.
    pub(crate) signals: Vec<u32>,
    /// Bytes that it wrote.
    pub(crate) written: u64,
    /// What it exits with when it has nothing more to do; `None`: runs until it is killed.
    pub(crate) exit: Option<i32>,
    /// The signal that ended it.
    killed: Option<u32>,
    /// Started was held back by the script.
    pub(crate) hold_start: bool,
    started: bool,
}

#[derive(Default)]
struct Agent {
    conn: Conn,
    commands: BTreeMap<ExecId, Command>,
}

impl Agent {
    fn handle(&mut self, bytes: &[u8]) {
        self.conn.handle_bytes(bytes).expect("the host keeps the protocol");
        while let Some(event) = self.conn.poll_event() {
            match event {
                Event::Bootstrap(_) => {
                    self.conn.ready(Ready { version: "fake".to_owned(), ..Ready::default() });
                }
                Event::Start { id, request } => self.start(id, &request),
                Event::StdinData(_) => {}
                Event::StdinEof(id) => {
                    if let Some(command) = self.commands.get_mut(&id) {
                        command.eof = true;
                    }
                }
                Event::Signal { id, signal } => {
                    if let Some(command) = self.commands.get_mut(&id) {
                        match signal {
                            9 | 15 => command.killed = Some(signal),
                            _ => command.signals.push(signal),
                        }
                    }
                }
                Event::Kill(id) => {
                    if let Some(command) = self.commands.get_mut(&id) {
                        command.killed = Some(9);
                    }
                }
                Event::PowerOff { .. } => {}
            }
        }
    }

    fn start(&mut self, id: ExecId, request: &Request) {
        let argv: Vec<&str> =
            request.argv.iter().map(|word| std::str::from_utf8(word).unwrap()).collect();
        let number = |at: usize| argv.get(at).map_or(0, |n| n.parse::<usize>().unwrap());
        let mut command = Command { exit: Some(0), ..Command::default() };
        match argv[0] {
            // Writes its arguments to stdout.
            "echo" => command.out[0].extend(argv[1..].join(" ").bytes()),
            // Writes its environment to stdout.
            "env" => {
                for var in &request.env {
                    command.out[0].extend(var.key.iter());
                    command.out[0].push_back(b'=');
                    command.out[0].extend(var.value.iter());
                    command.out[0].push_back(b'\n');
                }
            }
            // The code to exit with.
            "exit" => command.exit = Some(i32::try_from(number(1)).unwrap()),
            // Writes that many patterned bytes to stdout, then to stderr, then exits.
            "write" => {
                command.out[0].extend((0..number(1)).map(pattern));
                command.out[1].extend((0..number(2)).map(pattern));
                command.exit = Some(i32::try_from(number(3)).unwrap());
            }
            // Writes for ever.
            "chatter" => (command.endless, command.exit) = (true, None),
            // Copies stdin to stdout.
            "cat" => (command.cat, command.reads) = (true, true),
            // Reads stdin to its end.
            "drain" => command.reads = true,
            // Does nothing until it is killed; never reads stdin.
            "stall" => command.exit = None,
            // Closes its stdin at once and goes on until it is killed.
            "deaf" => command.exit = None,
            // Starts only when the test says so.
            "late" => (command.hold_start, command.exit) = (true, None),
            program => {
                return self.conn.failed(id, Failure {
                    kind: FailureKind::NotFound,
                    errno: Some(2),
                    stage: "execve".to_owned(),
                    message: format!("{program}: No such file or directory"),
                });
            }
        }
        let deaf = argv[0] == "deaf";
        self.commands.insert(id, command);
        if deaf {
            self.conn.started(id, 7);
            self.conn.stdin_error(id, StdinError {
                errno: 32,
                name: "EPIPE".to_owned(),
                message: "Broken pipe".to_owned(),
            });
            if let Some(command) = self.commands.get_mut(&id) {
                command.started = true;
            }
        }
    }

    /// Lets every command do what it can.
    fn work(&mut self) {
        let mut ended = Vec::new();
        for (&id, command) in &mut self.commands {
            if !command.started && !command.hold_start {
                command.started = true;
                self.conn.started(id, u32::try_from(id.get()).unwrap());
            }
            if !command.started {
                continue;
            }
            let pending = self.conn.stdin_pending(id).map_or(0, |(a, b)| a.len() + b.len());
            if command.reads && !command.cat && pending > 0 {
                let (a, b) = self.conn.stdin_pending(id).unwrap();
                command.received.extend(a);
                command.received.extend(b);
                self.conn.stdin_written(id, pending);
            }
            if let Some(signal) = command.killed {
                for stream in Stream::ALL {
                    self.conn.stream_ended(id, stream);
                }
                let signal = Some(signal);
                self.conn.exited(id, ExitStatus { code: None, signal, duration_us: 1 });
                ended.push(id);
                continue;
            }
            let echo = command.cat && command.reads && pending > 0;
            let readable = !command.out[0].is_empty() || command.endless || echo;
            self.conn.stream_ready(id, Stream::Stdout, readable);
            self.conn.stream_ready(id, Stream::Stderr, !command.out[1].is_empty());
            let done = command.out.iter().all(VecDeque::is_empty) && !command.endless;
            let fed = !command.reads || (command.eof && pending == 0);
            if let Some(code) = command.exit
                && done
                && fed
            {
                for stream in Stream::ALL {
                    self.conn.stream_ended(id, stream);
                }
                let code = Some(code);
                self.conn.exited(id, ExitStatus { code, signal: None, duration_us: 1500 });
                ended.push(id);
            }
        }
        for id in ended {
            self.commands.remove(&id);
        }
    }

    /// One chain for the host: as many whole frames as fit.
    fn next_chain(&mut self) -> Vec<u8> {
        let mut buf = vec![0; FRAME_MAX];
        let mut used = 0;
        self.work();
        loop {
            match self.conn.poll_transmit(&mut buf[used..]) {
                Transmit::Frame(n) => used += n,
                Transmit::Read { id, stream, max } => {
                    let n = self.read(id, stream, &mut buf[used + HEADER_LEN..][..max]);
                    if n == 0 {
                        self.conn.stream_ready(id, stream, false);
                    } else {
                        used += self.conn.output_read(id, stream, n, &mut buf[used..]);
                    }
                }
                Transmit::Full | Transmit::Idle => break,
            }
        }
        buf.truncate(used);
        buf
    }

    fn read(&mut self, id: ExecId, stream: Stream, buf: &mut [u8]) -> usize {
        let Some(command) = self.commands.get_mut(&id) else { return 0 };
        let out = &mut command.out[usize::from(stream == Stream::Stderr)];
        let mut n = out.len().min(buf.len());
        for (to, from) in buf.iter_mut().zip(out.drain(..n)) {
            *to = from;
        }
        if n == 0 && stream == Stream::Stdout && command.endless {
            buf.fill(b'x');
            n = buf.len();
        }
        if n == 0 && stream == Stream::Stdout && command.cat && command.reads {
            let (a, b) = self.conn.stdin_pending(id).unwrap_or_default();
            n = (a.len() + b.len()).min(buf.len());
            for (to, from) in buf.iter_mut().zip(a.iter().chain(b)) {
                *to = *from;
            }
            command.received.extend(&buf[..n]);
            self.conn.stdin_written(id, n);
        }
        command.written += n as u64;
        n
    }
}

/// Byte `index` of what `write` writes.
pub(crate) fn pattern(index: usize) -> u8 {
    (index.wrapping_mul(31) >> 3) as u8
}
