//! What a command came to: how it ended, and all that it wrote.

use std::str::Utf8Error;

use serde::{Deserialize, Serialize};

use crate::status::ExitStatus;

/// How a command ended, with all that it wrote.
///
/// | a command | is |
/// |---|---|
/// | exits by itself, with whatever code | an output with that [`code`](ExitStatus::code) |
/// | is ended by a signal | an output with that [`signal`](ExitStatus::signal) |
/// | is killed by the guest's kernel for want of memory | an output with [`oom_killed`](ExitStatus::oom_killed) |
/// | takes longer than its timeout | [`ExecError::TimedOut`](crate::ExecError::TimedOut), which holds the output |
/// | had not left for the guest when its timeout was over | [`ExecError::NotStarted`](crate::ExecError::NotStarted), which [says so](crate::Failure::is_timeout) |
/// | never started | [`ExecError::NotStarted`](crate::ExecError::NotStarted), which says why |
/// | was running when the VM ended | [`ExecError::VmGone`](crate::ExecError::VmGone): how it ended is not known |
///
/// The same holds for [`wait`](crate::ExecHandle::wait) and the bare [`ExitStatus`];
/// [`recv`](crate::ExecHandle::recv) says it by its last event.
///
/// # It exits
/// ```no_run
/// # async fn example(client: forebay_exec::Client) -> Result<(), forebay_exec::ExecError> {
/// let out = client.shell("echo no such user >&2; exit 3").await?;
/// if !out.status().success() {
///     assert_eq!(out.status().code(), Some(3));
///     assert_eq!(out.stderr_str(), Ok("no such user\n"));
/// }
/// # Ok(())
/// # }
/// ```
///
/// # A signal ends it
/// ```no_run
/// # async fn example(client: forebay_exec::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use forebay_exec::Signal;
/// let sleep = client.exec("sleep", ["1000"]).spawn().await?;
/// sleep.signal(Signal::TERM).await?;
/// let status = *sleep.collect().await?.status();
/// assert_eq!(status.signal(), Some(Signal::TERM));
/// assert_eq!(status.code(), None);
/// assert_eq!(status.to_string(), "ended by SIGTERM");
/// # Ok(())
/// # }
/// ```
///
/// # The guest's kernel kills it for want of memory
/// ```no_run
/// # async fn example(client: forebay_exec::Client) -> Result<(), forebay_exec::ExecError> {
/// // Zeros have no end of a line, so `tail` keeps them all.
/// let hog = client.exec("tail", ["/dev/zero"]).memory_limit(32 << 20);
/// let out = hog.await?;
/// assert_eq!(out.status().oom_killed(), Some(true));
/// assert_eq!(out.status().to_string(), "ended by SIGKILL (out of memory)");
/// # Ok(())
/// # }
/// ```
///
/// # It takes too long
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(client: forebay_exec::Client) -> Result<(), forebay_exec::ExecError> {
/// use forebay_exec::ExecError;
/// let slow = client.shell("echo begun; sleep 1000");
/// match slow.timeout(Duration::from_secs(1)).await {
///     Ok(out) => println!("in time: {}", out.status()),
///     Err(ExecError::TimedOut { limit, output }) => {
///         assert_eq!(limit, Duration::from_secs(1));
///         assert!(output.status().timed_out());
///         assert_eq!(output.stdout(), b"begun\n");
///     }
///     // It may still run: the guest has not said within 5 s that it is dead.
///     Err(ExecError::Unconfirmed { stdout, .. }) => assert_eq!(stdout, b"begun\n"),
///     Err(other) => return Err(other),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # It never started
/// ```no_run
/// # async fn example(client: forebay_exec::Client) -> Result<(), forebay_exec::ExecError> {
/// use forebay_exec::{ExecError, FailureKind};
/// match client.exec("frobnicate", ["--fast"]).await {
///     Err(ExecError::NotStarted(failure)) if failure.kind == FailureKind::NotFound => {
///         eprintln!("it is not installed in the guest: {failure}");
///     }
///     Err(ExecError::NotStarted(failure)) => {
///         // Such as `chdir` and ENOENT for a working directory that is not there.
///         eprintln!("{} failed: {:?}", failure.stage, failure.errno_name());
///     }
///     other => println!("{}", other?.status()),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # The VM ends first
/// ```no_run
/// # async fn example(client: forebay_exec::Client) -> Result<(), forebay_exec::ExecError> {
/// use forebay_exec::ExecError;
/// match client.exec("make", ["test"]).await {
///     Err(ExecError::VmGone { reason }) => {
///         // It may have run in part, or to its end.
///         eprintln!("to be tried again in another VM: {reason}");
///     }
///     other => println!("{}", other?.status()),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # As data
/// Serialized as `status`, `stdout` and `stderr`. The outputs are bytes, which formats without
/// them, such as JSON, show as arrays of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOutput {
    pub(crate) status: ExitStatus,
    #[serde(with = "as_bytes")]
    pub(crate) stdout: Vec<u8>,
    #[serde(with = "as_bytes")]
    pub(crate) stderr: Vec<u8>,
}

/// A vector as bytes instead of a list of numbers.
mod as_bytes {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    /// Takes the list of numbers as well.
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        Bytes::deserialize(deserializer).map(Vec::from)
    }
}

impl ExecOutput {
    /// How it ended.
    #[must_use]
    pub fn status(&self) -> &ExitStatus {
        &self.status
    }

    /// All bytes of its stdout.
    #[must_use]
    pub fn stdout(&self) -> &[u8] {
        &self.stdout
    }

    /// All bytes of its stderr.
    #[must_use]
    pub fn stderr(&self) -> &[u8] {
        &self.stderr
    }

    /// Its stdout as text.
    ///
    /// # Errors
    /// It is not UTF-8; the error says from which byte on.
    pub fn stdout_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.stdout)
    }

    /// Its stderr as text.
    ///
    /// # Errors
    /// It is not UTF-8; the error says from which byte on.
    pub fn stderr_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.stderr)
    }

    /// Stdout and stderr, without a copy.
    #[must_use]
    pub fn into_streams(self) -> (Vec<u8>, Vec<u8>) {
        (self.stdout, self.stderr)
    }
}
