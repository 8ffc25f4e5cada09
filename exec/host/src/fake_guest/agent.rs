//! The scripted commands, and the agent that runs them.

use std::collections::{BTreeMap, VecDeque};

use forebay_exec_proto::guest::{Conn, Event, Transmit};
use forebay_exec_proto::{
    ExecId, ExitStatus, FRAME_MAX, Failure, FailureKind, HEADER_LEN, QUIESCE, Ready, Renew,
    Request, StdinError, Stream,
};

use super::pattern;

/// A scripted command in the guest.
#[derive(Clone, Default)]
pub(crate) struct Command {
    /// Stdout and stderr that it still wants to write.
    pub(crate) out: [VecDeque<u8>; 2],
    /// Writes to stdout for ever.
    endless: bool,
    /// Copies stdin to stdout.
    cat: bool,
    /// Reads stdin; cleared, it leaves stdin alone.
    pub(crate) reads: bool,
    /// Stdin that it read.
    pub(crate) received: Vec<u8>,
    pub(crate) eof: bool,
    /// Signals that it got and survived.
    pub(crate) signals: Vec<u32>,
    /// Sizes that its terminal was given.
    pub(crate) sizes: Vec<(u16, u16)>,
    /// What asked for it.
    pub(crate) request: Request,
    /// Bytes that it wrote.
    pub(crate) written: u64,
    /// What it exits with when it has nothing more to do; `None`: runs until it is killed.
    pub(crate) exit: Option<i32>,
    /// The signal that ended it.
    killed: Option<u32>,
    /// Started was held back by the script.
    pub(crate) hold_start: bool,
    started: bool,
}

/// The agent: the guest's end of the connection and its commands.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) conn: Conn,
    pub(crate) commands: BTreeMap<ExecId, Command>,
    /// What it says when it is to freeze its commands; `None` is nothing.
    pub(crate) at_quiesce: Option<Result<(), String>>,
    /// What it says when it is to be another guest.
    pub(crate) at_renewal: Result<(), String>,
    /// What it was told it is.
    pub(crate) renewed: Vec<Renew>,
    /// Its commands stand still.
    pub(crate) frozen: bool,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            conn: Conn::new(),
            commands: BTreeMap::new(),
            at_quiesce: Some(Ok(())),
            at_renewal: Ok(()),
            renewed: Vec::new(),
            frozen: false,
        }
    }
}

impl Agent {
    /// Takes bytes from the host and does what they ask.
    pub(crate) fn handle(&mut self, bytes: &[u8]) {
        self.conn
            .handle_bytes(bytes)
            .expect("the host keeps the protocol");
        while let Some(event) = self.conn.poll_event() {
            match event {
                Event::Bootstrap(_) => {
                    self.frozen = false;
                    self.conn.ready(Ready {
                        version: "fake".to_owned(),
                        capabilities: Some(vec![QUIESCE.to_owned()]),
                        ..Ready::default()
                    });
                }
                Event::Start { id, request } => self.start(id, &request),
                Event::StdinData(_) => {}
                Event::StdinEof(id) => {
                    if let Some(command) = self.commands.get_mut(&id) {
                        command.eof = true;
                    }
                }
                Event::Resize { id, size } => {
                    if let Some(command) = self.commands.get_mut(&id) {
                        command.sizes.push((size.rows, size.cols));
                    }
                }
                Event::Signal { id, signal } => {
                    if let Some(command) = self.commands.get_mut(&id) {
                        match signal {
                            9 | 15 => command.killed = Some(signal),
                            _ => command.signals.push(signal),
                        }
                    }
                }
                Event::Kill(id) => {
                    if let Some(command) = self.commands.get_mut(&id) {
                        command.killed = Some(9);
                        command.hold_start = false;
                    }
                }
                Event::PowerOff { .. } => {}
                Event::Adopt { .. } | Event::Leave { .. } => panic!("an agent is asked for it"),
                Event::Quiesce(_) => {
                    if let Some(outcome) = self.at_quiesce.clone() {
                        self.quiesced(outcome);
                    }
                }
                Event::Renew(renew) => {
                    self.conn.quiesced(Err("overtaken".to_owned()));
                    let outcome = match renew.renewal {
                        Some(_) => self.at_renewal.clone(),
                        None => Ok(()),
                    };
                    self.frozen &= outcome.is_err();
                    self.renewed.push(renew);
                    self.conn.renewed(outcome);
                }
            }
        }
    }

    /// Says how freezing its commands went.
    pub(crate) fn quiesced(&mut self, outcome: Result<(), String>) {
        self.frozen = outcome.is_ok();
        self.conn.quiesced(outcome);
    }

