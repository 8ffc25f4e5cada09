//! Port 1 against a naive model, and under threads.

use std::sync::atomic::{AtomicBool, fence};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use bytes::Bytes;
use forebay_virtio::mock::{self, Bell, MockDriver, Piece};
use forebay_virtio::spec::F_EVENT_IDX;
use forebay_virtio::{Doorbell, MmioTransport};
use proptest::prelude::*;

use super::*;
use crate::spec::event;
use crate::test_bench::{
    Bench, Event, FEATURES, FROM_GUEST, TO_GUEST, TestGate, TestSink, frame, header,
};
use crate::{HEADER_LEN, Outgoing};

/// What a guest does next.
#[derive(Debug, Clone)]
enum Step {
    /// One chain of these frames (execution, payload length), cut into buffers of this size.
    Chain(Vec<(u8, usize)>, usize),
    /// Kick if asked to, and let the loop run if it was rung.
    Kick,
    /// The gate gets a frame of this length for the guest.
    Answer(usize),
    /// Post this many buffers of this size.
    Post(usize, u32),
    /// Close and open the port.
    Reconnect,
    /// Save the device and go on with a restored one, with every kick so far on its way.
    Restore,
}

fn step() -> impl Strategy<Value = Step> {
    let frames = prop::collection::vec((0_u8..4, 0_usize..3000), 1..5);
    prop_oneof![
        6 => (frames, 1_usize..5000).prop_map(|(frames, cut)| Step::Chain(frames, cut)),
        4 => Just(Step::Kick),
        3 => (0_usize..9000).prop_map(Step::Answer),
        3 => (1_usize..8, 1_u32..5000).prop_map(|(count, len)| Step::Post(count, len)),
        1 => Just(Step::Reconnect),
        1 => Just(Step::Restore),
    ]
}

