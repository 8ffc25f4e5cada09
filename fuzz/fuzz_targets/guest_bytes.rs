//! A host whose bytes are spoilt at will, and commands that do anything, against the guest's end.
//!
//! The bytes come from an honest host's end, with frames of a villain's between and single bytes
//! changed. As long as nothing was spoilt neither end may find a fault with the other.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use forebay_exec_proto::frame::{FromGuest, ToGuest};
use forebay_exec_proto::guest::{self, Event, Transmit};
use forebay_exec_proto::host::{self, Config, Start, Stdin};
use forebay_exec_proto::pair::{argv, exit_code};
use forebay_exec_proto::{
    CHUNK_CHARGE, ExecId, FRAME_MAX, Failure, FailureKind, HEADER_LEN, Header, Ready, StdinError,
    Stream,
};
use forebay_fuzz::{check_host, deliver, frame, limits};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // An input that ends within a step is shorter by that one.
    let _ = run(&mut Unstructured::new(data));
});

/// Kinds that a host sends.
const KINDS: [u8; 9] = [0x01, 0x02, 0x03, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15];

struct World {
    host: host::Conn,
    guest: guest::Conn,
    /// Something was spoilt: each end may now find fault with the other.
    spoilt: bool,
    /// The guest has found a fault, so that the connection is over.
    over: bool,
    /// Executions that the guest was asked to start and has not reported the end of.
    running: Vec<ExecId>,
    started: BTreeSet<ExecId>,
    /// Every execution that the application knows.
    handles: Vec<ExecId>,
    /// Bytes that the guest has taken of a frame that is not whole yet.
    partial: Vec<u8>,
    taken: usize,
    events: usize,
    /// Output units that the guest has sent, and those that were acknowledged.
    sent: BTreeMap<u64, u64>,
    acked: BTreeMap<u64, u64>,
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let config = Config {
        limits: limits(u)?,
        ..Config::default()
    };
    let relay = u.arbitrary()?;
    let mut world = World {
        host: if relay {
            host::Conn::facing_relay(config)
        } else {
            host::Conn::new(config)
        },
        guest: if relay {
            guest::Conn::for_relay()
        } else {
            guest::Conn::new()
        },
        spoilt: false,
        over: false,
        running: Vec::new(),
        started: BTreeSet::new(),
        handles: Vec::new(),
        partial: Vec::new(),
        taken: 0,
        events: 0,
        sent: BTreeMap::new(),
        acked: BTreeMap::new(),
    };
    world.host.handle_opened();
    while !u.is_empty() && !world.over {
        world.step(u)?;
        world.check();
    }
    Ok(())
}

