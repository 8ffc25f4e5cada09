//! Any bytes in the rings and chains of a driver, against the console device with the host's end
//! of a connection behind its agent port. The device may be saved and restored between any two
//! steps, and what was saved may be changed.
//!
//! Rings are overwritten only between two calls of the device, not within one: what needs a change
//! of memory under it is shown by the device's own tests. Who serves the agent's ring, the kick or
//! the loop, follows the time between kicks, so that a replay may differ there.
#![no_main]

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use forebay_exec_proto::guest::{self, Event, Transmit};
use forebay_exec_proto::host::{self, Config, Start, Stdin};
use forebay_exec_proto::pair::argv;
use forebay_exec_proto::{FRAME_MAX, Ready, Stream};
use forebay_fuzz::{KINDS_FROM_GUEST, check_host, frame, limits};
use forebay_virtio::mock::{self, Bell, MockDriver, Piece};
use forebay_virtio::spec::{F_EVENT_IDX, F_INDIRECT_DESC, F_VERSION_1};
use forebay_virtio::{MmioTransport, SavedTransport};
use forebay_virtio_console::{
    Budget, Closed, Console, ConsoleSink, Drained, Gate, HEADER_LEN, Outgoing, QueueIndex,
    SavedConsole, Verdict,
};
use vm_memory::{Bytes as _, GuestAddress};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // An input that ends within a step is shorter by that one.
    let _ = run(&mut Unstructured::new(data));
});

const CONTROL_TO_GUEST: u16 = QueueIndex::ControlToGuest.index();
const CONTROL: u16 = QueueIndex::ControlFromGuest.index();
const TO_GUEST: u16 = QueueIndex::AgentToGuest.index();
const FROM_GUEST: u16 = QueueIndex::AgentFromGuest.index();

/// `VIRTIO_CONSOLE_F_MULTIPORT`.
const F_MULTIPORT: u64 = 1 << 1;
/// `VIRTIO_CONSOLE_PORT_OPEN`.
const PORT_OPEN: u16 = 6;

/// The host's end, behind the device. Checks that the device keeps its side of the gate.
struct Judge(Mutex<State>);

struct State {
    host: host::Conn,
    open: bool,
    accepted: Option<usize>,
}

impl Judge {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panicked")
    }
}

impl Gate for Judge {
    fn judge(&self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        let mut state = self.state();
        assert!(state.open, "judged without a connection");
        assert_eq!(state.accepted, None, "judged before the last was delivered");
        match state.host.judge(head, rest) {
            host::Verdict::Accept(n) => {
                state.accepted = Some(n);
                Verdict::Accept(n)
            }
            host::Verdict::Discard(n) => Verdict::Discard(n),
            host::Verdict::Close(reason) => Verdict::Close(reason),
        }
    }

    fn deliver(&self, payload: Vec<u8>) -> std::result::Result<(), &'static str> {
        let mut state = self.state();
        assert_eq!(state.accepted.take(), Some(payload.len()));
        assert_eq!(payload.capacity(), payload.len());
        state.host.deliver(payload)
    }

    fn next_to_guest(&self) -> Option<Outgoing> {
        let mut state = self.state();
        assert!(state.open, "asked for a frame without a connection");
        let frame = state.host.poll_transmit()?;
        Some(Outgoing {
            head: frame.head,
            body: frame.body,
            can_wait: frame.can_wait,
        })
    }

    fn opened(&self) {
        let mut state = self.state();
        assert!(!state.open, "opened twice");
        state.open = true;
        state.host.handle_opened();
    }

    fn closed(&self, why: Closed) {
        let mut state = self.state();
        assert!(state.open, "closed without having been opened");
        state.open = false;
        state.accepted = None;
        state.host.handle_closed(&why.to_string());
    }
}

/// Console output goes nowhere.
struct Nowhere;

impl ConsoleSink for Nowhere {
    fn write(&self, _bytes: &[u8]) {}
}

struct Bench {
    judge: Arc<Judge>,
    console: Arc<Console>,
    transport: Arc<MmioTransport>,
    driver: MockDriver,
    agent: guest::Conn,
}

fn device(judge: &Arc<Judge>) -> Arc<Console> {
    Console::new(
        judge.clone(),
        Arc::new(Nowhere),
        Arc::new(Bell::default()),
        Arc::new(Bell::default()),
    )
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut bench = Bench::new(host::Conn::new(Config {
        limits: limits(u)?,
        ..Config::default()
    }));
    bench.connect();
    while !u.is_empty() {
        bench.step(u)?;
        bench.check();
    }
    // Whatever happened, a reset brings the device back.
    bench.connect();
    bench.check();
    Ok(())
}

