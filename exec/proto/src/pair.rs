//! Both ends of a connection joined in memory, for tests.
//!
//! The link keeps what a real one keeps: towards the guest a byte stream that is cut anywhere,
//! from the guest chains of whole frames judged and delivered one by one. Processes are played
//! by the test: a command has output to give and a mouth for stdin.
//!
//! Also in builds with the feature `test-support`, for fuzzing. What cannot be panics here: that
//! is how a test fails.
#![allow(
    missing_docs,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests only: a failed expectation is the test's result"
)]

extern crate std;

mod writes;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;

use bytes::Bytes;

use crate::guest;
use crate::host::{self, Notice, Verdict};
use crate::{
    ByteVec, ExecId, ExitStatus, Failure, FailureKind, HEADER_LEN, Limits, Ready, Request, Stream,
};

std::thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The clock of this thread's pairs.
pub fn now() -> Duration {
    NOW.get()
}

/// Their wall clock, which moves with it.
pub fn wall() -> Duration {
    Duration::new(1_800_000_000, 5).saturating_add(now())
}

/// Sets the clock; it moves by this alone.
pub fn set_now(now: Duration) {
    NOW.set(now);
}

/// A command inside the guest, played by the test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// Output that the command has written into its pipes and nobody has read.
    pub pipes: BTreeMap<Stream, VecDeque<u8>>,
    /// Everything that the command read from its stdin.
    pub eaten: Vec<u8>,
    pub stdin_eof: bool,
    pub kills: u32,
    pub signals: Vec<u32>,
    pub sizes: Vec<crate::TerminalSize>,
    pub exited: bool,
}

pub struct Pair {
    pub host: host::Conn,
    pub guest: guest::Conn,
    pub commands: BTreeMap<ExecId, Command>,
    /// Bytes on their way to the guest.
    pub to_guest: VecDeque<u8>,
    pub notices: Vec<Notice>,
    pub requests: BTreeMap<ExecId, Request>,
    /// Refuse the next start with this failure.
    pub refuse: Option<FailureKind>,
    /// The agent is freezing the commands; [`freeze`](Self::freeze) ends that.
    pub freezing: bool,
    pub frozen: bool,
    /// What the guest was told it is.
    pub renewed: Vec<crate::Renew>,
    /// Renewals fail for want of entropy.
    pub dull: bool,
    /// What a client asked of a relay, for the test to answer.
    pub asked: Vec<guest::Event>,
}

pub fn argv(words: &[&str]) -> Request {
    Request {
        argv: words
            .iter()
            .map(|w| ByteVec::from(w.as_bytes().to_vec()))
            .collect(),
        ..Request::default()
    }
}

impl Pair {
    /// Both ends after Ready.
    pub fn new(limits: Limits) -> Self {
        let mut pair = Self::closed(limits);
        pair.host.handle_opened();
        pair.settle();
        assert!(pair.host.is_ready());
        pair
    }

    /// Both ends before the port is opened.
    pub fn closed(limits: Limits) -> Self {
        Self {
            host: host::Conn::new(host::Config {
                limits,
                clock: now,
                wall,
                ..host::Config::default()
            }),
            guest: guest::Conn::new(),
            commands: BTreeMap::new(),
            to_guest: VecDeque::new(),
            notices: Vec::new(),
            requests: BTreeMap::new(),
            refuse: None,
            freezing: false,
            frozen: false,
            renewed: Vec::new(),
            dull: false,
            asked: Vec::new(),
        }
    }

    /// Both ends as a snapshot brings them back: the host's by way of the bytes of a state file,
    /// the guest's as it lies in guest memory. What is on its way to the guest is in the device's
    /// rings, and stays.
    pub fn restored(&self) -> Self {
        let saved = self.host.save().unwrap();
        let read = host::SavedConn::decode(&saved.encode()).unwrap();
        assert_eq!(read, saved, "the bytes say what was saved");
        let options = host::RestoreOptions {
            allow_legacy_guest: !self.host.inspect().bounded,
            clock: now,
            wall,
        };
        let mut host = host::Conn::restore(read, options).unwrap();
        assert_eq!(host.save().unwrap(), saved, "nothing changed on the way");
        assert_eq!(
            host.poll_notice(),
            Some(Notice::Ready(saved.ready().clone())),
            "the captured Ready is told"
        );
        assert_eq!(host.poll_notice(), None);
        Self {
            host,
            guest: self.guest.clone(),
            commands: self.commands.clone(),
            to_guest: self.to_guest.clone(),
            notices: Vec::new(),
            requests: self.requests.clone(),
            refuse: self.refuse,
            freezing: self.freezing,
            frozen: self.frozen,
            renewed: self.renewed.clone(),
            dull: self.dull,
            asked: self.asked.clone(),
        }
    }

