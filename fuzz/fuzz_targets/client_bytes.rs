//! Clients of the attach socket whose bytes are spoilt at will, beside honest ones, against the
//! server and the hub behind it.
//!
//! A client's bytes come from an honest client's end, with frames of a villain's between and
//! single bytes changed. Whatever the others send, a client that was not spoilt is served to the
//! end of its last command, and hub and guest find no fault with each other. Commands are left, and
//! adopted by whoever guesses their ids; nobody may do that to one that is held. That the guest closes
//! its port, breaks a rule itself, or ends with its VM, ends commands and no client.
#![no_main]

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use forebay_exec::{ClientsByHand, Hub};
use forebay_exec_proto::guest::{self, Event};
use forebay_exec_proto::host::{self, Config, Start, Stdin, Terminal};
use forebay_exec_proto::pair::argv;
use forebay_exec_proto::{ExecId, FailureKind, HEADER_LEN, Header, Limits, Ready};
use forebay_fuzz::{
    Commands, KINDS_FROM_GUEST, KINDS_TO_GUEST, check_view, deliver, frame, limits, perhaps_spoilt,
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // An input that ends within a step is shorter by that one.
    let _ = run(&mut Unstructured::new(data));
});

/// The server's first bytes on a connection.
const PREAMBLE: usize = 64;

/// Clients at once: enough to meet each other.
const CLIENTS: usize = 4;

/// Turns after which nothing can be left to do.
const TURNS: usize = 10_000;

struct World {
    limits: Limits,
    hub: Arc<Hub>,
    guest: guest::Conn,
    commands: Commands,
    server: ClientsByHand,
    clients: Vec<Client>,
    /// The guest has broken a rule: the hub and the guest's end may find fault with each other.
    broken: bool,
    /// Rules that it broke before its connection began.
    faults: u64,
    /// Commands may have ended by no fault of their own.
    disturbed: bool,
    /// The VM has ended.
    gone: bool,
}

struct Client {
    stream: UnixStream,
    conn: host::Conn,
    handles: Vec<ExecId>,
    /// Bytes that the socket has not taken.
    unsent: Vec<u8>,
    /// Bytes of the server that are not a whole frame yet.
    received: Vec<u8>,
    preamble: bool,
    /// Something was spoilt: it may be cut off now.
    spoilt: bool,
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let limits = limits(u)?;
    let config = Config {
        limits,
        ..Config::default()
    };
    let hub = Hub::new(config).expect("limits that can work");
    let server = ClientsByHand::new(Arc::clone(&hub)).expect("descriptors");
    let mut world = World {
        limits,
        hub,
        guest: guest::Conn::new(),
        commands: Commands::default(),
        server,
        clients: Vec::new(),
        broken: false,
        faults: 0,
        disturbed: false,
        gone: false,
    };
    world.open()?;
    while !u.is_empty() {
        world.step(u)?;
        world.check();
    }
    world.end()
}

/// What makes a guest write as much as it can.
fn full() -> Unstructured<'static> {
    Unstructured::new(&[0xff; 4096])
}

