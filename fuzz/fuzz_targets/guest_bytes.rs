//! A host whose bytes are spoilt at will, and commands that do anything, against the guest's end.
//!
//! The bytes come from an honest host's end, with frames of a villain's between and single bytes
//! changed. As long as nothing was spoilt neither end may find a fault with the other.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use forebay_exec_proto::frame::{FromGuest, ToGuest};
use forebay_exec_proto::guest::{self, Event};
use forebay_exec_proto::host::{self, Config, Start, Stdin};
use forebay_exec_proto::pair::argv;
use forebay_exec_proto::{CHUNK_CHARGE, ExecId, HEADER_LEN, Header, Ready};
use forebay_fuzz::{Commands, KINDS_TO_GUEST, check_host, deliver, frame, limits, perhaps_spoilt};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // An input that ends within a step is shorter by that one.
    let _ = run(&mut Unstructured::new(data));
});

struct World {
    host: host::Conn,
    guest: guest::Conn,
    /// Something was spoilt: each end may now find fault with the other.
    spoilt: bool,
    /// The guest has found a fault, so that the connection is over.
    over: bool,
    commands: Commands,
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
        commands: Commands::default(),
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
        match u.int_in_range(0..=7u8)? {
            0 => self.command(u)?,
            1 | 2 => {
                let (bytes, spoilt) = perhaps_spoilt(u, &mut self.host)?;
                self.spoilt |= spoilt;
                self.receive(u, &bytes)?;
            }
            3 if u.ratio(1, 2)? => {
                self.spoilt = true;
                let frame = frame(u, &KINDS_TO_GUEST)?;
                self.receive(u, &frame)?;
            }
            3 => {}
            4 | 5 => self.commands.happen(u, &mut self.guest)?,
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
                    Event::Start { id, .. } => self.commands.start(id),
                    Event::Quiesce(_) => self.guest.quiesced(Ok(())),
                    Event::Renew(_) => self.guest.renewed(Ok(())),
                    _ => {}
                }
            }
            while let Some((_, acked)) = self.guest.poll_acked() {
                assert!(self.spoilt || acked.total > 0);
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
                && let Some(total) = body.first_chunk()
            {
                // It may name an execution of which nothing is known any more, and say anything of it.
                let total = u64::from_le_bytes(*total);
                let sent = self.sent.get(&header.exec).copied().unwrap_or(0);
                let acked = self.acked.entry(header.exec).or_default();
                *acked = (*acked).max(total.min(sent));
            }
            let whole = HEADER_LEN + body.len();
            self.partial.drain(..whole);
        }
    }

    /// The guest fills a write; the host takes it as one chain.
    fn send(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let chain = self.commands.write(u, &mut self.guest)?;
        self.count_output(&chain);
        if let Some(reason) = deliver(&mut self.host, &chain) {
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
        for id in self.commands.running() {
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
