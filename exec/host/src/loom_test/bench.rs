//! A hub with a scripted guest behind it, for a few threads whose orders are tried.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use forebay_exec_proto::frame::FromGuest;
use forebay_exec_proto::host::{Config, Verdict};
use forebay_exec_proto::{ExecId, HEADER_LEN, Header};
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread::{Builder, JoinHandle};

use crate::fake_guest::agent::{Agent, Command};
use crate::{Client, Exec, ExecHandle, Hub, Limits, Link, Stdin};

/// Words of each thread's stack; loom's own choice is too small for a protocol.
const STACK: usize = 1 << 16;

/// Times that a thread is stopped where it could have gone on, in one order. Bugs that need more
/// are rare, and each further one multiplies the orders.
const PREEMPTIONS: usize = 2;

/// Runs `scenario` in every order of its threads with [`PREEMPTIONS`] at most.
pub(super) fn model(scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 10_000;
    let scenario = Arc::new(scenario);
    builder.check(move || {
        let scenario = Arc::clone(&scenario);
        spawn(move || scenario()).join().unwrap();
    });
}

/// One more thread of the scenario.
pub(super) fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().stack_size(STACK).spawn(body).unwrap()
}

/// One execution at a time, with windows that a few bytes fill.
pub(super) const ONE: Limits = Limits {
    max_executions: 1,
    input_limit: 4,
    output_limit: 600,
    stdin_chunk_size: 4,
    output_chunk_size: 300,
};

/// A VM: the hub, its device, and the guest behind the ring towards it.
pub(super) struct Vm {
    pub(super) hub: Arc<Hub>,
    pub(super) client: Client,
    to_guest: Mutex<Ring>,
    /// A frame was placed.
    placed: Condvar,
    /// How often it was told of a deadline.
    alarms: Mutex<usize>,
}

/// The ring towards the guest, and who reads it.
struct Ring {
    agent: Agent,
    /// The guest posts buffers.
    room: bool,
}

impl Link for Vm {
    fn transmit(&self) {
        self.place();
        self.hub.settle();
    }

    fn expire_at(&self, _at: Instant) {
        *self.alarms.lock().unwrap() += 1;
    }
}

impl Vm {
    /// A VM whose guest has not opened its port.
    pub(super) fn before_open(limits: Limits) -> Arc<Self> {
        let config = Config {
            limits,
            ..Config::default()
        };
        let hub = Hub::new(config).unwrap();
        let vm = Arc::new(Self {
            client: Client::new(Arc::clone(&hub)),
            hub,
            to_guest: Mutex::new(Ring {
                agent: Agent::default(),
                room: true,
            }),
            placed: Condvar::new(),
            alarms: Mutex::new(0),
        });
        let link: Weak<Self> = Arc::downgrade(&vm);
        vm.hub.set_link(link);
        vm
    }

