//! Building a request, and starting it.

use std::ffi::{OsStr, OsString};
use std::future::{Future, IntoFuture, poll_fn};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use forebay_exec_proto::host::{self, Event};
use forebay_exec_proto::{ByteVec, EnvVar, Request, StdinMode};

use crate::error::ExecError;
use crate::handle::ExecHandle;
use crate::hub::Hub;
use crate::lease::{Lease, outcome};
use crate::status::{ExecOutput, ExitStatus};
use crate::waiting::Half;

/// Where a command's stdin comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stdin(host::Stdin);

impl Stdin {
    /// Nowhere: the command sees the end of its input at once. The default.
    #[must_use]
    pub fn null() -> Self {
        Self(host::Stdin::Null)
    }

    /// From the sink that [`ExecHandle::take_stdin`] gives.
    #[must_use]
    pub fn piped() -> Self {
        Self(host::Stdin::Pipe)
    }

    /// These bytes, then the end. They are sent by the VM's own thread as the command reads
    /// them, with no help from the application.
    #[must_use]
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self(host::Stdin::Bytes(bytes.into()))
    }
}

/// A command to be run in the guest: a builder, and by `.await` its result.
///
/// Made by [`Client::exec`](crate::Client::exec). Names follow [`std::process::Command`]; what
/// is different:
///
/// * methods take and give the value, so that a request is one expression; nothing is sent
///   before [`spawn`](Self::spawn), [`output`](Self::output), [`status`](Self::status) or
///   `.await` is polled;
/// * stdin is null unless asked for; stdout and stderr are always captured, each for itself;
/// * the environment never comes from the host program: it is the VM's, plus what is set here;
/// * the program is looked up in the `PATH` that the command will see;
/// * dropping the handle kills the command (see [`ExecHandle`]).
#[derive(Debug, Clone)]
#[must_use = "nothing runs until this is awaited, or spawned and awaited"]
pub struct Exec {
    hub: Arc<Hub>,
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<OsString>,
    stdin: Stdin,
    require_bounds: bool,
}

impl Exec {
    pub(crate) fn new(hub: Arc<Hub>, program: &OsStr) -> Self {
        Self {
            hub,
            program: program.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            stdin: Stdin::null(),
            require_bounds: false,
        }
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// More arguments.
    pub fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable on top of the VM's environment. A later one of the same name wins.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Sets several variables.
    pub fn envs<I, K, V>(mut self, vars: I) -> Self
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let owned = |(k, v): (K, V)| (k.as_ref().to_owned(), v.as_ref().to_owned());
        self.env.extend(vars.into_iter().map(owned));
        self
    }