impl World {
    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=10u8)? {
            0 if self.clients.len() < CLIENTS && !self.gone => {
                // One that has left holds its place until the server has a turn, and the server
                // has no more than 64: the next would be refused, honest or not.
                if self.server.attached() >= 8 * CLIENTS {
                    self.server.turn().expect("no system call fails");
                }
                let stream = self.server.attach().expect("descriptors");
                self.clients.push(Client::new(stream, self.limits));
            }
            0 | 1 => {
                self.server.turn().expect("no system call fails");
            }
            2 => self.guest_reads()?,
            3 => self.guest_writes(u)?,
            4 => self.commands.happen(u, &mut self.guest)?,
            5 if !self.clients.is_empty() && u.ratio(1, 4)? => {
                let at = u.choose_index(self.clients.len())?;
                self.clients.swap_remove(at);
            }
            10 => self.disturb(u)?,
            step if !self.clients.is_empty() => {
                let at = u.choose_index(self.clients.len())?;
                let client = &mut self.clients[at];
                let open = match step {
                    5 | 6 => client.command(u).map(|()| true)?,
                    7 => client.receive(),
                    8 => client.send(u)?,
                    _ => client.spoil(u)?,
                };
                if !open {
                    self.clients.swap_remove(at);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The guest opens its port, and its agent becomes ready.
    fn open(&mut self) -> Result<()> {
        self.guest = guest::Conn::new();
        self.commands = Commands::default();
        self.broken = false;
        self.hub.opened();
        self.faults = self.hub.inspect().faults;
        self.guest_reads()?;
        self.guest_writes(&mut full())
    }

    /// The connection ends, and the guest opens another.
    fn reopen(&mut self, reason: &str) -> Result<()> {
        self.disturbed = true;
        self.hub.closed(reason);
        self.hub.settle();
        self.open()
    }

    /// Something happens to the VM.
    fn disturb(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.gone {
            return Ok(());
        }
        match u.int_in_range(0..=7u8)? {
            0 => {
                (self.gone, self.disturbed) = (true, true);
                self.hub.vm_gone("the end");
                self.hub.settle();
            }
            1 | 2 => self.reopen("the port was closed")?,
            _ => {
                (self.broken, self.disturbed) = (true, true);
                let frame = frame(u, &KINDS_FROM_GUEST)?;
                if let Some(rule) = deliver(&mut &*self.hub, &frame) {
                    self.reopen(rule)?;
                }
                self.hub.settle();
            }
        }
        Ok(())
    }

    /// The guest reads everything that there is for it.
    fn guest_reads(&mut self) -> Result<()> {
        while let Some(frame) = self.hub.next_to_guest() {
            for bytes in [&frame.head[..], &frame.body] {
                if let Err(fault) = self.guest.handle_bytes(bytes) {
                    assert!(self.broken, "the guest is made to suffer: {fault}");
                    return self.reopen("the agent closed its port");
                }
            }
        }
        while let Some(event) = self.guest.poll_event() {
            match event {
                Event::Bootstrap(_) => self.guest.ready(Ready::default()),
                Event::Start { id, .. } => self.commands.start(id),
                _ => {}
            }
        }
        self.hub.settle();
        Ok(())
    }

    /// The guest fills a write.
    fn guest_writes(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if self.gone {
            return Ok(());
        }
        let chain = self.commands.write(u, &mut self.guest)?;
        if let Some(rule) = deliver(&mut &*self.hub, &chain) {
            assert!(self.broken, "an honest guest is blamed: {rule}");
            return self.reopen(rule);
        }
        self.hub.settle();
        Ok(())
    }

    fn check(&self) {
        let view = self.hub.inspect();
        check_view(&view, &self.limits, view.executions.len());
        assert!(
            self.broken || view.faults == self.faults,
            "an honest guest is blamed: {view:?}"
        );
        assert!(self.guest.executions() <= self.limits.max_executions as usize);
    }

    /// Every command ends, and the guest reads and writes all there is; whether the server had
    /// anything to do.
    fn finish(&mut self) -> Result<bool> {
        let served = self.server.turn().expect("no system call fails");
        self.guest_reads()?;
        self.commands.end(&mut self.guest);
        // All of it: what is not asked for is not read.
        self.guest_writes(&mut full())?;
        Ok(served)
    }

    /// Who was not spoilt sees the end of each of its commands, beside the others. Then everybody
    /// leaves: nothing may stay behind.
    fn end(&mut self) -> Result<()> {
        if self.broken && !self.gone {
            self.reopen("the port was closed")?;
        }
        for turn in 0.. {
            assert!(turn < TURNS, "an honest client is not served");
            self.finish()?;
            let mut waiting = false;
            for client in self.clients.iter_mut().filter(|client| !client.spoilt) {
                waiting |= !client.is_served(self.disturbed);
            }
            if !waiting {
                break;
            }
        }
        self.check();
        self.clients.clear();
        for turn in 0.. {
            assert!(turn < TURNS, "it never comes to rest");
            for id in self.hub.adoptable() {
                self.hub.kill(id);
            }
            if !self.finish()? && self.hub.active() == 0 {
                break;
            }
        }
        assert_eq!(self.server.attached(), 0);
        assert_eq!(self.hub.inspect().executions.len(), 0);
        Ok(())
    }
}

impl Client {
    fn new(stream: UnixStream, limits: Limits) -> Self {
        let mut conn = host::Conn::facing_relay(Config {
            limits,
            ..Config::default()
        });
        conn.handle_opened();
        Self {
            stream,
            conn,
            handles: Vec::new(),
            unsent: Vec::new(),
            received: Vec::new(),
            preamble: true,
            spoilt: false,
        }
    }

    /// Its application does something.
    fn command(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let step = u.int_in_range(0..=9u8)?;
        if step == 9 {
            let of = ExecId::new(u.int_in_range(1..=16)?).expect("not zero");
            if self.handles.len() < 16
                && let Ok(id) = self.conn.adopt(of)
            {
                self.handles.push(id);
            }
            return Ok(());
        }
        if step <= 1 {
            let stdin = if u.arbitrary()? {
                Stdin::Pipe
            } else {
                Stdin::Null
            };
            let word = "w".repeat(u.int_in_range(0..=20_000)?);
            let start = Start::new(argv(&["cmd", &word]), stdin).expect("small enough");
            if self.handles.len() < 16
                && let Ok(id) = self.conn.start(start)
            {
                self.handles.push(id);
            }
            return Ok(());
        }
        if self.handles.is_empty() {
            return Ok(());
        }
        let at = u.choose_index(self.handles.len())?;
        let id = self.handles[at];
        match step {
            2 => {
                let data = vec![7; u.int_in_range(1..=1000)?];
                let _ = self.conn.write_stdin(id, Bytes::from(data));
            }
            3 => {
                let _ = self.conn.close_stdin(id);
            }
            4 => {
                let _ = self.conn.kill(id);
            }
            5 if self.conn.pid(id).is_some() => {
                let _ = self.conn.signal(id, u.int_in_range(1..=64)?);
            }
            5 | 6 => while self.conn.next_event(id).is_some() {},
            8 => {
                let _ = self.conn.leave(id);
            }
            _ => {
                self.conn.forget(id);
                self.handles.swap_remove(at);
            }
        }
        Ok(())
    }

    /// Sends some frames, perhaps with a byte changed; whether the connection is still open.
    fn send(&mut self, u: &mut Unstructured<'_>) -> Result<bool> {
        let (bytes, spoilt) = perhaps_spoilt(u, &mut self.conn)?;
        self.spoilt |= spoilt;
        Ok(self.write(&bytes))
    }

    /// Sends what no honest client would.
    fn spoil(&mut self, u: &mut Unstructured<'_>) -> Result<bool> {
        self.spoilt = true;
        let mut bytes = frame(u, &KINDS_TO_GUEST)?;
        if u.ratio(1, 8)? {
            bytes.truncate(u.int_in_range(0..=bytes.len())?);
        }
        Ok(self.write(&bytes))
    }

    /// Sends these bytes behind what the socket has not taken, as far as it takes them; whether
    /// the connection is still open.
    fn write(&mut self, bytes: &[u8]) -> bool {
        self.unsent.extend_from_slice(bytes);
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) => {
                    assert!(self.spoilt, "an honest client is cut off: {error}");
                    return false;
                }
            }
        }
        true
    }

    /// Sends and receives all there is; whether every command has ended, as it should if nothing
    /// but clients `disturbed` it.
    fn is_served(&mut self, disturbed: bool) -> bool {
        self.write(&[]);
        while self.unsent.is_empty()
            && let Some(frame) = self.conn.poll_transmit()
        {
            self.write(&[&frame.head[..], &frame.body].concat());
        }
        self.receive();
        let mut served = self.conn.is_ready();
        for id in &self.handles {
            while self.conn.next_event(*id).is_some() {}
            match self.conn.terminal(*id) {
                Some(Terminal::Exited(_) | Terminal::TimedOut { .. }) => {}
                Some(Terminal::Failed(failure)) => {
                    let theirs = matches!(failure.kind, FailureKind::Protocol | FailureKind::Lost);
                    assert!(disturbed || !theirs, "it pays for others: {failure:?}");
                }
                Some(Terminal::Lost(_)) if self.conn.left(*id).is_some() => {}
                Some(Terminal::Lost(reason)) => {
                    assert!(disturbed, "it pays for others: {reason}");
                }
                None => served = false,
            }
        }
        served
    }

    /// Reads what there is; whether the connection is still open.
    fn receive(&mut self) -> bool {
        let mut buf = [0; 16 * 1024];
        let open = loop {
            match self.stream.read(&mut buf) {
                Ok(0) => break false,
                Ok(n) => self.received.extend_from_slice(&buf[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                Err(_) => break false,
            }
        };
        assert!(open || self.spoilt, "an honest client is cut off");
        if self.preamble && self.received.len() >= PREAMBLE {
            self.preamble = false;
            self.received.drain(..PREAMBLE);
        }
        while !self.preamble
            && let Some((head, rest)) = self.received.split_first_chunk::<HEADER_LEN>()
            && let Some(payload) = rest.get(..Header::decode(head).len as usize)
        {
            let whole = HEADER_LEN + payload.len();
            let fault = deliver(&mut self.conn, &self.received[..whole]);
            assert!(
                self.spoilt || fault.is_none(),
                "the server is at fault: {fault:?}"
            );
            self.received.drain(..whole);
        }
        while self.conn.poll_notice().is_some() {}
        drop(self.conn.take_dropped());
        open
    }
}