impl World {
    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let stream = if u.arbitrary()? {
            Stream::Stderr
        } else {
            Stream::Stdout
        };
        match u.int_in_range(0..=7u8)? {
            0 => self.command(u)?,
            1 | 2 => {
                let mut bytes = Vec::new();
                for _ in 0..u.int_in_range(1..=4u8)? {
                    if let Some(frame) = self.host.poll_transmit() {
                        bytes.extend(frame.head);
                        bytes.extend(frame.body);
                    }
                }
                if u.ratio(1, 8)? && !bytes.is_empty() {
                    let at = u.choose_index(bytes.len())?;
                    let by: u8 = u.arbitrary()?;
                    bytes[at] ^= by;
                    self.spoilt |= by != 0;
                }
                self.receive(u, &bytes)?;
            }
            3 if u.ratio(1, 2)? => {
                self.spoilt = true;
                let frame = frame(u, &KINDS)?;
                self.receive(u, &frame)?;
            }
            3 => {}
            4 | 5 => self.happen(u, stream)?,
            _ => self.send(u)?,
        }
        while self.host.poll_notice().is_some() {}
        drop(self.host.take_dropped());
        Ok(())
    }

    /// The application does something.
    fn command(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let step = u.int_in_range(0..=7u8)?;
        if step <= 1 {
            let piped = u.arbitrary()?;
            let word = "w".repeat(u.int_in_range(0..=20_000)?);
            let stdin = if piped { Stdin::Pipe } else { Stdin::Null };
            let start = Start::new(argv(&["cmd", &word]), stdin).expect("small enough");
            if self.handles.len() < 16
                && let Ok(id) = self.host.start(start)
            {
                self.handles.push(id);
            }
            return Ok(());
        }
        if self.handles.is_empty() {
            return Ok(());
        }
        let id = *u.choose(&self.handles)?;
        match step {
            2 => {
                let data = vec![7; u.int_in_range(1..=1000)?];
                let _ = self.host.write_stdin(id, Bytes::from(data));
            }
            3 => {
                let _ = self.host.close_stdin(id);
            }
            4 => {
                let _ = self.host.kill(id);
                let _ = self.host.signal(id, 1);
            }
            5 => {
                let _ = self.host.ping(3);
            }
            6 => while self.host.next_event(id).is_some() {},
            _ => {
                self.host.forget(id);
                self.handles.retain(|handle| *handle != id);
            }
        }
        Ok(())
    }

    /// The guest takes these bytes in pieces.
    fn receive(&mut self, u: &mut Unstructured<'_>, bytes: &[u8]) -> Result<()> {
        let cut = u.int_in_range(1..=5000)?;
        for piece in bytes.chunks(cut) {
            self.taken += piece.len();
            if let Err(fault) = self.guest.handle_bytes(piece) {
                assert!(self.spoilt, "an honest host is blamed: {fault}");
                self.over = true;
                return Ok(());
            }
            self.partial.extend(piece);
            self.note_acks();
            while let Some(event) = self.guest.poll_event() {
                self.events += 1;
                match event {
                    Event::Bootstrap(_) => self.guest.ready(Ready::default()),
                    Event::Start { id, .. } => self.running.push(id),
                    _ => {}
                }
            }
            while let Some((_, total)) = self.guest.poll_acked() {
                assert!(total > 0);
            }
        }
        Ok(())
    }

    /// Reads the acknowledgements among the whole frames that the guest has taken.
    fn note_acks(&mut self) {
        while let Some((head, rest)) = self.partial.split_first_chunk::<HEADER_LEN>() {
            let header = Header::decode(head);
            let Some((body, _)) = rest.split_at_checked(header.len as usize) else {
                return;
            };
            if header.kind == ToGuest::OutputAck.to_wire()
                && let Ok(total) = body.try_into()
            {
                // It may name an execution of which nothing is known any more.
                let total = u64::from_le_bytes(total);
                let sent = self.sent.get(&header.exec).copied().unwrap_or(0);
                self.acked.insert(header.exec, total.min(sent));
            }
            let whole = HEADER_LEN + body.len();
            self.partial.drain(..whole);
        }
    }

    /// Something happens to a command. The agent reports each thing once, as it must.
    fn happen(&mut self, u: &mut Unstructured<'_>, stream: Stream) -> Result<()> {
        if self.running.is_empty() {
            return Ok(());
        }
        let at = u.choose_index(self.running.len())?;
        let id = self.running[at];
        let step = u.int_in_range(0..=8u8)?;
        if !self.started.contains(&id) {
            if step == 0 {
                self.running.swap_remove(at);
                let failure = Failure {
                    kind: FailureKind::NotFound,
                    errno: Some(2),
                    stage: "execve".to_owned(),
                    message: "x".repeat(u.int_in_range(0..=6000)?),
                };
                self.guest.failed(id, failure);
            } else {
                self.started.insert(id);
                self.guest.started(id, 7);
            }
            return Ok(());
        }
        match step {
            0 | 1 => self.guest.stream_ready(id, stream, true),
            2 => self.guest.stream_ready(id, stream, false),
            3 => self.guest.stream_ended(id, stream),
            4..=6 => {
                let pending = self.guest.stdin_pending(id);
                let pending = pending.map_or(0, |(a, b)| a.len() + b.len());
                let n = u.int_in_range(0..=pending)?;
                self.guest.stdin_written(id, n);
            }
            7 => self.guest.stdin_error(
                id,
                StdinError {
                    errno: 32,
                    name: "EPIPE".to_owned(),
                    message: "broken pipe".to_owned(),
                },
            ),
            _ => {
                self.running.swap_remove(at);
                for stream in Stream::ALL {
                    self.guest.stream_ended(id, stream);
                }
                self.guest.exited(id, exit_code(0));
            }
        }
        Ok(())
    }

    /// The guest fills a write; the host takes it as one chain.
    fn send(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let mut buf = vec![0; u.int_in_range(0..=FRAME_MAX)?];
        let mut used = 0;
        loop {
            match self.guest.poll_transmit(&mut buf[used..]) {
                Transmit::Frame(n) => used += n,
                Transmit::Read { id, stream, max } => {
                    assert!(max > 0, "asked to read nothing");
                    let n = u.int_in_range(0..=max)?;
                    if n == 0 {
                        self.guest.stream_ready(id, stream, false);
                    } else {
                        let len = self.guest.output_read(id, stream, n, &mut buf[used..]);
                        assert_eq!(len, HEADER_LEN + n, "a read within its bounds is framed");
                        used += len;
                    }
                }
                Transmit::Full | Transmit::Idle => break,
            }
        }
        self.count_output(&buf[..used]);
        if let Some(reason) = deliver(&mut self.host, &buf[..used]) {
            assert!(self.spoilt, "an honest guest is blamed: {reason}");
            self.over = true;
        }
        Ok(())
    }

    /// Adds up what the guest has sent of each execution's output.
    fn count_output(&mut self, mut chain: &[u8]) {
        while let Some((head, rest)) = chain.split_first_chunk::<HEADER_LEN>() {
            let header = Header::decode(head);
            let kind = FromGuest::from_wire(header.kind).expect("a kind that it knows");
            if matches!(kind, FromGuest::Stdout | FromGuest::Stderr) {
                *self.sent.entry(header.exec).or_default() +=
                    u64::from(header.len) + u64::from(CHUNK_CHARGE);
            }
            chain = rest.get(header.len as usize..).expect("whole frames");
        }
    }

    fn check(&self) {
        let limits = self.guest.limits();
        assert!(self.guest.executions() <= limits.max_executions as usize);
        assert!(
            self.events * HEADER_LEN <= self.taken,
            "events from nothing"
        );
        for id in &self.running {
            if let Some((a, b)) = self.guest.stdin_pending(*id) {
                assert!(a.len() + b.len() <= limits.input_limit as usize);
            }
        }
        for (id, sent) in &self.sent {
            let acked = self.acked.get(id).copied().unwrap_or(0);
            assert!(
                sent - acked <= u64::from(limits.output_limit),
                "output beyond its allowance"
            );
        }
        check_host(&self.host, self.host.inspect().executions.len());
        if !self.spoilt {
            assert_eq!(self.host.inspect().faults, 0, "honest ends never fault");
        }
    }
}