    /// The command's working directory, inside the guest; the VM's default if never called.
    pub fn current_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.cwd = Some(dir.as_ref().as_os_str().to_owned());
        self
    }

    /// Where stdin comes from; [`Stdin::null`] if never called.
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }

    /// Refuses to run, with [`ExecError::Unbounded`], in a guest that keeps none of the
    /// [`Limits`](crate::Limits): a legacy one, which only a VM has that was told to allow it. Over
    /// an attach socket that is so for every command.
    pub fn require_bounds(mut self) -> Self {
        self.require_bounds = true;
        self
    }

    /// Starts the command. Ready when the guest says that the program runs.
    ///
    /// The execution is admitted on the first poll; dropping the future after that kills what
    /// it started.
    ///
    /// # Errors
    /// Nothing was sent: [`ExecError::InvalidRequest`], [`ExecError::AtCapacity`],
    /// [`ExecError::TooLarge`], [`ExecError::NotReady`], [`ExecError::Unbounded`]. The program did not run:
    /// [`ExecError::NotStarted`]. Or [`ExecError::Protocol`], [`ExecError::VmGone`].
    pub async fn spawn(self) -> Result<ExecHandle, ExecError> {
        let piped = self.stdin.0 == host::Stdin::Pipe;
        let require_bounds = self.require_bounds;
        let (hub, request, stdin) = self.into_request()?;
        // Encoded before the lock is taken, and kept until it is free again: a refused start is
        // dropped by the hub, but the caller's stdin bytes must not end in there.
        let mut start = host::Start::new(request, stdin)?;
        if require_bounds {
            start = start.demanding_bounds();
        }
        let id = hub.step(|inner| inner.start(start.clone()))?;
        // From here on a drop of this future is a drop of the last handle.
        let lease = Lease::new(hub, id);
        drop(start);
        tracing::debug!(exec = %id, "admitted");
        let first =
            poll_fn(|cx| lease.poll(cx, Half::Events, |inner, id| inner.conn.next_event(id)));
        match first.await {
            Event::Started { pid } => {
                tracing::debug!(exec = %id, pid, "started");
                Ok(ExecHandle::new(lease, pid, piped))
            }
            Event::End(terminal) => match outcome(&terminal) {
                Err(error) => Err(error),
                Ok(_) => Err(out_of_order("an exit came before the start")),
            },
            Event::Stdout(_) | Event::Stderr(_) | Event::StdinError(_) => {
                Err(out_of_order("output came before the start"))
            }
        }
    }

    /// Runs the command to its end and gives all that it wrote. Memory grows with the output.
    ///
    /// A piped stdin is closed at once. Dropping the future kills the command.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn), and [`ExecError::Protocol`] or [`ExecError::VmGone`] later.
    /// A program that exits with a code other than 0 is no error.
    pub async fn output(self) -> Result<ExecOutput, ExecError> {
        self.spawn().await?.collect().await
    }

    /// Runs the command to its end and discards what it writes.
    ///
    /// A piped stdin is closed at once. Dropping the future kills the command.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    pub async fn status(self) -> Result<ExitStatus, ExecError> {
        self.spawn().await?.wait().await
    }

    /// Checks what no program could be given, and puts the rest in wire form.
    fn into_request(self) -> Result<(Arc<Hub>, Request, host::Stdin), ExecError> {
        if self.program.is_empty() {
            return Err(invalid("program", "is empty"));
        }
        let mut argv = Vec::with_capacity(self.args.len().saturating_add(1));
        argv.push(word(self.program, || "program".to_owned())?);
        for (index, arg) in self.args.into_iter().enumerate() {
            argv.push(word(arg, || format!("args[{index}]"))?);
        }
        let mut env = Vec::with_capacity(self.env.len());
        for (index, (key, value)) in self.env.into_iter().enumerate() {
            if key.is_empty() {
                return Err(invalid(format!("the name of env[{index}]"), "is empty"));
            }
            if key.as_bytes().contains(&b'=') {
                return Err(invalid(format!("the name of env[{index}]"), "contains '='"));
            }
            let key = word(key, || format!("the name of env[{index}]"))?;
            let value = word(value, || format!("the value of env[{index}]"))?;
            env.push(EnvVar { key, value });
        }
        let cwd = match self.cwd {
            Some(dir) if dir.is_empty() => return Err(invalid("current_dir", "is empty")),
            Some(dir) => Some(word(dir, || "current_dir".to_owned())?),
            None => None,
        };
        // The connection sets the stdin mode from the second argument of its `start`.
        let request = Request {
            argv,
            env,
            cwd,
            stdin: StdinMode::Null,
            ..Request::default()
        };
        Ok((self.hub, request, self.stdin.0))
    }
}

impl IntoFuture for Exec {
    type Output = Result<ExecOutput, ExecError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// [`Exec::output`].
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.output())
    }
}

fn word(text: OsString, field: impl FnOnce() -> String) -> Result<ByteVec, ExecError> {
    if text.as_bytes().contains(&0) {
        return Err(invalid(field(), "contains a NUL byte"));
    }
    Ok(ByteVec::from(text.into_vec()))
}

fn invalid(field: impl Into<String>, why: &'static str) -> ExecError {
    ExecError::InvalidRequest {
        field: field.into(),
        why,
    }
}

/// The protocol core keeps the order; this is the answer should it ever not.
fn out_of_order(message: &str) -> ExecError {
    ExecError::Protocol(crate::Failure::protocol(message))
}

#[cfg(test)]
#[path = "exec_test.rs"]
mod tests;
