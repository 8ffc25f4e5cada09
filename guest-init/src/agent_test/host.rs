//! The host's end, driven by hand: one turn sends what is due and takes what has come.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::thread::JoinHandleExt as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_exec_proto::host::{
    Config as HostConfig, Conn, Event, Notice, Start, Stdin, Terminal, Verdict,
};
use forebay_exec_proto::{
    EnvVar, ExecId, Failure, HEADER_LEN, Header, Limits, Renew, Renewal, Request, Secret, Stream,
    TerminalSize,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::agent::{Agent, Config};
use crate::boot::Clock;
use crate::cgroup::Parent;
use crate::power::End;

/// What a command left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) code: Option<i32>,
    pub(super) signal: Option<u32>,
}

pub(super) struct Host {
    conn: Conn,
    socket: UnixStream,
    /// Bytes that came and are no whole frame yet.
    incoming: Vec<u8>,
    /// Bytes that the socket has not taken yet.
    outgoing: Vec<u8>,
    agent: Option<JoinHandle<End>>,
    /// What the agent said of the guest as a whole.
    answers: VecDeque<Notice>,
    pongs: u64,
    system: Arc<Mutex<System>>,
}

/// What is renewed in place of this system.
#[derive(Default)]
pub(super) struct System {
    pub(super) renewed: Vec<Renew>,
    /// Why it cannot be.
    pub(super) fault: Option<String>,
}

impl Host {
    pub(super) fn start(limits: Limits) -> Self {
        Self::with(HostConfig {
            limits,
            ..HostConfig::default()
        })
    }

    pub(super) fn with_defaults(env: &[(&str, &str)], cwd: &str) -> Self {
        Self::with(HostConfig {
            env: vars(env),
            cwd: Some(cwd.as_bytes().to_vec().into()),
            ..HostConfig::default()
        })
    }

    /// An agent whose executions have leaves below `parent`.
    pub(super) fn start_in(parent: Parent) -> Self {
        Self::connect(HostConfig::default(), Some(parent))
    }

    pub(super) fn with(config: HostConfig) -> Self {
        Self::connect(config, None)
    }

    pub(super) fn connect(config: HostConfig, parent: Option<Parent>) -> Self {
        config.limits.validate().unwrap();
        let (socket, port) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        port.set_nonblocking(true).unwrap();
        let system = Arc::new(Mutex::new(System::default()));
        let renewed = Arc::clone(&system);
        let renew = move |renew: &Renew| {
            let mut system = renewed.lock().unwrap();
            system.renewed.push(renew.clone());
            system.fault.clone().map_or(Ok(()), Err)
        };
        let agent = std::thread::spawn(move || {
            let config = Config {
                parent,
                renew: Box::new(renew),
                reopen: None,
                whole_system: false,
                test_crash: false,
                clock: Clock::at_entry(),
            };
            Agent::new(OwnedFd::from(port), config)
                .unwrap()
                .run()
                .unwrap()
        });
        let mut conn = Conn::new(config);
        conn.handle_opened();
        let mut host = Self {
            conn,
            socket,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            agent: Some(agent),
            answers: VecDeque::new(),
            pongs: 0,
            system,
        };
        while !host.conn.is_ready() {
            host.turn(Duration::from_secs(10));
        }
        host
    }

    /// Sends what is due and takes what comes until `wait` has passed or something came.
    pub(super) fn turn(&mut self, wait: Duration) {
        self.send();
        let interest = if self.outgoing.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        let wait = Timespec::try_from(wait).unwrap();
        poll(&mut [PollFd::new(&self.socket, interest)], Some(&wait)).unwrap();
        let ended = self.agent.as_ref().is_some_and(JoinHandle::is_finished);
        let heard = self.receive();
        assert!(heard || !ended, "the agent's loop has ended");
        self.send();
    }