impl Bench {
    fn new(host: host::Conn) -> Self {
        let judge = Arc::new(Judge(Mutex::new(State {
            host,
            open: false,
            accepted: None,
        })));
        let mem = mock::memory();
        let bell = Arc::new(Bell::default());
        let console = device(&judge);
        let transport = Arc::new(MmioTransport::new(mem.clone(), console.clone(), bell));
        Self {
            judge,
            console,
            transport: transport.clone(),
            driver: MockDriver::new(mem, transport),
            agent: guest::Conn::new(),
        }
    }

    /// Goes on with another device, made of what this one was as it was held, or of something like
    /// it. What is refused changes nothing.
    fn restore(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let held = self.console.hold();
        let mut records = [self.transport.save().encode(), held.save().encode()];
        let mut honest = true;
        for _ in 0..u.int_in_range(0..=3u8)? {
            let record = &mut records[u.int_in_range(0..=1usize)?];
            let at = u.int_in_range(0..=record.len() - 1)?;
            record[at] = u.arbitrary()?;
            honest = false;
        }
        let [registers, device_state] = &records;
        let next = device(&self.judge);
        let restored = SavedTransport::decode(registers).and_then(|registers| {
            let saved = SavedConsole::decode(device_state)?;
            let (mem, bell) = (self.driver.mem().clone(), Arc::new(Bell::default()));
            let (transport, activation) =
                MmioTransport::restore(&registers, mem, next.clone(), bell)?;
            let again = next.restore(&saved, activation)?;
            assert_eq!(again.save(), saved, "restoring it changed it");
            Ok((transport, again, saved.is_connected()))
        });
        match restored {
            // The gate is as it was: whoever restores both compares.
            Ok((transport, again, connected)) if connected == self.judge.state().open => {
                self.console = next;
                self.transport = Arc::new(transport);
                self.driver.attach(self.transport.clone());
                drop(again);
                self.turn();
            }
            Ok(_) => assert!(!honest, "it has another connection than the gate"),
            Err(error) => assert!(!honest, "{error}"),
        }
        Ok(())
    }

    /// Resets the device, opens the agent's port, and has an honest agent run a command.
    fn connect(&mut self) {
        self.driver
            .start(F_VERSION_1 | F_MULTIPORT | F_EVENT_IDX | F_INDIRECT_DESC);
        self.agent = guest::Conn::new();
        self.driver.post(CONTROL_TO_GUEST, 16, 64);
        self.say(1, PORT_OPEN, 1);
        self.honest();
        assert!(self.judge.state().host.is_ready(), "no connection came up");
        let start = Start::new(argv(&["cmd"]), Stdin::Pipe).expect("small enough");
        let started = self.judge.state().host.start(start);
        if let Ok(id) = started {
            self.honest();
            let pid = self.judge.state().host.pid(id);
            assert_eq!(pid, Some(7), "the command did not start");
            self.agent.stream_ready(id, Stream::Stdout, true);
        }
    }

    /// Lets the agent take and answer what the host has for it.
    fn honest(&mut self) {
        for _ in 0..4 {
            self.console.transmit();
            self.driver.post(TO_GUEST, 4, 4096);
            self.console.transmit();
            for used in self.driver.take_all_used(TO_GUEST) {
                self.agent.handle_bytes(&used.bytes).expect("honest");
            }
            while let Some(event) = self.agent.poll_event() {
                match event {
                    Event::Bootstrap(_) => self.agent.ready(Ready::default()),
                    Event::Start { id, .. } => self.agent.started(id, 7),
                    _ => {}
                }
            }
            let mut buf = vec![0; FRAME_MAX];
            let mut used = 0;
            while let Transmit::Frame(n) = self.agent.poll_transmit(&mut buf[used..]) {
                used += n;
            }
            if used > 0 {
                self.driver.send(FROM_GUEST, &buf[..used]);
                self.turn();
                self.driver.take_all_used(FROM_GUEST);
            }
        }
    }

    fn say(&mut self, port: u32, event: u16, value: u16) {
        let mut message = port.to_le_bytes().to_vec();
        message.extend(event.to_le_bytes());
        message.extend(value.to_le_bytes());
        if self.driver.room(CONTROL) > 0 {
            self.driver.send(CONTROL, &message);
        }
    }