    pub fn try_start(
        &mut self,
        words: &[&str],
        stdin: host::Stdin,
    ) -> Result<ExecId, host::StartError> {
        self.host.start(host::Start::new(argv(words), stdin)?)
    }

    /// The same, with this long to run.
    pub fn try_start_within(&mut self, limit: Duration) -> Result<ExecId, host::StartError> {
        let start = host::Start::new(argv(&["cmd"]), host::Stdin::Null)?;
        self.host.start(start.with_timeout(limit)?)
    }

    /// Lets time pass, after which the deadlines are looked at.
    pub fn pass(&mut self, time: Duration) {
        set_now(now() + time);
        self.host.expire(now());
        self.drain_notices();
    }

    pub fn start(&mut self, stdin: host::Stdin) -> ExecId {
        self.try_start(&["cmd"], stdin).unwrap()
    }

    /// Starts a command and runs the link until it has started.
    pub fn running(&mut self, stdin: host::Stdin) -> ExecId {
        let id = self.start(stdin);
        self.settle();
        assert!(self.commands.contains_key(&id));
        id
    }

    /// Pulls one frame from the host into the link.
    pub fn host_sends(&mut self) -> bool {
        match self.host.poll_transmit() {
            Some(frame) => {
                self.to_guest.extend(frame.head);
                self.to_guest.extend(frame.body.iter());
                true
            }
            None => false,
        }
    }

    /// Gives the guest at most `n` bytes of the link, then lets the agent act.
    pub fn guest_receives(&mut self, n: usize) -> bool {
        let n = n.min(self.to_guest.len());
        let bytes: Vec<u8> = self.to_guest.drain(..n).collect();
        self.guest.handle_bytes(&bytes).unwrap();
        while let Some(event) = self.guest.poll_event() {
            self.act(event);
        }
        n > 0
    }

    fn act(&mut self, event: guest::Event) {
        match event {
            guest::Event::Bootstrap(_) => self.guest.ready(Ready {
                capabilities: Some(crate::CAPABILITIES.map(Into::into).into()),
                ..Ready::default()
            }),
            guest::Event::Quiesce(_) => self.freezing = true,
            guest::Event::Renew(renew) => {
                self.freeze(Err("a renewal came first"));
                if self.dull && renew.renewal.is_some() {
                    self.guest.renewed(Err("no entropy".into()));
                } else {
                    self.frozen = false;
                    self.renewed.push(renew);
                    self.guest.renewed(Ok(()));
                }
            }
            guest::Event::Start { id, request } => {
                assert!(!self.freezing && !self.frozen, "it would stand still");
                if let Some(kind) = self.refuse.take() {
                    self.guest.failed(
                        id,
                        Failure {
                            kind,
                            errno: Some(2),
                            stage: "execve".into(),
                            message: "no such program".into(),
                        },
                    );
                    return;
                }
                let stdin_eof = request.stdin == crate::StdinMode::Null;
                self.requests.insert(id, request);
                self.commands.insert(
                    id,
                    Command {
                        stdin_eof,
                        ..Command::default()
                    },
                );
                self.guest.started(id, 100);
            }
            guest::Event::Adopt { .. } | guest::Event::Leave { .. } => self.asked.push(event),
            guest::Event::StdinData(_) | guest::Event::PowerOff { .. } => {}
            guest::Event::StdinEof(id) => {
                if let Some(command) = self.commands.get_mut(&id) {
                    command.stdin_eof = true;
                }
            }
            guest::Event::Signal { id, signal } => {
                if let Some(command) = self.commands.get_mut(&id) {
                    command.signals.push(signal);
                }
            }
            guest::Event::Resize { id, size } => {
                if let Some(command) = self.commands.get_mut(&id) {
                    command.sizes.push(size);
                }
            }
            guest::Event::Kill(id) => {
                if let Some(command) = self.commands.get_mut(&id) {
                    command.kills += 1;
                }
                self.exit(
                    id,
                    ExitStatus {
                        signal: Some(9),
                        ..ExitStatus::default()
                    },
                );
            }
        }
    }

