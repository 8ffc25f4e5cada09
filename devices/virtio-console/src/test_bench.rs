//! The device between a mock driver and a gate that keeps a diary.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::Duration;

use bytes::Bytes;
use forebay_virtio::mock::{self, Bell, MockDriver};
use forebay_virtio::spec::{F_EVENT_IDX, F_INDIRECT_DESC, F_VERSION_1};
use forebay_virtio::{Interrupt, MmioTransport, SavedTransport};
use vm_memory::{Bytes as _, GuestAddress};

use crate::queues::MAX_CHAIN_FRAMES;
use crate::spec::{ControlMessage, F_MULTIPORT, event};
use crate::{
    Budget, Closed, Console, ConsoleSink, Drained, Gate, HEADER_LEN, Outgoing, SavedConsole,
    Verdict,
};

pub(crate) const CONSOLE: u16 = 1;
pub(crate) const CONTROL_TO_GUEST: u16 = 2;
pub(crate) const CONTROL: u16 = 3;
pub(crate) const TO_GUEST: u16 = 4;
pub(crate) const FROM_GUEST: u16 = 5;

pub(crate) const FEATURES: u64 = F_VERSION_1 | F_MULTIPORT | F_EVENT_IDX | F_INDIRECT_DESC;

/// A frame of the tests' own small protocol: length and execution in the header.
pub(crate) fn frame(exec: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header(exec, payload.len()).to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn header(exec: u8, len: usize) -> [u8; HEADER_LEN] {
    let mut head = [0xee; HEADER_LEN];
    head[..4].copy_from_slice(&(len as u32).to_le_bytes());
    head[4] = exec;
    head
}

/// What the gate lived through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Opened,
    Closed(Closed),
    /// An accepted frame: its execution and payload.
    Delivered(u8, Vec<u8>),
    /// A discarded frame: its execution and length.
    Discarded(u8, usize),
}

#[derive(Debug, Default)]
pub(crate) struct Diary {
    pub(crate) events: Vec<Event>,
    /// Bytes each execution may still send; without an entry it may send all it wants.
    pub(crate) allowance: HashMap<u8, usize>,
    /// Executions that broke their allowance.
    pub(crate) failed: HashSet<u8>,
    pub(crate) to_guest: VecDeque<Outgoing>,
    /// Frames to send back for each frame delivered.
    pub(crate) echo: bool,
    /// The `rest` of each judgement.
    pub(crate) rests: Vec<usize>,
    /// Refuse to take payloads, with this reason.
    pub(crate) refuse: Option<&'static str>,
    /// The execution whose payload must come next.
    accepted: Option<(u8, usize)>,
    open: bool,
}

impl Diary {
    /// The gate of a restored device: whether it has a connection was saved with it.
    pub(crate) fn resume(&mut self, open: bool) {
        self.open = open;
    }
}

/// Something a test wants done in the middle of the device's work.
pub(crate) type Hook = Mutex<Option<Box<dyn FnMut() + Send>>>;

/// A hook is out while it runs, so that what it does may come back here. One that panics is gone.
fn run(hook: &Hook) {
    let taken = hook.lock().unwrap().take();
    if let Some(mut taken) = taken {
        taken();
        hook.lock().unwrap().get_or_insert(taken);
    }
}

#[derive(Default)]
pub(crate) struct TestGate {
    diary: Mutex<Diary>,
    /// Run when a frame is judged.
    pub(crate) at_judge: Hook,
    /// Run when a frame is asked for.
    pub(crate) at_next: Hook,
    /// Run when the gate is settled.
    pub(crate) at_settle: Hook,
    /// Checked when the gate is settled: no lock of this device may be held.
    device: Mutex<Weak<Console>>,
    unsettled: AtomicBool,
}

