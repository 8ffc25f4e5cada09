//! A guest or a relay that sends any frames, and an application that does anything, against the
//! host's end.
#![no_main]

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use forebay_exec_proto::frame::ToGuest;
use forebay_exec_proto::host::{self, Config, Start, Stdin};
use forebay_exec_proto::pair::{argv, now, set_now};
use forebay_exec_proto::{
    CAPABILITIES, ExecId, FRAME_MAX, HEADER_LEN, Ready, Renewal, Secret, Stream, guest,
};
use forebay_fuzz::{KINDS_FROM_GUEST, check_host, deliver, frame, limits};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // An input that ends within a step is shorter by that one.
    let _ = run(&mut Unstructured::new(data));
});

struct Application {
    host: host::Conn,
    /// The host's end faces a relay, so that it may ask for looks.
    relayed: bool,
    /// Executions that it has not let go of.
    handles: Vec<ExecId>,
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    set_now(Duration::ZERO);
    let config = Config {
        limits: limits(u)?,
        clock: now,
        ..Config::default()
    };
    let relayed = u.arbitrary()?;
    let mut app = Application {
        host: if relayed {
            host::Conn::facing_relay(config)
        } else {
            host::Conn::new(config)
        },
        relayed,
        handles: Vec::new(),
    };
    app.open();
    while !u.is_empty() {
        app.step(u)?;
        while app.host.poll_notice().is_some() {}
        drop(app.host.take_dropped());
        check_host(&app.host, app.handles.len() + app.owing());
    }
    app.host.handle_closed("the end");
    assert_eq!(
        app.host.next_deadline(),
        None,
        "a deadline of what has ended"
    );
    for id in app.handles {
        app.host.forget(id);
    }
    assert_eq!(app.host.active(), 0, "a slot is lost");
    assert!(app.host.inspect().executions.is_empty());
    Ok(())
}

impl Application {
    /// Opens the port for an agent that is honest until it is ready.
    fn open(&mut self) {
        let mut agent = if self.relayed {
            guest::Conn::for_relay()
        } else {
            guest::Conn::new()
        };
        self.host.handle_opened();
        while !self.host.is_ready() {
            let bootstrap = self.host.poll_transmit().expect("the bootstrap is due");
            agent.handle_bytes(&bootstrap.head).expect("honest");
            agent.handle_bytes(&bootstrap.body).expect("honest");
            agent.ready(Ready {
                capabilities: Some(CAPABILITIES.map(str::to_owned).into()),
                ..Ready::default()
            });
            let mut buf = vec![0; FRAME_MAX];
            if let guest::Transmit::Frame(n) = agent.poll_transmit(&mut buf) {
                assert_eq!(deliver(&mut self.host, &buf[..n]), None);
            }
        }
    }

    /// Executions that are over but for their last acknowledgement, which a relay is owed. It leaves
    /// before any request, so there are never more of them than could be started.
    fn owing(&self) -> usize {
        if !self.relayed {
            return 0;
        }
        let seen = self.host.inspect().executions;
        let owing = seen
            .iter()
            .filter(|exec| !exec.admitted && exec.output_released > exec.output_acked)
            .filter(|exec| !self.handles.contains(&exec.id))
            .count();
        assert!(owing <= self.host.limits().max_executions as usize);
        owing
    }

    /// A snapshot and its restore, where there can be one.
    fn restore(&mut self) {
        if let Ok(saved) = self.host.save() {
            let read = host::SavedConn::decode(&saved.encode()).expect("as it was written");
            let options = host::RestoreOptions {
                clock: now,
                ..host::RestoreOptions::default()
            };
            self.host = host::Conn::restore(read, options).expect("as it was saved");
            assert_eq!(self.host.save(), Ok(saved), "nothing changed on the way");
        }
    }

