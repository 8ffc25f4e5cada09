//! A client that keeps the protocol until it is told not to.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use bytes::Bytes;
use forebay_exec_proto::host::{Config, Conn, Start, Stdin, Terminal, Verdict};
use forebay_exec_proto::{ByteVec, ExecId, HEADER_LEN, Header, Limits, Request, TerminalSize};

use super::CEILING;
use crate::attach::last_words;
use crate::attach::preamble::{self, Preamble};

pub(super) struct Villain {
    pub(super) stream: UnixStream,
    conn: Conn,
}

impl Villain {
    /// Connected and past the handshake.
    pub(super) fn attach(path: &Path) -> Self {
        let mut villain = Self::connect(path);
        villain.conn.handle_opened();
        villain.pump(|conn| conn.is_ready());
        villain
    }

    /// Connected; it has read the preamble and said nothing.
    pub(super) fn connect(path: &Path) -> Self {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(CEILING)).unwrap();
        let mut greeting = [0; preamble::LEN];
        stream.read_exact(&mut greeting).unwrap();
        let Ok(Preamble::Welcome(limits)) = Preamble::decode(&greeting) else {
            panic!("not welcome");
        };
        Self {
            stream,
            conn: Conn::facing_relay(Config {
                limits,
                ..Config::default()
            }),
        }
    }

    /// Greets the server with another configuration than an honest client's.
    pub(super) fn bootstrap(&mut self, config: Config) {
        self.conn = Conn::facing_relay(config);
        self.conn.handle_opened();
        self.say();
    }

    pub(super) fn limits(&self) -> Limits {
        *self.conn.limits()
    }

    /// Starts a command with a piped stdin; gives its id once it runs.
    pub(super) fn start(&mut self, words: &[&str]) -> ExecId {
        let id = self.begin(words);
        self.pump(|conn| conn.pid(id).is_some());
        id
    }

    /// Sends a request and does not wait for an answer.
    pub(super) fn begin(&mut self, words: &[&str]) -> ExecId {
        let argv = words.iter().map(|w| ByteVec::from(w.as_bytes().to_vec()));
        let request = Request {
            argv: argv.collect(),
            // So that it may be given sizes.
            terminal: Some(TerminalSize { rows: 24, cols: 80 }),
            ..Request::default()
        };
        let start = Start::new(request, Stdin::Pipe).unwrap();
        let id = self.conn.start(start).unwrap();
        self.say();
        id
    }

    /// Reads until all of a command's output has arrived; consumes none of it.
    pub(super) fn ended(&mut self, id: ExecId) {
        self.pump(|conn| conn.terminal(id).is_some());
    }

    pub(super) fn terminal(&self, id: ExecId) -> Option<Terminal> {
        self.conn.terminal(id).cloned()
    }

    /// Writes a frame that no honest client would.
    pub(super) fn raw(&mut self, kind: u8, exec: u64, payload: &[u8]) {
        let _ = self.stream.write_all(&frame(kind, exec, payload));
    }

    /// Reads whole frames until the server closes; gives what it was told last, if it was.
    pub(super) fn is_cut_off(&mut self) -> Option<String> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("hang: the villain was not cut off: {error}"),
        }
        said_last(&bytes)
    }

    fn say(&mut self) {
        while let Some(frame) = self.conn.poll_transmit() {
            // Refused once it has been cut off, which is looked for by reading.
            let _ = self.stream.write_all(&frame.head);
            let _ = self.stream.write_all(&frame.body);
        }
    }

    fn pump(&mut self, done: impl Fn(&Conn) -> bool) {
        self.say();
        while !done(&self.conn) {
            let mut head = [0; HEADER_LEN];
            self.stream.read_exact(&mut head).unwrap();
            let len = usize::try_from(Header::decode(&head).len).unwrap();
            let mut payload = vec![0; len];
            self.stream.read_exact(&mut payload).unwrap();
            match self.conn.judge(&head, len) {
                Verdict::Accept(_) => self.conn.deliver(payload).unwrap(),
                other => panic!("the server broke the protocol: {other:?}"),
            }
            self.say();
        }
    }
}

/// The server's last words in a stream of whole frames.
pub(super) fn said_last(mut frames: &[u8]) -> Option<String> {
    while let Some((head, rest)) = frames.split_first_chunk::<HEADER_LEN>() {
        let (payload, rest) = rest.split_at_checked(Header::decode(head).len as usize)?;
        if last_words::announced(head).is_some() {
            assert!(rest.is_empty(), "something comes behind the last words");
            return Some(String::from_utf8(payload.to_vec()).unwrap());
        }
        frames = rest;
    }
    None
}

/// A frame of any kind.
pub(super) fn frame(kind: u8, exec: u64, payload: &[u8]) -> Bytes {
    let header = Header {
        len: u32::try_from(payload.len()).unwrap(),
        kind,
        flags: 0,
        reserved: 0,
        exec,
    };
    let mut frame = header.encode().to_vec();
    frame.extend_from_slice(payload);
    Bytes::from(frame)
}