    /// Sends what is due.
    pub(super) fn send(&mut self) {
        loop {
            if self.outgoing.is_empty() {
                let Some(frame) = self.conn.poll_transmit() else {
                    break;
                };
                self.outgoing.extend_from_slice(&frame.head);
                self.outgoing.extend_from_slice(&frame.body);
            }
            match self.socket.write(&self.outgoing) {
                Ok(n) => drop(self.outgoing.drain(..n)),
                Err(_) => break,
            }
        }
    }

    /// Takes what has come. False if it was nothing.
    fn receive(&mut self) -> bool {
        let mut heard = false;
        let mut room = [0; 65_536];
        while let Ok(n @ 1..) = self.socket.read(&mut room) {
            heard = true;
            self.incoming.extend_from_slice(&room[..n]);
        }
        while let Some(head) = self.incoming.first_chunk::<HEADER_LEN>().copied() {
            let len = Header::decode(&head).len as usize;
            if self.incoming.len() < HEADER_LEN + len {
                break;
            }
            let payload = self.incoming[HEADER_LEN..HEADER_LEN + len].to_vec();
            match self.conn.judge(&head, len) {
                Verdict::Accept(n) => {
                    assert_eq!(n, len);
                    self.conn.deliver(payload).unwrap();
                }
                verdict => panic!("the agent broke the protocol: {verdict:?}"),
            }
            self.incoming.drain(..HEADER_LEN + len);
        }
        while let Some(notice) = self.conn.poll_notice() {
            match notice {
                Notice::Pong(_) => self.pongs += 1,
                Notice::Quiesced { .. } | Notice::Renewed { .. } => self.answers.push_back(notice),
                _ => {}
            }
        }
        heard
    }

    fn request(argv: &[&str], env: &[(&str, &str)], cwd: Option<&str>) -> Request {
        Request {
            argv: argv
                .iter()
                .map(|word| word.as_bytes().to_vec().into())
                .collect(),
            env: vars(env),
            cwd: cwd.map(|cwd| cwd.as_bytes().to_vec().into()),
            ..Request::default()
        }
    }

    /// Queues a start and sends nothing yet.
    pub(super) fn begin(&mut self, argv: &[&str]) -> ExecId {
        self.submit(Self::request(argv, &[], None), Stdin::Null)
    }

    pub(super) fn submit(&mut self, request: Request, stdin: Stdin) -> ExecId {
        self.conn
            .start(Start::new(request, stdin).unwrap())
            .unwrap()
    }

    fn started(&mut self, request: Request, stdin: Stdin) -> ExecId {
        let id = self.submit(request, stdin);
        assert!(matches!(self.next(id), Event::Started { .. }));
        id
    }

    pub(super) fn exec(&mut self, argv: &[&str]) -> ExecId {
        self.started(Self::request(argv, &[], None), Stdin::Null)
    }

    pub(super) fn exec_with_stdin(&mut self, argv: &[&str], stdin: &[u8]) -> ExecId {
        self.started(
            Self::request(argv, &[], None),
            Stdin::Bytes(stdin.to_vec().into()),
        )
    }

    pub(super) fn exec_with_open_stdin(&mut self, argv: &[&str]) -> ExecId {
        self.started(Self::request(argv, &[], None), Stdin::Pipe)
    }

    /// Starts a command on a terminal that somebody types into.
    pub(super) fn exec_on_terminal(&mut self, argv: &[&str]) -> ExecId {
        let request = Self::terminal_request(argv);
        self.started(request, Stdin::Pipe)
    }

    /// Starts a command on a terminal that nobody types into.
    pub(super) fn exec_on_silent_terminal(&mut self, argv: &[&str]) -> ExecId {
        let request = Self::terminal_request(argv);
        self.started(request, Stdin::Null)
    }

    fn terminal_request(argv: &[&str]) -> Request {
        Request {
            terminal: Some(TerminalSize { rows: 41, cols: 97 }),
            ..Self::request(argv, &[], None)
        }
    }