/// What each execution may send within a connection.
const ALLOWANCE: usize = 6000;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn frames_in_are_frames_out_whatever_the_chunks(
        steps in prop::collection::vec(step(), 1..60),
        event_idx in prop::bool::weighted(0.7),
        restore_always in prop::bool::weighted(0.2),
    ) {
        let features = if event_idx { FEATURES } else { FEATURES & !F_EVENT_IDX };
        let mut bench = Bench::opened_with(features);
        let mut expected = vec![];
        let mut to_guest_expected = Vec::new();
        let mut to_guest_got = Vec::new();
        let mut left = [ALLOWANCE; 4];
        let mut failed = [false; 4];
        let mut fill = 0_u8;
        let renew = |bench: &Bench| {
            let mut diary = bench.gate.diary();
            diary.failed.clear();
            diary.allowance = (0..4).map(|exec| (exec, ALLOWANCE)).collect();
        };
        renew(&bench);
        for step in steps {
            if restore_always {
                bench.restore();
            }
            match step {
                Step::Chain(frames, cut) => {
                    let mut bytes = Vec::new();
                    for (exec, len) in &frames {
                        fill = fill.wrapping_add(1);
                        bytes.extend(frame(*exec, &vec![fill; *len]));
                    }
                    let pieces: Vec<_> = bytes.chunks(cut.max(bytes.len() / 32 + 1)).map(Piece::Read).collect();
                    if bench.driver.room(FROM_GUEST) < pieces.len() {
                        // A full ring: the driver waits until its chains are used.
                        bench.settle();
                        bench.driver.take_all_used(FROM_GUEST);
                    }
                    bench.driver.add(FROM_GUEST, &pieces);
                    // The model: judge in order, charge, discard for good once over.
                    let mut fill = fill.wrapping_sub(frames.len() as u8);
                    for (exec, len) in frames {
                        fill = fill.wrapping_add(1);
                        let at = usize::from(exec);
                        // The gate charges before it looks whether the execution failed.
                        let within = left[at] >= len;
                        if within {
                            left[at] -= len;
                        }
                        if within && !failed[at] {
                            expected.push(Event::Delivered(exec, vec![fill; len]));
                        } else {
                            failed[at] = true;
                            expected.push(Event::Discarded(exec, len));
                        }
                    }
                }
                Step::Kick => {
                    bench.settle();
                    prop_assert_eq!(bench.gate.take(), std::mem::take(&mut expected));
                    bench.driver.take_all_used(FROM_GUEST);
                }
                Step::Answer(len) => {
                    fill = fill.wrapping_add(1);
                    bench.queue_frame(fill, &vec![fill; len]);
                    to_guest_expected.extend(frame(fill, &vec![fill; len]));
                    bench.console.transmit();
                }
                Step::Post(count, len) => {
                    let count = count.min(bench.driver.room(TO_GUEST));
                    bench.driver.post(TO_GUEST, count, len);
                    to_guest_got.extend(bench.received());
                    // What came is the beginning of what was sent.
                    prop_assert!(to_guest_expected.starts_with(&to_guest_got));
                }
                Step::Reconnect => {
                    to_guest_got.extend(bench.received());
                    prop_assert!(to_guest_expected.starts_with(&to_guest_got));
                    bench.say(1, event::PORT_OPEN, 0);
                    renew(&bench);
                    bench.say(1, event::PORT_OPEN, 1);
                    expected.push(Event::Closed(Closed::ByGuest));
                    expected.push(Event::Opened);
                    to_guest_expected.clear();
                    to_guest_got.clear();
                    left = [ALLOWANCE; 4];
                    failed = [false; 4];
                }
                Step::Restore => {
                    for queue in 0..6 {
                        bench.driver.lose_kick(queue);
                    }
                    bench.restore();
                }
            }
        }
        bench.settle();
        prop_assert_eq!(bench.gate.take(), expected);
        // With buffers enough, everything arrives.
        while to_guest_got.len() < to_guest_expected.len() {
            bench.driver.post(TO_GUEST, 4, 4096);
            let more = bench.received();
            prop_assert!(!more.is_empty(), "the refill was not served");
            to_guest_got.extend(more);
        }
        prop_assert_eq!(to_guest_got, to_guest_expected);
    }

    #[test]
    fn no_bytes_a_guest_can_put_into_its_rings_panic_or_hang(
        noise in prop::collection::vec((0_u64..0x2_0000, any::<u64>()), 0..64),
        kicks in prop::collection::vec(0_u16..7, 0..32),
    ) {
        let mut bench = Bench::opened();
        bench.driver.post(TO_GUEST, 8, 4096);
        bench.queue_frame(1, &[1; 9000]);
        for queue in [1, 3, 5] {
            bench.driver.add(queue, &[Piece::Read(&frame(1, b"honest"))]);
        }
        let rings = bench.driver.descriptors(0).0;
        let mut noise = noise.into_iter();
        for queue in kicks {
            for (offset, value) in noise.by_ref().take(3) {
                let at = vm_memory::GuestAddress(rings + offset);
                vm_memory::Bytes::write_obj(bench.driver.mem(), value, at).unwrap();
            }
            bench.driver.force_kick(queue);
            bench.run_loop();
            bench.console.transmit();
        }
        // Whatever happened, a reset brings the device back.
        bench.driver.start(FEATURES);
        bench.say(1, event::PORT_OPEN, 1);
        bench.gate.take();
        bench.gate.diary().allowance.clear();
        bench.send(&frame(1, b"alive"));
        prop_assert_eq!(bench.gate.take(), [Event::Delivered(1, b"alive".to_vec())]);
    }
}

/// A doorbell with somebody behind it.
#[derive(Default)]
struct Loop {
    state: Mutex<LoopState>,
    rung: Condvar,
}

#[derive(Default)]
struct LoopState {
    rung: bool,
    stop: bool,
}

impl Doorbell for Loop {
    fn ring(&self) {
        self.state.lock().unwrap().rung = true;
        self.rung.notify_one();
    }
}

impl Loop {
    fn stop(&self) {
        self.state.lock().unwrap().stop = true;
        self.rung.notify_one();
    }

    /// Serves `console` at each ring, until stopped.
    fn run(&self, console: &Console, poll: Duration) {
        loop {
            let mut state = self.state.lock().unwrap();
            while !state.rung && !state.stop {
                state = self.rung.wait(state).unwrap();
            }
            if state.stop {
                return;
            }
            state.rung = false;
            drop(state);
            while console.drain_from_guest(Budget::TURN, poll) == Drained::More {}
        }
    }
}

/// The driver waits for an interrupt, unless it finds something once it has asked for one.
fn sleep(driver: &MockDriver, interrupt: &Bell) {
    interrupt.take();
    driver.want_interrupt(FROM_GUEST);
    driver.want_interrupt(TO_GUEST);
    fence(Ordering::SeqCst);
    if !driver.has_used(FROM_GUEST) && !driver.has_used(TO_GUEST) {
        while interrupt.take() == 0 {
            thread::yield_now();
        }
    }
}

