//! The handle of a running command, whole and in parts.

use std::future::poll_fn;

use forebay_exec_proto::Stream;
use forebay_exec_proto::host::{Event, Terminal};

use crate::ExecId;
use crate::control::ExecControl;
use crate::error::{ControlError, ExecError};
use crate::event::ExecEvent;
use crate::failure::Failure;
use crate::lease::{End, Lease, outcome};
use crate::output::ExecOutput;
use crate::reader::ExecReader;
use crate::signal::Signal;
use crate::sink::ExecSink;
use crate::status::ExitStatus;
use crate::sync::Arc;
use crate::terminal::TerminalSize;
use crate::waiting::Half;

/// Events that `collect` takes at most under one lock.
const BATCH: usize = 32;

/// A command that runs in the guest. Names follow those of tokio's `process::Child`; what is
/// different: `kill` neither waits nor fails, `wait` discards unread output, a stdin's own
/// `write`, `write_all` and `close` say more than the trait's ([`ExecSink`] has the table), and
/// what dropping does:
///
/// | dropped | then |
/// |---|---|
/// | the handle, while an [`ExecSink`] or [`ExecControl`] lives | the command runs on; its output is discarded as it comes, so that it never waits for a reader |
/// | the last of handle, parts, sink and controls | everything in the execution is killed |
/// | any of them, after [`detach`](Self::detach) | nothing is killed, output is discarded |
/// | nothing, since the handle was [left](Self::leave) | the command runs on until somebody [adopts](crate::Client::adopt) it |
/// | an attached client's connection, as when its process ends | everything of it is killed, detached or not, unless it was left |
///
/// An untaken stdin is closed when the handle goes. The execution's slot is free when its
/// process has exited and its output was read, or discarded as above.
///
/// ```no_run
/// # use forebay_exec::{Client, Stdin};
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let sort = client.exec("sort", ["-n"]).stdin(Stdin::piped()).spawn().await?;
/// let mut parts = sort.split();
/// let stdin = parts.stdin.take().expect("it is piped");
/// let feed = async move {
///     stdin.write("3\n1\n2\n").await?;
///     stdin.close().await
/// };
/// let mut sorted = Vec::new();
/// let (fed, copied) = tokio::join!(feed, tokio::io::copy(&mut parts.stdout, &mut sorted));
/// (fed?, copied?);
/// assert_eq!(sorted, b"1\n2\n3\n");
/// assert!(parts.exit.wait().await?.success());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ExecHandle {
    lease: Arc<Lease>,
    pid: u32,
    /// `Started` was reported by `recv`.
    start_told: bool,
    stdin: Option<ExecSink>,
    stdout: ExecReader,
    stderr: ExecReader,
}

/// The parts of a handle, each of which can move to a task of its own. What dropping them does
/// stands at [`ExecHandle`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ExecParts {
    /// Writes its stdin; `None` if that is not piped, or was taken before.
    pub stdin: Option<ExecSink>,
    /// Reads its stdout.
    pub stdout: ExecReader,
    /// Reads its stderr.
    pub stderr: ExecReader,
    /// Waits for its end.
    pub exit: ExecExit,
}

/// Waits for the end of a command whose streams are read elsewhere.
#[derive(Debug)]
pub struct ExecExit {
    lease: Arc<Lease>,
}

impl ExecHandle {
    pub(crate) fn new(lease: Arc<Lease>, pid: u32, piped: bool) -> Self {
        Self {
            pid,
            start_told: false,
            stdin: piped.then(|| ExecSink::new(Arc::clone(&lease))),
            stdout: ExecReader::new(Arc::clone(&lease), Stream::Stdout),
            stderr: ExecReader::new(Arc::clone(&lease), Stream::Stderr),
            lease,
        }
    }

    /// The handle of an execution that was started by somebody else: what has been told of it is not
    /// told again.
    pub(crate) fn adopted(lease: Arc<Lease>, pid: Option<u32>, piped: bool) -> Self {
        Self {
            start_told: true,
            ..Self::new(lease, pid.unwrap_or_default(), piped)
        }
    }