    /// The agent has frozen the commands, or could not; if it was to.
    pub fn freeze(&mut self, outcome: Result<(), &str>) {
        if core::mem::take(&mut self.freezing) {
            self.frozen = outcome.is_ok();
            self.guest.quiesced(outcome.map_err(Into::into));
        }
    }

    /// The command writes into one of its pipes.
    pub fn produce(&mut self, id: ExecId, stream: Stream, bytes: &[u8]) {
        let Some(command) = self.commands.get_mut(&id) else {
            return;
        };
        if !command.exited && !bytes.is_empty() {
            command.pipes.entry(stream).or_default().extend(bytes);
            self.guest.stream_ready(id, stream, true);
        }
    }

    /// The command reads at most `n` bytes of its stdin.
    pub fn eat(&mut self, id: ExecId, n: usize) {
        let Some((a, b)) = self.guest.stdin_pending(id) else {
            return;
        };
        let bytes: Vec<u8> = a.iter().chain(b).copied().take(n).collect();
        if let Some(command) = self.commands.get_mut(&id) {
            self.guest.stdin_written(id, bytes.len());
            command.eaten.extend(bytes);
        }
    }

    /// The command ends; what its pipes hold is still delivered.
    pub fn exit(&mut self, id: ExecId, status: ExitStatus) {
        let Some(command) = self.commands.get_mut(&id) else {
            return;
        };
        if core::mem::replace(&mut command.exited, true) {
            return;
        }
        self.guest.exited(id, status);
        for stream in Stream::ALL {
            if command.pipes.get(&stream).is_none_or(VecDeque::is_empty) {
                self.guest.stream_ended(id, stream);
            }
        }
    }

    /// Judges and delivers one frame; gives the verdict.
    pub fn host_receives(&mut self, frame: &[u8], rest: usize) -> Verdict {
        let head: &[u8; HEADER_LEN] = frame.first_chunk().unwrap();
        let verdict = self.host.judge(head, rest);
        match verdict {
            Verdict::Accept(n) => {
                self.host
                    .deliver(frame[HEADER_LEN..HEADER_LEN + n].to_vec())
                    .unwrap();
            }
            Verdict::Discard(_) => {}
            Verdict::Close(rule) => self.host.handle_closed(rule),
        }
        self.drain_notices();
        verdict
    }

    pub fn drain_notices(&mut self) {
        while let Some(notice) = self.host.poll_notice() {
            self.notices.push(notice);
        }
    }

    /// Runs the link until neither end has anything to say.
    pub fn settle(&mut self) {
        // The smallest chunk and window move one byte in each turn.
        for _ in 0..1_000_000 {
            let sent = self.host_sends();
            let received = self.guest_receives(usize::MAX);
            let answered = self.guest_sends();
            self.drain_notices();
            if !(sent || received || answered) {
                return;
            }
        }
        panic!("the link does not come to rest");
    }

    /// Reads everything that one stream has now.
    pub fn read_all(&mut self, id: ExecId, stream: Stream) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(chunk) = self.host.take_chunk(id, stream) {
            out.extend_from_slice(&chunk);
        }
        out
    }

    pub fn view(&self, id: ExecId) -> host::ExecView {
        let view = self.host.inspect();
        view.executions.into_iter().find(|e| e.id == id).unwrap()
    }
}

/// A frame as a hostile guest would write it.
pub fn raw(kind: u8, exec: u64, payload: &[u8]) -> Vec<u8> {
    let header = crate::Header {
        len: u32::try_from(payload.len()).unwrap(),
        kind,
        flags: 0,
        reserved: 0,
        exec,
    };
    let mut frame = header.encode().to_vec();
    frame.extend_from_slice(payload);
    frame
}

pub fn exit_code(code: i32) -> ExitStatus {
    ExitStatus {
        code: Some(code),
        ..ExitStatus::default()
    }
}

pub fn bytes(n: usize) -> Bytes {
    Bytes::from((0..n).map(|i| (i % 251) as u8).collect::<Vec<_>>())
}