    /// A VM whose agent is ready.
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let vm = Self::before_open(limits);
        vm.open();
        vm
    }

    /// The guest opens its port, with nothing running, and answers the bootstrap.
    pub(super) fn open(&self) {
        self.guest(|agent| *agent = Agent::default());
        self.hub.opened();
        Link::transmit(self);
        self.speak();
    }

    /// A running command.
    pub(super) fn start(&self, program: &str, stdin: Stdin) -> ExecHandle {
        self.start_exec(self.exec(program).stdin(stdin))
    }

    /// The same, as it is asked for.
    pub(super) fn start_exec(&self, exec: Exec) -> ExecHandle {
        let mut spawn = Box::pin(exec.spawn());
        assert!(once(spawn.as_mut()).is_pending());
        self.speak();
        match once(spawn.as_mut()) {
            Poll::Ready(started) => started.unwrap(),
            Poll::Pending => panic!("not started"),
        }
    }

    /// A request for `program`, to be started by whoever is first.
    pub(super) fn exec(&self, program: &str) -> Exec {
        self.client.exec(program, [""; 0])
    }

    /// How often the device was told of a deadline.
    pub(super) fn alarms(&self) -> usize {
        *self.alarms.lock().unwrap()
    }

    /// The guest posts buffers, or no more.
    pub(super) fn room(&self, room: bool) {
        self.ring().room = room;
        if room {
            Link::transmit(self);
        }
    }

    /// The device places what the hub has for the guest, which reads it.
    fn place(&self) {
        let mut ring = self.ring();
        while ring.room
            && let Some(frame) = self.hub.next_to_guest()
        {
            ring.agent.handle(&frame.head);
            ring.agent.handle(&frame.body);
        }
        self.placed.notify_all();
    }

    /// The device takes all that the guest has to say. Whether it had anything.
    pub(super) fn speak(&self) -> bool {
        let chain = self.ring().agent.next_chain();
        if chain.is_empty() {
            return false;
        }
        self.deliver(&chain);
        true
    }

    /// Hands a chain to the hub as the device does.
    pub(super) fn deliver(&self, mut chain: &[u8]) {
        while let Some((head, rest)) = chain.split_first_chunk::<HEADER_LEN>() {
            let n = match self.hub.judge(head, rest.len()) {
                Verdict::Accept(n) => {
                    self.hub.deliver(rest[..n].to_vec()).unwrap();
                    n
                }
                Verdict::Discard(n) => n,
                Verdict::Close(reason) => panic!("{reason}"),
            };
            chain = &rest[n..];
        }
        self.place();
        self.hub.settle();
    }

    /// The guest's side of the VM: answers what arrives until `done`.
    pub(super) fn serve(&self, done: impl Fn(&Agent) -> bool) {
        loop {
            let mut ring = self.ring();
            let chain = ring.agent.next_chain();
            if !chain.is_empty() {
                drop(ring);
                self.deliver(&chain);
            } else if done(&ring.agent) {
                return;
            } else {
                drop(self.placed.wait(ring).unwrap());
            }
        }
    }

    /// The command, if it runs, does no more than write `output`, and exits.
    pub(super) fn ends(&self, id: ExecId, output: &[u8]) {
        self.guest(|agent| {
            if let Some(command) = agent.commands.get_mut(&id) {
                command.out[0].extend(output);
                command.exit = Some(0);
            }
        });
        self.speak();
    }

    /// Looks at a command.
    pub(super) fn command<T>(&self, id: ExecId, look: impl FnOnce(&mut Command) -> T) -> Option<T> {
        self.guest(|agent| agent.commands.get_mut(&id).map(look))
    }

    /// Looks at the guest, or changes it.
    pub(super) fn guest<T>(&self, look: impl FnOnce(&mut Agent) -> T) -> T {
        look(&mut self.ring().agent)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.to_guest.lock().unwrap()
    }

    /// What must hold when all threads are done and all handles dropped: the guest says what it
    /// still has to say, and then the slots are there again, each of them once.
    pub(super) fn assert_all_slots_are_back(&self) {
        while self.speak() {}
        let view = self.hub.inspect();
        assert_eq!(view.active, 0, "{view:#?}");
        assert!(view.executions.is_empty(), "{view:#?}");
        let most = self.client.limits().max_executions;
        let all: Vec<_> = (0..most)
            .map(|_| self.start("stall", Stdin::null()))
            .collect();
        let mut more = Box::pin(self.exec("stall").spawn());
        assert!(matches!(once(more.as_mut()), Poll::Ready(Err(_))));
        drop(all);
    }
}

/// A frame of output that is larger than a chunk may be under [`ONE`].
pub(super) fn oversized(id: ExecId) -> Vec<u8> {
    let header = Header {
        len: 301,
        kind: FromGuest::Stdout.to_wire(),
        flags: 0,
        reserved: 0,
        exec: id.get(),
    };
    let mut chain = header.encode().to_vec();
    chain.extend([0; 301]);
    chain
}

/// Polls a future by hand, for nobody to be woken.
pub(super) fn once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