    /// Hands over everything; returns when it is in the guest or on its way.
    pub(super) fn write_stdin(&mut self, id: ExecId, bytes: &[u8]) {
        self.conn.write_stdin(id, bytes.to_vec().into()).unwrap();
        self.send();
        while self.conn.pending_stdin(id) > 0 {
            self.turn(Duration::from_secs(10));
        }
    }

    /// Has everything handed over in time, and does not wait for it.
    pub(super) fn type_ahead(&mut self, id: ExecId, bytes: &[u8]) {
        self.conn.write_stdin(id, bytes.to_vec().into()).unwrap();
    }

    /// Whether no end was heard of.
    pub(super) fn is_running(&self, id: ExecId) -> bool {
        self.conn.terminal(id).is_none()
    }

    pub(super) fn resize(&mut self, id: ExecId, rows: u16, cols: u16) {
        self.conn.resize(id, TerminalSize { rows, cols }).unwrap();
    }

    /// Takes output until `shown`, which has what came so far, ends with `text`.
    pub(super) fn read_until(&mut self, id: ExecId, shown: &mut Vec<u8>, text: &str) {
        while !shown.ends_with(text.as_bytes()) {
            match self.next(id) {
                Event::Stdout(bytes) => shown.extend_from_slice(&bytes),
                other => panic!("{other:?} after {:?}", String::from_utf8_lossy(shown)),
            }
        }
    }

    pub(super) fn close_stdin(&mut self, id: ExecId) {
        self.conn.close_stdin(id).unwrap();
    }

    pub(super) fn shell(&mut self, script: &str) -> Output {
        let id = self.exec(&["sh", "-c", script]);
        self.collect(id)
    }

    pub(super) fn run_with_stdin(&mut self, argv: &[&str], stdin: &[u8]) -> Output {
        let id = self.exec_with_stdin(argv, stdin);
        self.collect(id)
    }

    pub(super) fn run_with_env(&mut self, argv: &[&str], env: &[(&str, &str)]) -> Output {
        let id = self.started(Self::request(argv, env, None), Stdin::Null);
        self.collect(id)
    }

    /// Waits for the next event of an execution.
    pub(super) fn next(&mut self, id: ExecId) -> Event {
        loop {
            if let Some(event) = self.conn.next_event(id) {
                return event;
            }
            self.turn(Duration::from_secs(10));
        }
    }

    /// Takes everything up to the end of an execution.
    pub(super) fn collect(&mut self, id: ExecId) -> Output {
        let mut output = Output {
            stdout: vec![],
            stderr: vec![],
            code: None,
            signal: None,
        };
        loop {
            match self.next(id) {
                Event::Stdout(bytes) => output.stdout.extend_from_slice(&bytes),
                Event::Stderr(bytes) => output.stderr.extend_from_slice(&bytes),
                Event::Started { .. } | Event::StdinError(_) => {}
                Event::End(Terminal::Exited(status)) => {
                    output.code = status.code;
                    output.signal = status.signal;
                    self.conn.forget(id);
                    return output;
                }
                Event::End(end) => panic!("{end:?}"),
            }
        }
    }

    /// Starts what must not start.
    pub(super) fn failure(&mut self, argv: &[&str], cwd: Option<&str>) -> Failure {
        let id = self.submit(Self::request(argv, &[], cwd), Stdin::Null);
        match self.next(id) {
            Event::End(Terminal::Failed(failure)) => {
                self.conn.forget(id);
                failure
            }
            other => panic!("it should have failed: {other:?}"),
        }
    }

    /// Asks for all executions to stand still within `limit`, and waits for the answer.
    pub(super) fn quiesce(&mut self, limit: Duration) -> Result<(), String> {
        let seq = self.begin_quiesce(limit);
        self.answered(seq)
    }

    /// Lets them go on as they were.
    pub(super) fn thaw(&mut self) -> Result<(), String> {
        let seq = self.begin_thaw();
        self.answered(seq)
    }

    /// Makes the guest another one.
    pub(super) fn renew(&mut self) -> Result<(), String> {
        let renewal = Renewal {
            entropy: Secret([7; 32]),
            generation: [9; 16],
            hostname: None,
        };
        let seq = self.conn.renew(renewal).unwrap();
        self.answered(seq)
    }