impl TestGate {
    pub(crate) fn diary(&self) -> MutexGuard<'_, Diary> {
        self.diary.lock().unwrap()
    }

    /// What happened since the last call.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.diary().events)
    }

    /// Whether the gate was called and not settled since.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled.load(Ordering::SeqCst)
    }

    /// Locks may be held by others when the gate is settled: a test with threads of its own.
    pub(crate) fn spare_the_locks(&self) {
        *self.device.lock().unwrap() = Weak::new();
    }

    fn called(&self) {
        self.unsettled.store(true, Ordering::SeqCst);
    }
}

/// Execution that makes the gate close the channel.
pub(crate) const POISON: u8 = 0xff;

impl Gate for TestGate {
    fn judge(&self, head: &[u8; HEADER_LEN], rest: usize) -> Verdict {
        self.called();
        run(&self.at_judge);
        let mut diary = self.diary();
        assert!(diary.open, "judged without a connection");
        assert_eq!(diary.accepted, None, "judged before the last was delivered");
        let len = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let exec = head[4];
        diary.rests.push(rest);
        if exec == POISON {
            return Verdict::Close("poison");
        }
        // A frame longer than its chain is left to the device to find.
        let within = match diary.allowance.get_mut(&exec) {
            Some(allowance) => match allowance.checked_sub(len) {
                Some(left) => {
                    *allowance = left;
                    true
                }
                None => false,
            },
            None => true,
        };
        if within && !diary.failed.contains(&exec) {
            if len <= rest {
                diary.accepted = Some((exec, len));
            }
            Verdict::Accept(len)
        } else {
            diary.failed.insert(exec);
            if len <= rest {
                diary.events.push(Event::Discarded(exec, len));
            }
            Verdict::Discard(len)
        }
    }

    fn deliver(&self, payload: Vec<u8>) -> Result<(), &'static str> {
        self.called();
        let mut diary = self.diary();
        let (exec, len) = diary.accepted.take().expect("accepted first");
        assert_eq!(payload.len(), len);
        assert_eq!(payload.capacity(), len, "no more memory than was accepted");
        if let Some(reason) = diary.refuse {
            return Err(reason);
        }
        if diary.echo {
            diary.to_guest.push_back(Outgoing {
                head: header(exec, len),
                body: Bytes::from(payload.clone()),
                can_wait: false,
            });
        }
        diary.events.push(Event::Delivered(exec, payload));
        Ok(())
    }

    fn next_to_guest(&self) -> Option<Outgoing> {
        self.called();
        run(&self.at_next);
        let mut diary = self.diary();
        assert!(diary.open, "asked for a frame without a connection");
        diary.to_guest.pop_front()
    }

    fn opened(&self) {
        self.called();
        let mut diary = self.diary();
        assert!(!diary.open, "opened twice");
        diary.open = true;
        diary.events.push(Event::Opened);
    }

    fn closed(&self, why: Closed) {
        self.called();
        let mut diary = self.diary();
        assert!(diary.open, "closed without having been opened");
        diary.open = false;
        diary.accepted = None;
        diary.to_guest.clear();
        diary.events.push(Event::Closed(why));
    }

    fn settle(&self) {
        let device = self.device.lock().unwrap().upgrade();
        if let Some(console) = device {
            let held = [
                is_held(&console.control),
                is_held(&console.console),
                is_held(&console.from_guest),
                is_held(&console.to_guest),
            ];
            assert_eq!(held, [false; 4], "settled with a lock held");
        }
        self.unsettled.store(false, Ordering::SeqCst);
        run(&self.at_settle);
    }
}

fn is_held<T>(lock: &Mutex<T>) -> bool {
    matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

/// Keeps the console's output, and may do something at each piece of it.
#[derive(Default)]
pub(crate) struct TestSink {
    pub(crate) output: Mutex<Vec<u8>>,
    pub(crate) at_write: Hook,
}

impl TestSink {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }
}

impl ConsoleSink for TestSink {
    fn write(&self, bytes: &[u8]) {
        self.output.lock().unwrap().extend_from_slice(bytes);
        run(&self.at_write);
    }
}

