//! Taking what an execution produced. The only place where output credit comes back.

use bytes::Bytes;

use super::Conn;
use super::execution::Terminal;
use crate::frame::Stream;
use crate::id::ExecId;
use crate::message::StdinError;

/// What an execution has to say, in order: `Started`, output and a stdin error as they came,
/// then one of the last three, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The program runs.
    Started {
        /// Its process id in the guest.
        pid: u32,
    },
    /// A chunk of stdout.
    Stdout(Bytes),
    /// A chunk of stderr.
    Stderr(Bytes),
    /// The command no longer reads its stdin; the execution goes on.
    StdinError(StdinError),
    /// The end.
    End(Terminal),
}

/// Outcome of reading one stream into a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// This many bytes were copied; more than zero.
    Data(usize),
    /// Nothing now, more may come.
    Empty,
    /// Everything was read and nothing more will come; [`Conn::terminal`] says why.
    End,
}

impl Conn {
    /// Takes the next event, or `None` when there is none now. Taking a chunk releases its
    /// credit. After [`Event::End`] there is nothing more.
    pub fn next_event(&mut self, id: ExecId) -> Option<Event> {
        let exec = self.execs.get_mut(&id)?;
        if core::mem::take(&mut exec.started_event) {
            return exec.pid.map(|pid| Event::Started { pid });
        }
        let seq_of = |chunk: Option<&super::execution::Chunk>| chunk.map(|c| c.seq);
        let stdout = seq_of(exec.stdout.chunks.front());
        let stderr = seq_of(exec.stderr.chunks.front());
        let notice = exec.stdin_event.as_ref().map(|(seq, _)| *seq);
        let first = [stdout, stderr, notice].into_iter().flatten().min();
        if first.is_some() && first == notice {
            return exec
                .stdin_event
                .take()
                .map(|(_, error)| Event::StdinError(error));
        }
        if first.is_some() {
            let stream = if first == stdout {
                Stream::Stdout
            } else {
                Stream::Stderr
            };
            let data = self.take_chunk(id, stream)?;
            return Some(match stream {
                Stream::Stdout => Event::Stdout(data),
                Stream::Stderr => Event::Stderr(data),
            });
        }
        if exec.terminal_event {
            return None;
        }
        let terminal = exec.terminal.clone()?;
        exec.terminal_event = true;
        Some(Event::End(terminal))
    }

    /// Takes a whole chunk of one stream: its bytes and its share of the window are released.
    pub fn take_chunk(&mut self, id: ExecId, stream: Stream) -> Option<Bytes> {
        let exec = self.execs.get_mut(&id)?;
        let chunk = exec.output(stream).pop()?;
        exec.consume(chunk.data.len(), true);
        self.released(id);
        Some(chunk.data)
    }

    /// Copies bytes of one stream into `buf`. A partial read of a chunk releases the bytes
    /// copied; the chunk's 256 units go when it is empty. Its rest stays in an allocation of at
    /// most twice its size, so a stream that is read in part holds at most half of
    /// `output_chunk_size` more than it is charged.
    pub fn read(&mut self, id: ExecId, stream: Stream, buf: &mut [u8]) -> Read {
        let Some(exec) = self.execs.get_mut(&id) else {
            return Read::End;
        };
        let mut copied: usize = 0;
        while let Some(room) = buf.get_mut(copied..).filter(|room| !room.is_empty()) {
            let Some((n, whole)) = exec.output(stream).read(room) else {
                break;
            };
            exec.consume(n, whole);
            copied = copied.saturating_add(n);
        }
        if copied > 0 {
            self.released(id);
            return Read::Data(copied);
        }
        if exec.terminal.is_some() {
            Read::End
        } else {
            Read::Empty
        }
    }

    /// How the execution ended, if it has. Output may still be unread.
    #[must_use]
    pub fn terminal(&self, id: ExecId) -> Option<&Terminal> {
        self.execs.get(&id)?.terminal.as_ref()
    }

    /// The program's process id in the guest, once it runs.
    #[must_use]
    pub fn pid(&self, id: ExecId) -> Option<u32> {
        self.execs.get(&id)?.pid
    }
}