/// The guest's driver in one thread, the loop in another, callers of `transmit` in more: every
/// frame arrives once, whole and in order, with kicks only where they were asked for. A guest with
/// nothing to send looks only when it was interrupted, as it had asked. A lost kick, ring or interrupt
/// shows as a hang. So does one that comes while somebody holds the device, under whose hands nothing
/// may move.
#[test]
fn no_kick_is_lost_between_the_vcpu_the_loop_and_the_callers() {
    const FRAMES: u32 = 20_000;
    const CALLERS: u8 = 3;
    const PER_CALLER: u32 = 2_000;

    for (poll, holding) in [
        (Duration::ZERO, false),
        (Duration::from_micros(20), false),
        (Duration::ZERO, true),
        (Duration::from_micros(20), true),
    ] {
        let mem = mock::memory();
        let gate = Arc::new(TestGate::default());
        let doorbell = Arc::new(Loop::default());
        let interrupt = Arc::new(Bell::default());
        let console = Console::new(
            gate.clone(),
            Arc::new(TestSink::default()),
            interrupt.clone(),
            doorbell.clone(),
        );
        let transport = MmioTransport::new(mem.clone(), console.clone(), interrupt.clone());
        let mut driver = MockDriver::new(mem, Arc::new(transport));
        driver.start(FEATURES);
        driver.post(TO_GUEST, 128, 64);
        driver.send(crate::test_bench::CONTROL, &[1, 0, 0, 0, 6, 0, 1, 0]);
        assert_eq!(gate.take(), [Event::Opened]);

        let used = [TO_GUEST, FROM_GUEST].map(|queue| driver.used(queue).0 + 2);
        let (held_mem, done) = (driver.mem().clone(), AtomicBool::new(false));
        let used_indexes = || {
            used.map(|at| -> u16 {
                let at = vm_memory::GuestAddress(at);
                vm_memory::Bytes::load(&held_mem, at, Ordering::Acquire).unwrap()
            })
        };
        let received = thread::scope(|scope| {
            scope.spawn(|| doorbell.run(&console, poll));
            if holding {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let held = console.hold();
                        let before = used_indexes();
                        thread::yield_now();
                        assert_eq!(used_indexes(), before, "the device moved");
                        drop(held);
                        thread::sleep(Duration::from_micros(100));
                    }
                });
            }
            for caller in 0..CALLERS {
                let (gate, console) = (&gate, &console);
                scope.spawn(move || {
                    for number in 0..PER_CALLER {
                        gate.diary().to_guest.push_back(Outgoing {
                            head: header(caller, 4),
                            body: Bytes::copy_from_slice(&number.to_le_bytes()),
                            can_wait: number % 3 > 0,
                        });
                        console.transmit();
                    }
                });
            }
            let mut sent = 0;
            let mut received = Vec::new();
            let total = usize::from(CALLERS) * PER_CALLER as usize * (HEADER_LEN + 4);
            let mut used = 0;
            while used < FRAMES || received.len() < total {
                if sent < FRAMES && driver.room(FROM_GUEST) > 0 {
                    driver.send(FROM_GUEST, &frame(9, &sent.to_le_bytes()));
                    sent += 1;
                } else if sent < FRAMES || received.len() < total {
                    // It waits for room, or for bytes.
                    sleep(&driver, &interrupt);
                }
                used += driver.take_all_used(FROM_GUEST).len() as u32;
                for buffer in driver.take_all_used(TO_GUEST) {
                    received.extend(buffer.bytes);
                    driver.post(TO_GUEST, 1, 64);
                }
            }
            done.store(true, Ordering::Relaxed);
            doorbell.stop();
            received
        });

        let events = gate.take();
        assert_eq!(events.len(), FRAMES as usize);
        for (number, event) in (0_u32..).zip(events) {
            assert_eq!(event, Event::Delivered(9, number.to_le_bytes().to_vec()));
        }
        let mut next = [0_u32; CALLERS as usize];
        for bytes in received.chunks(HEADER_LEN + 4) {
            let (head, body) = bytes.split_at(HEADER_LEN);
            let caller = head[4];
            let next = &mut next[usize::from(caller)];
            assert_eq!(body, next.to_le_bytes(), "of caller {caller}");
            *next += 1;
        }
        assert_eq!(next, [PER_CALLER; CALLERS as usize]);
    }
}