    /// Lets the loop serve the device until it has nothing to do.
    fn turn(&self) {
        for _ in 0..1000 {
            let drained = self.console.drain_from_guest(Budget::TURN, Duration::ZERO);
            if drained == Drained::Everything {
                return;
            }
        }
        panic!("the loop never comes to rest");
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=13u8)? {
            0..=2 => self.chain(u)?,
            3 => {
                let at = self.driver.descriptors(0).0 + u.int_in_range(0..=0x1_8000u64)?;
                let value: u64 = u.arbitrary()?;
                self.put(value, at);
            }
            4 => self.descriptor(u)?,
            5 => {
                let head = u.int_in_range(0..=130)?;
                let queue = u.int_in_range(0..=5)?;
                self.driver.add_head(queue, head);
            }
            6 => {
                let index = u.arbitrary()?;
                self.driver
                    .put_available_index(u.int_in_range(0..=5)?, index);
            }
            7 => self.driver.force_kick(u.int_in_range(0..=7)?),
            8 => self.turn(),
            9 => {
                let count = u.int_in_range(0..=8)?;
                let count = self.driver.room(TO_GUEST).min(count);
                for _ in 0..count {
                    self.driver
                        .add(TO_GUEST, &[Piece::Write(u.int_in_range(0..=5000)?)]);
                }
                self.driver.force_kick(TO_GUEST);
            }
            10 => {
                let (event, value) = (u.int_in_range(0..=8)?, u.int_in_range(0..=2)?);
                self.say(u.int_in_range(0..=2)?, event, value);
                self.driver.force_kick(CONTROL);
            }
            11 => self.application(u)?,
            12 => self.restore(u)?,
            _ => self.connect(),
        }
        Ok(())
    }

    /// A chain of frames, cut into buffers.
    fn chain(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        for _ in 0..u.int_in_range(1..=4u8)? {
            bytes.extend(frame(u, &KINDS_FROM_GUEST)?);
        }
        let most = u.int_in_range(1..=8usize)?;
        let cut = bytes.len().div_ceil(most).clamp(1, mock::SLOT_LEN as usize);
        let pieces: Vec<_> = bytes.chunks(cut).map(Piece::Read).collect();
        if self.driver.room(FROM_GUEST) >= pieces.len() {
            self.driver.add(FROM_GUEST, &pieces);
        }
        if u.arbitrary()? {
            self.driver.force_kick(FROM_GUEST);
        }
        Ok(())
    }

    /// A descriptor that names whatever it likes.
    fn descriptor(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let queue = u.int_in_range(0..=5)?;
        let index = u.int_in_range(0..=127u64)?;
        let at = self.driver.descriptors(queue).0 + 16 * index;
        let address = match u.int_in_range(0..=3u8)? {
            0 => u.arbitrary()?,
            1 => self.driver.descriptors(u.int_in_range(0..=5)?).0,
            2 => mock::MEMORY_LEN - u.int_in_range(0..=64u64)?,
            _ => self.driver.slot(queue, u.int_in_range(0..=127)?).0,
        };
        let len: u32 = if u.arbitrary()? {
            u.int_in_range(0..=1 << 16)?
        } else {
            u.arbitrary()?
        };
        self.put(address, at);
        let flags = u.int_in_range(0..=7u64)?;
        let next = u.int_in_range(0..=130u64)?;
        self.put(u64::from(len) | flags << 32 | next << 48, at + 8);
        Ok(())
    }

    fn put(&self, value: u64, at: u64) {
        let at = GuestAddress(at);
        self.driver.mem().write_obj(value, at).expect("low memory");
    }

    /// The application reads, writes, or lets go.
    fn application(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let mut state = self.judge.state();
        let view = state.host.inspect();
        if let Some(exec) = view.executions.last() {
            match u.int_in_range(0..=3u8)? {
                0 => while state.host.next_event(exec.id).is_some() {},
                1 => {
                    let _ = state.host.write_stdin(exec.id, vec![5; 3000].into());
                }
                2 => {
                    let _ = state.host.kill(exec.id);
                }
                _ => state.host.forget(exec.id),
            }
        }
        drop(state);
        self.console.transmit();
        Ok(())
    }

    fn check(&self) {
        let mut state = self.judge.state();
        while state.host.poll_notice().is_some() {}
        drop(state.host.take_dropped());
        let known = state.host.inspect().executions.len();
        check_host(&state.host, known);
    }
}