/// The interrupt line: counts, and may do something at each signal.
#[derive(Default)]
pub(crate) struct TestLine {
    count: Bell,
    pub(crate) at_signal: Hook,
}

impl TestLine {
    /// Signals since the last call.
    pub(crate) fn take(&self) -> usize {
        self.count.take()
    }
}

impl Interrupt for TestLine {
    fn signal_queue(&self) {
        self.count.signal_queue();
        run(&self.at_signal);
    }
}

pub(crate) struct Bench {
    pub(crate) gate: Arc<TestGate>,
    pub(crate) sink: Arc<TestSink>,
    pub(crate) interrupt: Arc<TestLine>,
    pub(crate) doorbell: Arc<Bell>,
    pub(crate) console: Arc<Console>,
    pub(crate) transport: Arc<MmioTransport>,
    pub(crate) driver: MockDriver,
}

impl Bench {
    /// The device up, nothing said yet.
    pub(crate) fn new() -> Self {
        Self::with_features(FEATURES)
    }

    fn with_features(features: u64) -> Self {
        let mut bench = Self::unstarted();
        bench.driver.start(features);
        bench
    }

    /// A device that its driver has not looked at yet.
    pub(crate) fn unstarted() -> Self {
        let mem = mock::memory();
        let gate = Arc::new(TestGate::default());
        let sink = Arc::new(TestSink::default());
        let interrupt = Arc::new(TestLine::default());
        let doorbell = Arc::new(Bell::default());
        let console = Console::new(
            gate.clone(),
            sink.clone(),
            interrupt.clone(),
            doorbell.clone(),
        );
        *gate.device.lock().unwrap() = Arc::downgrade(&console);
        // How fast a test kicks depends on the machine it runs on.
        console.from_guest.lock().unwrap().cadence.window = Duration::MAX;
        let transport = Arc::new(MmioTransport::new(
            mem.clone(),
            console.clone(),
            interrupt.clone(),
        ));
        let driver = MockDriver::new(mem, transport.clone());
        Self {
            gate,
            sink,
            interrupt,
            doorbell,
            console,
            transport,
            driver,
        }
    }

    /// Both ports up, port 1 open, no buffers posted on it.
    pub(crate) fn opened() -> Self {
        Self::opened_with(FEATURES)
    }

    /// The same with a driver that wants these features.
    pub(crate) fn opened_with(features: u64) -> Self {
        let mut bench = Self::with_features(features);
        bench.driver.post(CONTROL_TO_GUEST, 16, 64);
        bench.say(0, event::DEVICE_READY, 1);
        bench.say(0, event::PORT_READY, 1);
        bench.say(1, event::PORT_READY, 1);
        bench.say(1, event::PORT_OPEN, 1);
        assert_eq!(bench.gate.take(), [Event::Opened]);
        bench.driver.take_all_used(CONTROL_TO_GUEST);
        bench.interrupt.take();
        bench
    }

    /// A device in the place of this one, before it was restored.
    pub(crate) fn next_console(&self) -> Arc<Console> {
        let console = Console::new(
            self.gate.clone(),
            self.sink.clone(),
            self.interrupt.clone(),
            self.doorbell.clone(),
        );
        console.from_guest.lock().unwrap().cadence.window = Duration::MAX;
        console
    }

    /// The guest goes on with these.
    pub(crate) fn replace(&mut self, console: Arc<Console>, transport: Arc<MmioTransport>) {
        *self.gate.device.lock().unwrap() = Arc::downgrade(&console);
        self.driver.attach(transport.clone());
        self.console = console;
        self.transport = transport;
    }