    fn start(&mut self, id: ExecId, request: &Request) {
        let argv: Vec<&str> = request
            .argv
            .iter()
            .map(|word| std::str::from_utf8(word).unwrap())
            .collect();
        let number = |at: usize| argv.get(at).map_or(0, |n| n.parse::<usize>().unwrap());
        let mut command = Command {
            exit: Some(0),
            request: request.clone(),
            ..Command::default()
        };
        match argv[0] {
            // Writes its arguments to stdout.
            "echo" => command.out[0].extend(argv[1..].join(" ").bytes()),
            // Writes its environment to stdout.
            "env" => {
                for var in &request.env {
                    command.out[0].extend(var.key.iter());
                    command.out[0].push_back(b'=');
                    command.out[0].extend(var.value.iter());
                    command.out[0].push_back(b'\n');
                }
            }
            // The code to exit with.
            "exit" => command.exit = Some(i32::try_from(number(1)).unwrap()),
            // Writes that many patterned bytes to stdout and to stderr; exits if given a code.
            "write" => {
                command.out[0].extend((0..number(1)).map(pattern));
                command.out[1].extend((0..number(2)).map(pattern));
                command.exit = argv.get(3).map(|code| code.parse().unwrap());
            }
            // Writes for ever.
            "chatter" => (command.endless, command.exit) = (true, None),
            // Copies stdin to stdout.
            "cat" => (command.cat, command.reads) = (true, true),
            // Reads stdin to its end.
            "drain" => command.reads = true,
            // Does nothing until it is killed; never reads stdin.
            "stall" => command.exit = None,
            // Closes its stdin at once and goes on until it is killed.
            "deaf" => command.exit = None,
            // Starts only when the test says so.
            "late" => (command.hold_start, command.exit) = (true, None),
            program => {
                return self.conn.failed(
                    id,
                    Failure {
                        kind: FailureKind::NotFound,
                        errno: Some(2),
                        stage: "execve".to_owned(),
                        message: format!("{program}: No such file or directory"),
                    },
                );
            }
        }
        let deaf = argv[0] == "deaf";
        self.commands.insert(id, command);
        if deaf {
            self.conn.started(id, 7);
            self.conn.stdin_error(
                id,
                StdinError {
                    errno: 32,
                    name: "EPIPE".to_owned(),
                    message: "Broken pipe".to_owned(),
                },
            );
            if let Some(command) = self.commands.get_mut(&id) {
                command.started = true;
            }
        }
    }

    /// Lets every command do what it can.
    fn work(&mut self) {
        let mut ended = Vec::new();
        for (&id, command) in &mut self.commands {
            if !command.started && !command.hold_start {
                command.started = true;
                self.conn.started(id, u32::try_from(id.get()).unwrap());
            }
            if !command.started {
                continue;
            }
            let pending = self
                .conn
                .stdin_pending(id)
                .map_or(0, |(a, b)| a.len() + b.len());
            if command.reads && !command.cat && pending > 0 {
                let (a, b) = self.conn.stdin_pending(id).unwrap();
                command.received.extend(a);
                command.received.extend(b);
                self.conn.stdin_written(id, pending);
            }
            if self.frozen && command.killed.is_none() {
                continue;
            }
            if let Some(signal) = command.killed {
                for stream in Stream::ALL {
                    self.conn.stream_ended(id, stream);
                }
                let signal = Some(signal);
                self.conn.exited(
                    id,
                    ExitStatus {
                        signal,
                        ..ExitStatus::default()
                    },
                );
                ended.push(id);
                continue;
            }
            let echo = command.cat && command.reads && pending > 0;
            let readable = !command.out[0].is_empty() || command.endless || echo;
            self.conn.stream_ready(id, Stream::Stdout, readable);
            self.conn
                .stream_ready(id, Stream::Stderr, !command.out[1].is_empty());
            let done = command.out.iter().all(VecDeque::is_empty) && !command.endless;
            let fed = !command.reads || (command.eof && pending == 0);
            if let Some(code) = command.exit
                && done
                && fed
            {
                for stream in Stream::ALL {
                    self.conn.stream_ended(id, stream);
                }
                let code = Some(code);
                self.conn.exited(
                    id,
                    ExitStatus {
                        code,
                        signal: None,
                        duration_us: 1500,
                        ..ExitStatus::default()
                    },
                );
                ended.push(id);
            }
        }
        for id in ended {
            self.commands.remove(&id);
        }
    }

    /// One chain for the host: as many whole frames as fit.
    pub(crate) fn next_chain(&mut self) -> Vec<u8> {
        let mut buf = vec![0; FRAME_MAX];
        let mut used = 0;
        self.work();
        loop {
            match self.conn.poll_transmit(&mut buf[used..]) {
                Transmit::Frame(n) => used += n,
                Transmit::Read { id, stream, max } => {
                    let n = self.read(id, stream, &mut buf[used + HEADER_LEN..][..max]);
                    if n == 0 {
                        self.conn.stream_ready(id, stream, false);
                    } else {
                        used += self.conn.output_read(id, stream, n, &mut buf[used..]);
                    }
                }
                Transmit::Full | Transmit::Idle => break,
            }
        }
        buf.truncate(used);
        buf
    }

    fn read(&mut self, id: ExecId, stream: Stream, buf: &mut [u8]) -> usize {
        let Some(command) = self.commands.get_mut(&id) else {
            return 0;
        };
        let out = &mut command.out[usize::from(stream == Stream::Stderr)];
        let mut n = out.len().min(buf.len());
        for (to, from) in buf.iter_mut().zip(out.drain(..n)) {
            *to = from;
        }
        if n == 0 && stream == Stream::Stdout && command.endless {
            buf.fill(b'x');
            n = buf.len();
        }
        if n == 0 && stream == Stream::Stdout && command.cat && command.reads {
            let (a, b) = self.conn.stdin_pending(id).unwrap_or_default();
            n = (a.len() + b.len()).min(buf.len());
            for (to, from) in buf.iter_mut().zip(a.iter().chain(b)) {
                *to = *from;
            }
            command.received.extend(&buf[..n]);
            self.conn.stdin_written(id, n);
        }
        command.written += n as u64;
        n
    }
}
