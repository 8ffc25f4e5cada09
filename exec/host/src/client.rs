//! The door for applications.

use std::ffi::OsStr;
use std::sync::Arc;

use forebay_exec_proto::Limits;

use crate::exec::Exec;
use crate::hub::Hub;

/// Runs commands in one VM. Clones share the VM, its limits and its count of executions; a
/// clone costs a reference count. Dropping clients does nothing to the executions.
///
/// Nothing is spawned on the application's runtime, and any runtime will do: the futures here
/// need only to be polled. What was started goes on when they are not: output is received up
/// to the execution's allowance, and signals, discards and fixed stdin bytes are delivered.
#[derive(Debug, Clone)]
pub struct Client {
    hub: Arc<Hub>,
    user: Option<Arc<OsStr>>,
}

impl Client {
    /// A client of the VM behind `hub`.
    #[must_use]
    pub fn new(hub: Arc<Hub>) -> Self {
        Self { hub, user: None }
    }

    /// The same, but commands that name no user run as this one: see [`Exec::user`].
    #[must_use]
    pub fn with_user(self, user: impl AsRef<OsStr>) -> Self {
        let user = Some(user.as_ref().into());
        Self { user, ..self }
    }

    /// A command that runs `program` with `args`, without a shell. The program is looked up in
    /// the request's own `PATH`, inside the guest.
    ///
    /// Awaiting the value runs it to its end; see [`Exec`] for more.
    ///
    /// ```no_run
    /// # async fn example(client: forebay_exec::Client) -> Result<(), forebay_exec::ExecError> {
    /// let out = client.exec("sh", ["-c", "echo hello; exit 3"]).await?;
    /// assert_eq!(out.status().code(), Some(3));
    /// assert_eq!(out.stdout(), b"hello\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn exec<I, S>(&self, program: impl AsRef<OsStr>, args: I) -> Exec
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.program(program.as_ref()).args(args)
    }

    /// The closure form of [`exec`](Self::exec): `client.exec_with("env", |e| e.env("A", "1"))`.
    pub fn exec_with(&self, program: impl AsRef<OsStr>, build: impl FnOnce(Exec) -> Exec) -> Exec {
        build(self.program(program.as_ref()))
    }

    /// A command line for the guest's `sh`: `client.shell("ls /etc | wc -l")`. The status is
    /// that of `sh -c`: of the last command of a pipeline, and 127 instead of an error when a
    /// program is not found.
    pub fn shell(&self, line: impl AsRef<OsStr>) -> Exec {
        self.program(OsStr::new("sh")).arg("-c").arg(line)
    }

    /// As whom commands run that name no user, if it is not the agent.
    pub(crate) fn user(&self) -> Option<&Arc<OsStr>> {
        self.user.as_ref()
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    fn program(&self, program: &OsStr) -> Exec {
        let exec = Exec::new(Arc::clone(&self.hub), program);
        match &self.user {
            Some(user) => exec.user(user),
            None => exec,
        }
    }

    /// Executions that hold a slot of `max_executions` now, over all clients of the VM; one that
    /// was [connected](Self::connect) knows only of its own. A slot is held until the process has
    /// exited *and* its output was read or dropped.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.hub.active()
    }

    /// The limits of this VM.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.hub.limits()
    }
}
