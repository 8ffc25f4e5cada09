//! Clients served turn by turn: what a client costs, exactly.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_exec_proto::frame::ToGuest;
use forebay_exec_proto::host::{Config, Conn, Start, Stdin, Terminal, Verdict};
use forebay_exec_proto::{
    ByteVec, CONTROL_QUEUE, ExecId, FailureKind, HEADER_LEN, Header, REQUEST_MAX, Request,
    TerminalSize,
};

use super::villain::frame;
use crate::Limits;
use crate::attach::by_hand::ClientsByHand;
use crate::attach::peer::REQUESTS_HELD;
use crate::attach::preamble;
use crate::fake_guest::FakeVm;

/// A VM and its server, of which nothing moves by itself.
pub(super) struct Still {
    pub(super) vm: Arc<FakeVm>,
    pub(super) server: ClientsByHand,
}

impl Still {
    pub(super) fn new() -> Self {
        let vm = FakeVm::with_limits(Limits::default());
        let server = ClientsByHand::new(Arc::clone(&vm.hub)).unwrap();
        Self { vm, server }
    }

    /// Until neither guest nor server has anything to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !(self.server.turn().unwrap() | self.vm.round()) {
                return;
            }
        }
        panic!("it never comes to rest");
    }
}

/// A client without a thread.
pub(super) struct Slow {
    pub(super) stream: UnixStream,
    conn: Conn,
    /// Bytes that the socket did not take.
    unsent: Vec<u8>,
    received: Vec<u8>,
}

impl Slow {
    /// Past the handshake.
    pub(super) fn attach(still: &mut Still) -> Self {
        let mut stream = still.server.attach().unwrap();
        still.settle();
        stream.read_exact(&mut [0; preamble::LEN]).unwrap();
        let mut conn = Conn::facing_relay(Config::default());
        conn.handle_opened();
        let mut slow = Self {
            stream,
            conn,
            unsent: Vec::new(),
            received: Vec::new(),
        };
        slow.settle(still);
        assert!(slow.conn.is_ready());
        slow
    }

    fn start(&mut self, words: &[&[u8]]) -> ExecId {
        let argv = words.iter().map(|word| ByteVec::from(word.to_vec()));
        let request = Request {
            argv: argv.collect(),
            // So that it may be given sizes.
            terminal: Some(TerminalSize { rows: 24, cols: 80 }),
            ..Request::default()
        };
        let start = Start::new(request, Stdin::Null).unwrap();
        self.conn.start(start).unwrap()
    }

