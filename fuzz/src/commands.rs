//! Commands that do anything at any time, as an honest agent reports it.

use std::collections::BTreeSet;

use arbitrary::{Result, Unstructured};
use forebay_exec_proto::guest::{Conn, Transmit};
use forebay_exec_proto::pair::exit_code;
use forebay_exec_proto::{ExecId, FRAME_MAX, Failure, FailureKind, HEADER_LEN, StdinError, Stream};

/// The commands in a guest.
#[derive(Debug, Default)]
pub struct Commands {
    /// Those that the guest was asked to start and has not reported the end of.
    running: Vec<ExecId>,
    started: BTreeSet<ExecId>,
}

impl Commands {
    /// The guest was asked to start one.
    pub fn start(&mut self, id: ExecId) {
        self.running.push(id);
    }

    /// Those whose end was not reported.
    pub fn running(&self) -> impl Iterator<Item = &ExecId> {
        self.running.iter()
    }

    /// Something happens to one. The agent reports each thing once, as it must.
    ///
    /// # Errors
    /// The input is used up.
    pub fn happen(&mut self, u: &mut Unstructured<'_>, guest: &mut Conn) -> Result<()> {
        if self.running.is_empty() {
            return Ok(());
        }
        let stream = *u.choose(&Stream::ALL)?;
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
                guest.failed(id, failure);
            } else {
                self.started.insert(id);
                guest.started(id, 7);
            }
            return Ok(());
        }
        match step {
            0 | 1 => guest.stream_ready(id, stream, true),
            2 => guest.stream_ready(id, stream, false),
            3 => guest.stream_ended(id, stream),
            4..=6 => {
                let pending = guest.stdin_pending(id);
                let pending = pending.map_or(0, |(a, b)| a.len() + b.len());
                let n = u.int_in_range(0..=pending)?;
                guest.stdin_written(id, n);
            }
            7 => guest.stdin_error(
                id,
                StdinError {
                    errno: 32,
                    name: "EPIPE".to_owned(),
                    message: "broken pipe".to_owned(),
                },
            ),
            _ => {
                self.running.swap_remove(at);
                end(id, guest);
            }
        }
        Ok(())
    }

    /// All of them end.
    pub fn end(&mut self, guest: &mut Conn) {
        for id in self.running.drain(..) {
            if self.started.insert(id) {
                guest.started(id, 7);
            }
            end(id, guest);
        }
    }

    /// Fills one write of the guest with frames, and with output where it is asked for.
    ///
    /// # Errors
    /// The input is used up.
    pub fn write(&self, u: &mut Unstructured<'_>, guest: &mut Conn) -> Result<Vec<u8>> {
        let mut buf = vec![0; u.int_in_range(0..=FRAME_MAX)?];
        let mut used = 0;
        loop {
            match guest.poll_transmit(&mut buf[used..]) {
                Transmit::Frame(n) => used += n,
                Transmit::Read { id, stream, max } => {
                    assert!(max > 0, "asked to read nothing");
                    let n = u.int_in_range(0..=max)?;
                    if n == 0 {
                        guest.stream_ready(id, stream, false);
                    } else {
                        let len = guest.output_read(id, stream, n, &mut buf[used..]);
                        assert_eq!(len, HEADER_LEN + n, "a read within its bounds is framed");
                        used += len;
                    }
                }
                Transmit::Full | Transmit::Idle => break,
            }
        }
        buf.truncate(used);
        Ok(buf)
    }
}

fn end(id: ExecId, guest: &mut Conn) {
    for stream in Stream::ALL {
        guest.stream_ended(id, stream);
    }
    guest.exited(id, exit_code(0));
}