    /// Saves the device and goes on with another one that is restored from the bytes. Rings of the
    /// doorbell and interrupts on their way are lost; those that the new one makes are not.
    pub(crate) fn restore(&mut self) {
        let held = self.console.hold();
        let saved = SavedConsole::decode(&held.save().encode()).unwrap();
        let registers = SavedTransport::decode(&self.transport.save().encode()).unwrap();
        drop(held);
        self.doorbell.take();
        self.interrupt.take();

        let console = self.next_console();
        let (transport, activation) = MmioTransport::restore(
            &registers,
            self.driver.mem().clone(),
            console.clone(),
            self.interrupt.clone(),
        )
        .unwrap();
        let held = console.restore(&saved, activation).unwrap();
        assert_eq!(held.save(), saved, "restoring it changed it");
        self.replace(console, Arc::new(transport));
        assert_eq!((self.doorbell.take(), self.interrupt.take()), (0, 0));
    }

    /// Sends a control message; it must be used when the kick returns.
    pub(crate) fn say(&mut self, port: u32, event: u16, value: u16) {
        let message = ControlMessage { port, event, value };
        self.driver.send(CONTROL, &message.to_bytes());
        assert!(
            self.driver.take_used(CONTROL).is_some(),
            "the guest would spin for ever"
        );
    }

    /// What the host has said by control messages since the last call.
    pub(crate) fn heard(&mut self) -> Vec<(ControlMessage, String)> {
        self.driver
            .take_all_used(CONTROL_TO_GUEST)
            .into_iter()
            .map(|used| {
                let (fixed, name) = used.bytes.split_at(8);
                (
                    ControlMessage::from_bytes(fixed.try_into().unwrap()),
                    String::from_utf8(name.to_vec()).unwrap(),
                )
            })
            .collect()
    }

    /// Lets the event loop serve the device until nothing is left, as it would after a ring.
    pub(crate) fn run_loop(&self) {
        for _ in 0..1000 {
            if self.console.drain_from_guest(Budget::TURN, Duration::ZERO) == Drained::Everything {
                return;
            }
        }
        panic!("the loop never comes to rest");
    }

    /// Serves port 1 until the ring is empty, whoever has it.
    pub(crate) fn settle(&mut self) {
        self.driver.kick(FROM_GUEST);
        if self.doorbell.take() > 0 {
            self.run_loop();
        }
    }

    /// Adds one chain of these frames and has it served.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.driver.add(FROM_GUEST, &[mock::Piece::Read(bytes)]);
        self.settle();
    }

    /// The bytes of all buffers that came back on port 1, in order.
    pub(crate) fn received(&mut self) -> Vec<u8> {
        let used = self.driver.take_all_used(TO_GUEST);
        used.into_iter().flat_map(|used| used.bytes).collect()
    }

    pub(crate) fn queue_frame(&self, exec: u8, body: &[u8]) {
        self.gate.diary().to_guest.push_back(Outgoing {
            head: header(exec, body.len()),
            body: Bytes::copy_from_slice(body),
            can_wait: false,
        });
    }

    /// A frame that can wait.
    pub(crate) fn queue_unhurried(&self, exec: u8, body: &[u8]) {
        self.queue_frame(exec, body);
        if let Some(frame) = self.gate.diary().to_guest.back_mut() {
            frame.can_wait = true;
        }
    }

    pub(crate) fn open(&mut self) {
        self.say(1, event::PORT_OPEN, 1);
    }

    pub(crate) fn close(&mut self) {
        self.say(1, event::PORT_OPEN, 0);
    }

    /// Guest memory full of the headers of empty frames, [`MAX_CHAIN_FRAMES`] of them.
    ///
    /// [`MAX_CHAIN_FRAMES`]: crate::queues::MAX_CHAIN_FRAMES
    pub(crate) fn empty_frames(&self) -> GuestAddress {
        let slot = self.driver.slot(FROM_GUEST, 127);
        let frames = header(1, 0).repeat(MAX_CHAIN_FRAMES);
        self.driver.mem().write_slice(&frames, slot).unwrap();
        slot
    }

    pub(crate) fn channel(&self) -> &'static str {
        self.console.inspect().agent.channel
    }
}

pub(crate) fn delivered(exec: u8, payload: &[u8]) -> Event {
    Event::Delivered(exec, payload.to_vec())
}