    /// The execution's id: never used again in this VM's life. Over an attach socket it is one of the
    /// client's own.
    #[must_use]
    pub fn id(&self) -> ExecId {
        self.lease.id()
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// How many parts of this handle hold its lease.
    pub(crate) fn parts(&self) -> usize {
        // Itself and the readers.
        3 + usize::from(self.stdin.is_some())
    }

    /// The program's process id in the guest. For people and logs: signals go by
    /// [`signal`](Self::signal), which cannot reach another process. Zero for an execution that was
    /// [adopted](crate::Client::adopt) before its program ran, until it does.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match self.pid {
            0 => self
                .lease
                .step(|inner, id| inner.conn.pid(id))
                .unwrap_or_default(),
            pid => pid,
        }
    }

    /// The next event, in the order described at [`ExecEvent`]; `None` after the last.
    ///
    /// Taking a chunk is what gives the command room for more output. Cancelling loses nothing.
    ///
    /// A command that its [timeout](crate::Exec::timeout) killed has an exit like any other here,
    /// with [`timed_out`](ExitStatus::timed_out), whenever the guest confirms it.
    pub async fn recv(&mut self) -> Option<ExecEvent> {
        if !std::mem::replace(&mut self.start_told, true) {
            return Some(ExecEvent::Started { pid: self.pid });
        }
        let event = poll_fn(|cx| {
            self.lease.poll(cx, Half::Events, |inner, id| {
                let event = inner.conn.next_event(id);
                let over = event.is_none() && inner.conn.terminal(id).is_some();
                (event.is_some() || over).then_some(event)
            })
        });
        Some(match event.await? {
            Event::Started { pid } => ExecEvent::Started { pid },
            Event::Stdout(data) => ExecEvent::Stdout(data),
            Event::Stderr(data) => ExecEvent::Stderr(data),
            Event::StdinError(error) => ExecEvent::StdinError((&error).into()),
            Event::End(terminal) => last_event(&terminal),
        })
    }

    /// The sink that writes its stdin, once; `None` if stdin is not piped or was taken.
    pub fn take_stdin(&mut self) -> Option<ExecSink> {
        self.stdin.take()
    }

    /// Puts a sink back that [`take_stdin`](Self::take_stdin) gave, so that stdin is as if it had not
    /// been taken: dropping the sink would end it.
    ///
    /// # Errors
    /// The sink is of another execution.
    pub fn put_stdin_back(&mut self, sink: ExecSink) -> Result<(), ExecSink> {
        if !Arc::ptr_eq(sink.lease(), &self.lease) {
            return Err(sink);
        }
        self.stdin = Some(sink);
        Ok(())
    }

    /// Waits for the end. Discards what was not read of the output, now and as it comes, and
    /// closes a stdin that was not taken, since a chatty or a reading command would never end
    /// otherwise. May be called again.
    ///
    /// Cancelling it does neither end the command nor undo the discarding, nor does it stop the
    /// clock of a [timeout](crate::Exec::timeout).
    ///
    /// # Errors
    /// [`ExecError::TimedOut`]: it was killed by its timeout. [`ExecError::Unconfirmed`]: the
    /// same, and the guest did not confirm its end within 5 s; a later call tells the end, should
    /// it come. [`ExecError::Protocol`] or [`ExecError::VmGone`]: how it ended is not known.
    pub async fn wait(&mut self) -> Result<ExitStatus, ExecError> {
        drop(self.stdin.take());
        for stream in Stream::ALL {
            self.lease.discard(stream);
        }
        self.lease.ended().await
    }

    /// Waits for the end and gives all output that was not read before. Reads both streams,
    /// and closes a stdin that was not taken. Memory grows with the output.
    ///
    /// Dropping the future drops the handle.
    ///
    /// # Errors
    /// As [`wait`](Self::wait). [`ExecError::TimedOut`] and [`ExecError::Unconfirmed`] hold the
    /// output so far; with the others it is lost: use [`recv`](Self::recv) to keep what arrives.
    pub async fn collect(mut self) -> Result<ExecOutput, ExecError> {
        drop(self.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let end = poll_fn(|cx| {
                self.lease.poll(cx, Half::Events, |inner, id| {
                    let end = End::of(&inner.conn, id);
                    // What writes on after its time is not listened to for ever.
                    let most = match end {
                        Some(End::Unconfirmed(_)) => usize::MAX,
                        _ => BATCH,
                    };
                    while batch.len() < most {
                        match inner.conn.next_event(id) {
                            Some(event) => batch.push(event),
                            None if end.is_some() => return Some(end),
                            None => break,
                        }
                    }
                    (!batch.is_empty()).then_some(None)
                })
            });
            let end = end.await;
            for event in batch.drain(..) {
                match event {
                    Event::Stdout(data) => stdout.extend_from_slice(&data),
                    Event::Stderr(data) => stderr.extend_from_slice(&data),
                    Event::Started { .. } | Event::StdinError(_) | Event::End(_) => {}
                }
            }
            if let Some(end) = end {
                return end.result(stdout, stderr);
            }
        }
    }

    /// Sends a signal; see [`ExecControl::signal`].
    ///
    /// # Errors
    /// As there.
    pub async fn signal(&self, signal: Signal) -> Result<(), ControlError> {
        self.lease.signal(signal).await
    }

    /// Gives its terminal another size; see [`ExecControl::resize`].
    ///
    /// # Errors
    /// As there.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), ControlError> {
        self.lease.resize(size).await
    }

    /// Kills everything in the execution; see [`ExecControl::kill`].
    pub fn kill(&self) {
        self.lease.kill();
    }

    /// A control that can be elsewhere than the handle. As long as one lives, dropping the
    /// handle does not kill the command.
    #[must_use]
    pub fn control(&self) -> ExecControl {
        ExecControl::new(Arc::clone(&self.lease))
    }

    /// Lets the command run on without a handle. Its output is discarded as it comes, an
    /// untaken stdin is closed, and its slot is free when it has exited. A sink or control
    /// that lives keeps working, and dropping it no longer kills.
    ///
    /// Over an attach socket that holds until the client's [connection](crate::Client::connect) ends,
    /// which kills everything that the client has started, detached or not. What is to outlive it, or
    /// to be read by somebody else, is [left](Self::leave).
    pub fn detach(self) -> ExecId {
        self.lease.detach();
        self.lease.id()
    }

    /// Takes the handle apart.
    #[must_use = "dropping the parts kills the command"]
    pub fn split(self) -> ExecParts {
        ExecParts {
            stdin: self.stdin,
            stdout: self.stdout,
            stderr: self.stderr,
            exit: ExecExit { lease: self.lease },
        }
    }
}

