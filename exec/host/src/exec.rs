//! Building a request, and starting it.

use std::ffi::{OsStr, OsString};
use std::future::{Future, IntoFuture, poll_fn};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_exec_proto::host::{self, Event};

use crate::error::ExecError;
use crate::group_limits::GroupLimits;
use crate::handle::ExecHandle;
use crate::hub::Hub;
use crate::lease::{Lease, outcome};
use crate::output::ExecOutput;
use crate::resource::Resource;
use crate::status::ExitStatus;
use crate::terminal::TerminalSize;
use crate::waiting::Half;

mod request;

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
/// Made by [`Client::exec`](crate::Client::exec). A value that is set again replaces the first,
/// except where more are added: [`arg`](Self::arg), [`env`](Self::env), [`rlimit`](Self::rlimit).
/// What no guest could do is [`ExecError::InvalidRequest`] before anything is sent. How a command
/// may end, with an example of each, stands at [`ExecOutput`].
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(client: forebay_exec::Client) -> Result<(), forebay_exec::ExecError> {
/// use forebay_exec::{Resource, Stdin};
/// let out = client
///     .exec("sort", ["-u"])
///     .stdin(Stdin::bytes("b\na\nb\n"))
///     .env("LC_ALL", "C")
///     .current_dir("/tmp")
///     .user("nobody:nogroup")
///     .rlimit(Resource::Nofile, 64, 64)
///     .memory_limit(64 << 20)
///     .process_limit(16)
///     .timeout(Duration::from_secs(5))
///     .await?;
/// assert_eq!(out.stdout(), b"a\nb\n");
/// # Ok(())
/// # }
/// ```
///
/// # What is different from `std::process` and `tokio::process`
/// Names are theirs where the meaning is.
///
/// | there | here |
/// |---|---|
/// | methods borrow the `Command` | they take and give the value, so that a request is one expression; [`Clone`] it to run it twice |
/// | `spawn`, `output` and `status` act when called | nothing is sent before their future is polled; `.await` on the request itself is [`output`](Self::output) |
/// | `spawn` blocks until the program runs | it is a future; dropped, it kills what it began |
/// | stdin, stdout and stderr are inherited unless set | stdin is null unless set; stdout and stderr are always captured, each for itself |
/// | the environment is inherited, `env_clear` empties it | it is never the host program's: it is the guest's and the VM's, and what is set here |
/// | `current_dir` is the program's unless set | it is the VM's, in the guest |
/// | whose `PATH` finds the program depends on the platform | the one that the command will see, in the guest |
/// | `uid`, `gid`, `groups` | [`user`](Self::user), by number or by the guest's names |
/// | `process_group`, `setsid` in a `pre_exec` | each command has a session, a process group and a control group of its own |
/// | `pre_exec` for `setrlimit` and the like | [`rlimit`](Self::rlimit), [`memory_limit`](Self::memory_limit) and their like; no code of the host runs in the guest |
/// | `tokio::time::timeout` around it leaves the process | [`timeout`](Self::timeout) kills all of it, whether or not anybody polls |
/// | a child that is dropped runs on, unless `kill_on_drop` | it is killed, unless a sink or control lives or it was [detached](ExecHandle::detach) |
/// | `kill` reaches the one process, and may fail | it reaches all that the command started, needs no waiting, and after the end does nothing |
/// | `wait` never ends for a child whose full pipe nobody reads | [`wait`](ExecHandle::wait) discards what is unread |
/// | `id()` may be another process's after the end | a signal goes to this execution or to nobody |
/// | a program that nobody reads stands still when one of its pipes is full | when `output_limit` is reached, by stdout and stderr together |
/// | `ExitStatus::into_raw`, `core_dumped` | none; there is the signal's name, the [duration](ExitStatus::duration) and the [usage](ExitStatus::usage) |
#[derive(Debug, Clone)]
#[must_use = "nothing runs until this is awaited, or spawned and awaited"]
pub struct Exec {
    hub: Arc<Hub>,
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<OsString>,
    stdin: Stdin,
    user: Option<OsString>,
    terminal: Option<TerminalSize>,
    rlimits: Vec<(Resource, u64, u64)>,
    group: GroupLimits,
    timeout: Option<Duration>,
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
            user: None,
            terminal: None,
            rlimits: Vec::new(),
            group: GroupLimits::default(),
            timeout: None,
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

    /// Who runs the command: `app`, `1000`, `app:staff` or `1000:1001`. If never called it is the
    /// client's own ([`Client::with_user`](crate::Client::with_user)), else whom the VM's image names,
    /// else root.
    ///
    /// Looked up in the guest's own `/etc/passwd` and `/etc/group`. A user with an entry there has
    /// its groups, and its `HOME`, `USER`, `LOGNAME` and `SHELL` where the environment has none; a
    /// number needs no entry. A group that is given stands in place of all others. A name that the
    /// guest does not know is [`ExecError::NotStarted`], kind
    /// [`UserSetup`](crate::FailureKind::UserSetup).
    pub fn user(mut self, user: impl AsRef<OsStr>) -> Self {
        self.user = Some(user.as_ref().to_owned());
        self
    }

    /// Runs the command on a terminal of its own, of this size at first; see
    /// [`ExecHandle::resize`] for later. `TERM` is set, unless the environment has it.
    ///
    /// What it writes to either output comes on stdout: a terminal has but one. Stdin is typed
    /// into it, with its line editing and control characters until the command changes that: `^C`
    /// is the byte 3. Closing stdin types `^D`, as long as lines are edited; a [null](Stdin::null)
    /// stdin types nothing at all.
    pub fn terminal(mut self, size: TerminalSize) -> Self {
        self.terminal = Some(size);
        self
    }

    /// Limits what each process of the command may take of one resource, and what it may raise
    /// that to; [`Resource::UNLIMITED`] is no limit. Give each resource once, with `soft` at most
    /// `hard`. What is not given is as the guest has it.
    ///
    /// A value that the guest's kernel refuses is [`ExecError::NotStarted`], kind
    /// [`ResourceLimit`](crate::FailureKind::ResourceLimit).
    pub fn rlimit(mut self, resource: Resource, soft: u64, hard: u64) -> Self {
        self.rlimits.push((resource, soft, hard));
        self
    }

    /// Most memory that all its processes together may hold, in bytes, 1 MiB or more; the page
    /// cache that they fill counts, and is given up first. Whoever needs more is killed by the
    /// guest's kernel: see [`ExitStatus::oom_killed`].
    ///
    /// In place of the VM's default, as for the following three. [`u64::MAX`] is no limit.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.group.memory_limit = Some(bytes);
        self
    }

    /// Most processes and threads at a time, 1 to 4 194 304, the command itself included. To start
    /// one more fails with `EAGAIN` then.
    pub fn process_limit(mut self, most: u32) -> Self {
        self.group.process_limit = Some(most);
        self
    }

    /// Its share of CPUs that others want too, 1 to 10 000 against the 100 of an execution that
    /// says nothing. What nobody else wants it gets whatever its weight.
    pub fn cpu_weight(mut self, weight: u16) -> Self {
        self.group.cpu_weight = Some(weight);
        self
    }

    /// Most CPU time, in CPUs, 0.01 to 1024: `0.5` is 50 ms in each 100 ms, `2.0` is two CPUs. It
    /// stands still when that is used up.
    pub fn cpu_limit(mut self, cpus: f64) -> Self {
        self.group.cpu_limit = Some(cpus);
        self
    }

    /// Kills the command, and everything in its execution, when it takes longer than this; never
    /// if not called. More than zero, and at most 292 000 years; a later call replaces it.
    ///
    /// The time runs from the admission, which is the first poll of [`spawn`](Self::spawn) or of
    /// what stands for it, by the monotonic clock of this process. The VM's own thread keeps it,
    /// so it holds when nobody polls, when a `wait` was cancelled, when the handle was dropped
    /// with a control left, and after [`detach`](ExecHandle::detach). For a client of an attach
    /// socket the connection's thread does, and when that connection ends, all of the client's is
    /// killed, detached or not. A program that has not started by then is killed when it starts, and
    /// is not started if the guest has not taken its request yet: [`ExecError::NotStarted`] that
    /// [is a timeout](crate::Failure::is_timeout).
    ///
    /// [`wait`](ExecHandle::wait) and [`collect`](ExecHandle::collect), and what stands for them
    /// here, give [`ExecError::TimedOut`] when the guest has confirmed the end, with the output so
    /// far; [`recv`](ExecHandle::recv) gives the exit. If the guest does not confirm it within 5 s,
    /// not counting those in which it waits for output to be read, they give
    /// [`ExecError::Unconfirmed`], while `recv` and the readers wait on: to be raced with
    /// [`ExecExit::wait`](crate::ExecExit::wait) by who must not. A command that ends by itself at
    /// about its deadline, or by a SIGKILL from elsewhere, has the exit that it has, or the timeout;
    /// never both.
    ///
    /// The end is the report of the exit, which comes after the output before it. If that is read so
    /// late that the deadline passes in between, the exit stays what it was, but background jobs that
    /// the command left are killed.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
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
    /// [`ExecError::NotStarted`]. Or [`ExecError::Unconfirmed`], [`ExecError::Protocol`],
    /// [`ExecError::VmGone`].
    pub async fn spawn(self) -> Result<ExecHandle, ExecError> {
        let piped = self.stdin.0 == host::Stdin::Pipe;
        let (require_bounds, timeout) = (self.require_bounds, self.timeout);
        let (hub, request, stdin) = self.into_request()?;
        // Encoded before the lock is taken, and kept until it is free again: a refused start is
        // dropped by the hub, but the caller's stdin bytes must not end in there.
        let mut start = host::Start::new(request, stdin)?;
        if require_bounds {
            start = start.demanding_bounds();
        }
        if let Some(timeout) = timeout {
            start = start.with_timeout(timeout)?;
        }
        let id = hub.step(|inner| inner.start(start.clone()))?;
        // From here on a drop of this future is a drop of the last handle.
        let lease = Lease::new(hub, id);
        drop(start);
        tracing::debug!(exec = %id, "admitted");
        let first = poll_fn(|cx| {
            lease.poll(cx, Half::Events, |inner, id| {
                match inner.conn.next_event(id) {
                    Some(event) => Some(Ok(event)),
                    None => inner.conn.unconfirmed(id).map(Err),
                }
            })
        });
        match first.await {
            Ok(Event::Started { pid }) => {
                tracing::debug!(exec = %id, pid, "started");
                Ok(ExecHandle::new(lease, pid, piped))
            }
            Ok(Event::End(terminal)) => match outcome(&terminal) {
                Err(error) => Err(error),
                Ok(_) => Err(out_of_order("an exit came before the start")),
            },
            Ok(Event::Stdout(_) | Event::Stderr(_) | Event::StdinError(_)) => {
                Err(out_of_order("output came before the start"))
            }
            Err(limit) => Err(ExecError::Unconfirmed {
                limit,
                stdout: Vec::new(),
                stderr: Vec::new(),
            }),
        }
    }

    /// Runs the command to its end and gives all that it wrote. Memory grows with the output.
    ///
    /// A piped stdin is closed at once. Dropping the future kills the command.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn), and [`ExecError::TimedOut`], [`ExecError::Unconfirmed`],
    /// [`ExecError::Protocol`] or [`ExecError::VmGone`] later.
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
}

impl IntoFuture for Exec {
    type Output = Result<ExecOutput, ExecError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// [`Exec::output`].
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.output())
    }
}

/// The protocol core keeps the order; this is the answer should it ever not.
fn out_of_order(message: &str) -> ExecError {
    ExecError::Protocol(crate::Failure::protocol(message))
}

#[cfg(test)]
#[path = "exec_test.rs"]
mod tests;