    fn pick(&self, u: &mut Unstructured<'_>) -> Result<ExecId> {
        u.choose(&self.handles).copied()
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let step = u.int_in_range(0..=20u8)?;
        if self.handles.is_empty() && (6..=14).contains(&step) {
            return Ok(());
        }
        let stream = if u.arbitrary()? {
            Stream::Stderr
        } else {
            Stream::Stdout
        };
        match step {
            0..=3 => {
                let mut chain = Vec::new();
                for _ in 0..u.int_in_range(1..=3u8)? {
                    chain.extend(frame(u, &KINDS_FROM_GUEST)?);
                }
                if let Some(reason) = deliver(&mut self.host, &chain) {
                    self.host.handle_closed(reason);
                }
            }
            4 => self.start(u)?,
            5 => self.send(u.int_in_range(1..=8)?),
            6 => {
                let data = vec![7; u.int_in_range(0..=1000)?];
                let _ = self.host.write_stdin(self.pick(u)?, Bytes::from(data));
            }
            7 => {
                let _ = self.host.close_stdin(self.pick(u)?);
            }
            8 => self.host.cancel_write(self.pick(u)?),
            9 => {
                let _ = self.host.signal(self.pick(u)?, 15);
                let _ = self.host.ping(1);
            }
            10 => {
                let _ = self.host.kill(self.pick(u)?);
            }
            11 => self.host.discard(self.pick(u)?, stream),
            12 => {
                let id = self.pick(u)?;
                self.host.forget(id);
                self.handles.retain(|handle| *handle != id);
            }
            13 => {
                let mut buf = vec![0; u.int_in_range(0..=600)?];
                let _ = self.host.read(self.pick(u)?, stream, &mut buf);
            }
            14 => {
                let _ = self.host.next_event(self.pick(u)?);
            }
            15 => self.restore(),
            16 => {
                let _ = self.host.ask_inspection(u.int_in_range(0..=20)?);
                let _ = self.host.take_inspection();
            }
            17 => {
                set_now(now() + Duration::from_millis(u.int_in_range(0..=8000)?));
                self.host.expire(now());
                assert!(self.host.next_deadline().is_none_or(|next| next > now()));
            }
            18 => {
                let _ = self.host.quiesce(Duration::from_millis(5));
                let _ = self.host.thaw();
            }
            19 => {
                let renewal = Renewal {
                    entropy: Secret([1; 32]),
                    generation: [2; 16],
                    hostname: u.arbitrary::<bool>()?.then(|| "copy".to_owned()),
                };
                let _ = self.host.quiesce(Duration::from_millis(5));
                let _ = self.host.renew(renewal);
            }
            _ => self.open(),
        }
        Ok(())
    }

    fn start(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        // Each execution that was ever started has its handle until it is forgotten; enough is
        // enough.
        if self.handles.len() >= 16 {
            return Ok(());
        }
        let stdin = match u.int_in_range(0..=2u8)? {
            0 => Stdin::Null,
            1 => Stdin::Pipe,
            _ => Stdin::Bytes(Bytes::from_static(&[9; 500])),
        };
        let word = "w".repeat(u.int_in_range(0..=20_000)?);
        let mut start = Start::new(argv(&["cmd", &word]), stdin).expect("small enough");
        if u.arbitrary()? {
            let limit = Duration::from_millis(u.int_in_range(1..=10_000)?);
            start = start.with_timeout(limit).expect("neither nothing nor ages");
        }
        let admitted = self.host.active() < self.host.limits().max_executions;
        match self.host.start(start) {
            Ok(id) => {
                assert!(admitted, "admitted beyond the cap");
                self.handles.push(id);
            }
            Err(_) => assert!(!admitted || !self.host.is_ready()),
        }
        Ok(())
    }

    fn send(&mut self, frames: usize) {
        for _ in 0..frames {
            let Some(frame) = self.host.poll_transmit() else {
                return;
            };
            assert!(frame.body.len() + HEADER_LEN <= FRAME_MAX);
            if frame.head[4] == ToGuest::Stdin.to_wire() {
                let chunk = self.host.limits().stdin_chunk_size as usize;
                assert!((1..=chunk).contains(&frame.body.len()));
            }
        }
    }
}