    /// Waits for the answer to the question of this number.
    pub(super) fn answered(&mut self, asked: u64) -> Result<(), String> {
        loop {
            if let Some(Notice::Quiesced { seq, error } | Notice::Renewed { seq, error }) =
                self.answers.pop_front()
            {
                assert_eq!(seq, asked, "in the order of the questions");
                return error.map_or(Ok(()), Err);
            }
            self.turn(Duration::from_secs(10));
        }
    }

    /// Asks for that and does not wait.
    pub(super) fn begin_quiesce(&mut self, limit: Duration) -> u64 {
        let seq = self.conn.quiesce(limit).unwrap();
        self.send();
        seq
    }

    /// The same of the thaw.
    pub(super) fn begin_thaw(&mut self) -> u64 {
        let seq = self.conn.thaw().unwrap();
        self.send();
        seq
    }

    /// Whether the answer to that has come.
    pub(super) fn is_answered(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Goes on until the agent has done all that it was asked for so far.
    pub(super) fn ping(&mut self) {
        let pongs = self.pongs;
        self.conn.ping(pongs).unwrap();
        while self.pongs == pongs {
            self.turn(Duration::from_secs(10));
        }
    }

    /// What has come of an execution's stdout.
    pub(super) fn take(&mut self, id: ExecId) -> Vec<u8> {
        let mut taken = Vec::new();
        while let Some(chunk) = self.conn.take_chunk(id, Stream::Stdout) {
            taken.extend_from_slice(&chunk);
        }
        taken
    }

    pub(super) fn system(&self) -> MutexGuard<'_, System> {
        self.system.lock().unwrap()
    }

    pub(super) fn pid(&self, id: ExecId) -> u32 {
        self.conn.pid(id).unwrap()
    }

    pub(super) fn kill(&mut self, id: ExecId) {
        self.conn.kill(id).unwrap();
    }

    /// Kills an execution and sees it end of that.
    pub(super) fn put_down(&mut self, id: ExecId) {
        self.kill(id);
        assert_eq!(self.collect(id).signal, Some(9));
    }

    pub(super) fn signal(&mut self, id: ExecId, signal: u32) {
        self.conn.signal(id, signal).unwrap();
    }

    pub(super) fn power_off(&mut self, reboot: bool, grace_ms: u32) {
        self.conn.power_off(reboot, grace_ms);
    }

    pub(super) fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Interrupts whatever system call the agent's thread is in.
    #[allow(unsafe_code, reason = "std sends no signals to threads")]
    pub(super) fn interrupt(&self) {
        extern "C" fn handler(_: libc::c_int) {}
        let Some(agent) = &self.agent else { return };
        // SAFETY: the handler does nothing, and the thread was not joined, so its handle is valid.
        unsafe {
            libc::signal(libc::SIGUSR2, handler as *const () as libc::sighandler_t);
            libc::pthread_kill(agent.as_pthread_t(), libc::SIGUSR2);
        }
    }

    /// Closes the connection and waits for the agent's loop to end.
    pub(super) fn hang_up(&mut self) -> End {
        self.socket.shutdown(std::net::Shutdown::Both).unwrap();
        self.agent.take().unwrap().join().unwrap()
    }

    /// Goes on until the agent's loop has ended.
    pub(super) fn agent_end(&mut self) -> End {
        let agent = self.agent.take().unwrap();
        while !agent.is_finished() {
            self.turn(Duration::from_millis(5));
        }
        agent.join().unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            let _ = self.socket.shutdown(std::net::Shutdown::Both);
            let _ = agent.join();
        }
    }
}

fn vars(env: &[(&str, &str)]) -> Vec<EnvVar> {
    env.iter()
        .map(|(key, value)| EnvVar {
            key: key.as_bytes().to_vec().into(),
            value: value.as_bytes().to_vec().into(),
        })
        .collect()
}