impl ExecExit {
    /// The execution's id.
    #[must_use]
    pub fn id(&self) -> ExecId {
        self.lease.id()
    }

    /// Waits for the end; may be called again, and cancelling it does nothing.
    ///
    /// Unlike [`ExecHandle::wait`] it discards nothing: the end is known only after all output
    /// has been received, so somebody must read the readers, or drop them. That of a command that
    /// its timeout killed is not unconfirmed for that: time in which the guest waits for them does
    /// not count.
    ///
    /// # Errors
    /// As there.
    pub async fn wait(&mut self) -> Result<ExitStatus, ExecError> {
        self.lease.ended().await
    }

    /// Sends a signal; see [`ExecControl::signal`].
    ///
    /// # Errors
    /// As there.
    pub async fn signal(&self, signal: Signal) -> Result<(), ControlError> {
        self.lease.signal(signal).await
    }

    /// Gives its terminal another size; see [`ExecControl::resize`].
    ///
    /// # Errors
    /// As there.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), ControlError> {
        self.lease.resize(size).await
    }

    /// Kills everything in the execution; see [`ExecControl::kill`].
    pub fn kill(&self) {
        self.lease.kill();
    }

    /// A control; see [`ExecHandle::control`].
    #[must_use]
    pub fn control(&self) -> ExecControl {
        ExecControl::new(Arc::clone(&self.lease))
    }
}

fn last_event(terminal: &Terminal) -> ExecEvent {
    match outcome(terminal) {
        Ok(status) => ExecEvent::Exited(status),
        Err(ExecError::NotStarted(failure) | ExecError::Protocol(failure)) => {
            ExecEvent::Failed(failure)
        }
        Err(ExecError::VmGone { reason }) => ExecEvent::Failed(Failure::vm_gone(&reason)),
        Err(other) => ExecEvent::Failed(Failure::protocol(&other.to_string())),
    }
}

#[cfg(test)]
#[path = "handle_test.rs"]
mod tests;