    /// Sends as far as the socket takes it, and receives what there is.
    fn pump(&mut self) -> bool {
        let mut moved = false;
        loop {
            if self.unsent.is_empty() {
                let Some(frame) = self.conn.poll_transmit() else {
                    break;
                };
                self.unsent.extend_from_slice(&frame.head);
                self.unsent.extend_from_slice(&frame.body);
            }
            match self.stream.write(&self.unsent) {
                Ok(n) => {
                    self.unsent.drain(..n);
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        let mut buf = [0; 4096];
        loop {
            match self.stream.read(&mut buf) {
                Ok(0) => panic!("the server left"),
                Ok(n) => self.received.extend_from_slice(&buf[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
            moved = true;
        }
        while let Some((head, rest)) = self.received.split_first_chunk::<HEADER_LEN>() {
            let len = Header::decode(head).len as usize;
            let Some(payload) = rest.get(..len).map(<[u8]>::to_vec) else {
                break;
            };
            match self.conn.judge(head, len) {
                Verdict::Accept(_) => self.conn.deliver(payload).unwrap(),
                other => panic!("the server broke the protocol: {other:?}"),
            }
            self.received.drain(..HEADER_LEN + len);
        }
        moved
    }

    /// Until nothing moves any more.
    pub(super) fn settle(&mut self, still: &mut Still) {
        loop {
            still.settle();
            if !self.pump() {
                return;
            }
        }
    }
}

#[test]
fn requests_beyond_what_may_wait_for_the_guest_are_refused_and_say_so() {
    const REQUESTS: usize = 40;
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    let mut other = Slow::attach(&mut still);
    still.vm.hold.store(true, Ordering::Relaxed);
    let half = vec![b'x'; REQUESTS_HELD / 2 - 1000];
    let all: Vec<_> = (0..REQUESTS)
        .map(|_| client.start(&[b"write", b"1", b"0", b"0", &half]))
        .collect();
    client.settle(&mut still);
    // Two fill the bound.
    assert_eq!(still.vm.hub.active(), 2);
    let (taken, refused) = all.split_at(2);
    for id in refused {
        let Some(Terminal::Failed(failure)) = client.conn.terminal(*id) else {
            panic!("{id} was not refused");
        };
        assert_eq!(failure.kind, FailureKind::AtCapacity);
        let told = "the guest does not take requests";
        assert!(failure.message.starts_with(told), "{failure:?}");
    }
    // What small ones need is left, and another client has its own.
    let behind = client.start(&[b"echo", b"hello"]);
    client.settle(&mut still);
    let small = other.start(&[b"echo", b"hello"]);
    other.settle(&mut still);
    assert_eq!(still.vm.hub.active(), 4);
    still.vm.hold.store(false, Ordering::Relaxed);
    client.settle(&mut still);
    other.settle(&mut still);
    for (client, id) in taken
        .iter()
        .chain([&behind])
        .map(|id| (&client, id))
        .chain([(&other, &small)])
    {
        let end = client.conn.terminal(*id);
        assert!(matches!(end, Some(Terminal::Exited(_))), "{id}: {end:?}");
    }
    // Those that have left make room.
    let again = client.start(&[b"write", b"1", b"0", b"0", &half]);
    client.settle(&mut still);
    let end = client.conn.terminal(again);
    assert!(matches!(end, Some(Terminal::Exited(_))), "{end:?}");
}

#[test]
fn a_request_of_any_size_may_wait_for_the_guest() {
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    still.vm.hold.store(true, Ordering::Relaxed);
    let most = vec![b'x'; REQUEST_MAX - 1000];
    let id = client.start(&[b"echo", &most]);
    client.settle(&mut still);
    assert_eq!(still.vm.hub.active(), 1);
    still.vm.hold.store(false, Ordering::Relaxed);
    client.settle(&mut still);
    assert!(client.conn.pid(id).is_some());
}

#[test]
fn a_client_is_read_on_whatever_of_its_requests_the_guest_has_not_read() {
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    let written = client.start(&[b"write", b"5000", b"0", b"0"]);
    let stall = client.start(&[b"stall"]);
    client.settle(&mut still);
    assert!(client.conn.terminal(written).is_some() && client.conn.pid(stall).is_some());
    still.vm.hold.store(true, Ordering::Relaxed);
    let big = vec![b'x'; REQUESTS_HELD - 1000];
    for _ in 0..3 {
        client.start(&[b"stall", &big]);
    }
    client.settle(&mut still);
    // What comes behind them in the socket: acknowledgements, and a kill of what waits.
    while client.conn.next_event(written).is_some() {}
    let waits = ExecId::new(stall.get() + 1).unwrap();
    client.conn.kill(waits).unwrap();
    client.settle(&mut still);
    let view = still.vm.hub.inspect();
    assert!(
        view.executions
            .iter()
            .all(|exec| exec.output_forwarded == 0),
        "an acknowledgement was not read: {view:?}"
    );
    assert!(client.conn.terminal(waits).is_some(), "a kill was not read");
    still.vm.hold.store(false, Ordering::Relaxed);
    client.settle(&mut still);
}

#[test]
fn signals_without_room_stay_with_their_client_and_all_arrive() {
    // More than a socket takes by itself.
    const MOST: usize = 4 << 20;
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    let id = client.start(&[b"stall"]);
    client.settle(&mut still);
    still.vm.hold.store(true, Ordering::Relaxed);
    let signal = frame(ToGuest::Signal.to_wire(), id.get(), &10u32.to_le_bytes());
    let (mut taken, mut full) = (0, 0);
    while full < 2 {
        // What was cut off goes on.
        match client.stream.write(&signal[taken % signal.len()..]) {
            Ok(n) => (taken, full) = (taken + n, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                full += 1;
                still.settle();
            }
            Err(error) => panic!("{error}"),
        }
        assert!(taken < MOST, "it is read without end");
    }
    still.vm.hold.store(false, Ordering::Relaxed);
    client.settle(&mut still);
    let arrived = still.vm.command(id, |command| command.signals.len());
    assert_eq!(arrived, taken / signal.len());
}

#[test]
fn of_the_sizes_without_room_each_terminals_newest_arrives_and_the_client_is_read_on() {
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    let (one, two) = (client.start(&[b"stall"]), client.start(&[b"stall"]));
    client.settle(&mut still);
    still.vm.hold.store(true, Ordering::Relaxed);
    // As many as there is room for.
    for _ in 0..CONTROL_QUEUE {
        let signal = frame(ToGuest::Signal.to_wire(), one.get(), &10u32.to_le_bytes());
        client.stream.write_all(&signal).unwrap();
    }
    // More than the socket takes by itself.
    for rows in 1..=20_000u16 {
        for (id, cols) in [(one, 80u16), (two, 132)] {
            let [a, b] = rows.to_le_bytes();
            let [c, d] = cols.to_le_bytes();
            let resize = frame(ToGuest::Resize.to_wire(), id.get(), &[a, b, c, d]);
            client.stream.write_all(&resize).unwrap();
        }
        if rows % 100 == 0 {
            still.settle();
        }
    }
    still.vm.hold.store(false, Ordering::Relaxed);
    client.settle(&mut still);
    let sizes = |id| still.vm.command(id, |command| command.sizes.clone());
    assert_eq!(sizes(one), [(20_000, 80)]);
    assert_eq!(sizes(two), [(20_000, 132)]);
    let signals = still.vm.command(one, |command| command.signals.len());
    assert_eq!(signals, CONTROL_QUEUE);
    assert_eq!(still.server.attached(), 1);
}

#[test]
fn a_terminal_that_is_always_given_another_size_holds_up_no_other() {
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    let (one, two) = (client.start(&[b"stall"]), client.start(&[b"stall"]));
    client.settle(&mut still);
    still.vm.hold.store(true, Ordering::Relaxed);
    let resize =
        |id: ExecId, rows: u8| frame(ToGuest::Resize.to_wire(), id.get(), &[rows, 0, 80, 0]);
    client.stream.write_all(&resize(one, 1)).unwrap();
    still.settle();
    // All the room but that for one control.
    for _ in 0..CONTROL_QUEUE - 2 {
        let signal = frame(ToGuest::Signal.to_wire(), one.get(), &10u32.to_le_bytes());
        client.stream.write_all(&signal).unwrap();
    }
    still.settle();
    let both = [resize(one, 2), resize(two, 3)].concat();
    client.stream.write_all(&both).unwrap();
    still.settle();
    // What is in the VM's queue, and nothing that comes after it.
    still.vm.hold.store(false, Ordering::Relaxed);
    still.vm.round();
    let sizes = |still: &Still, id| still.vm.command(id, |command| command.sizes.clone());
    assert_eq!(sizes(&still, one), [(1, 80)]);
    assert_eq!(sizes(&still, two), [(3, 80)]);
    client.settle(&mut still);
    assert_eq!(sizes(&still, one), [(1, 80), (2, 80)]);
}

#[test]
fn a_size_for_a_command_without_a_terminal_goes_no_further() {
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    let request = Request {
        argv: vec![ByteVec::from(b"stall".to_vec())],
        ..Request::default()
    };
    let start = Start::new(request, Stdin::Null).unwrap();
    let id = client.conn.start(start).unwrap();
    client.settle(&mut still);
    let resize = frame(ToGuest::Resize.to_wire(), id.get(), &[24, 0, 80, 0]);
    client.stream.write_all(&resize).unwrap();
    client.settle(&mut still);
    assert!(still.vm.command(id, |command| command.sizes.is_empty()));
    assert_eq!(still.server.attached(), 1);
}

#[test]
fn small_requests_are_read_ahead_of_the_guest() {
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    still.vm.hold.store(true, Ordering::Relaxed);
    for _ in 0..128 {
        client.start(&[b"stall"]);
    }
    client.settle(&mut still);
    assert_eq!(still.vm.hub.active(), 128);
}

#[test]
fn a_flood_of_kills_takes_the_vms_lock_once() {
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    let id = client.start(&[b"stall"]);
    client.settle(&mut still);
    let kill = frame(ToGuest::Kill.to_wire(), id.get(), &[]);
    client.stream.write_all(&kill).unwrap();
    while still.server.turn().unwrap() {}
    let flood: Vec<u8> = kill.iter().copied().cycle().take(16 * 4000).collect();
    client.stream.write_all(&flood).unwrap();
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let hub = Arc::clone(&still.vm.hub);
        // Whoever takes the lock in here waits for ever.
        hub.step(|_| while still.server.turn().unwrap() {});
        done.send(still).unwrap();
    });
    let mut still = wait
        .recv_timeout(super::CEILING)
        .expect("deadlock: a kill that changes nothing took the lock");
    client.settle(&mut still);
    assert!(client.conn.terminal(id).is_some());
    assert_eq!(still.server.attached(), 1);
}

#[test]
fn clients_take_turns_however_much_one_sends() {
    let mut still = Still::new();
    let mut flooder = Slow::attach(&mut still);
    let mut other = Slow::attach(&mut still);
    let id = flooder.start(&[b"stall"]);
    flooder.settle(&mut still);
    let kills = frame(ToGuest::Kill.to_wire(), id.get(), &[]).repeat(4096);
    let fill = |stream: &mut UnixStream| {
        let mut filled = 0;
        while let Ok(n) = stream.write(&kills) {
            filled += n;
        }
        filled
    };
    let all = fill(&mut flooder.stream);
    other.start(&[b"stall"]);
    other.pump();
    still.server.turn().unwrap();
    assert_eq!(still.vm.hub.active(), 2, "the other had to wait");
    let taken = fill(&mut flooder.stream);
    assert!(taken < all, "the whole flood was taken in one turn");
    drop(flooder);
    other.settle(&mut still);
}

#[test]
fn a_request_beyond_the_cap_is_refused_with_both_numbers() {
    let mut still = Still::new();
    let mut client = Slow::attach(&mut still);
    let (vm, most) = (Arc::clone(&still.vm), Limits::default().max_executions);
    let taken: Vec<_> = (0..most)
        .map(|_| {
            let spawn = vm.client.exec("stall", [""; 0]);
            vm.run(spawn.spawn()).unwrap()
        })
        .collect();
    let refused = client.start(&[b"echo", &vec![b'x'; REQUEST_MAX - 1000]]);
    client.settle(&mut still);
    let end = format!("{:?}", client.conn.terminal(refused));
    assert!(end.contains(&format!("{most} of at most {most}")), "{end}");
    drop(taken);
}
