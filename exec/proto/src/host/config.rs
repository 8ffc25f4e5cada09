//! What is decided about a connection before there is one.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::frame::{FRAME_MAX, HEADER_LEN};
use crate::limits::{LimitError, Limits};
use crate::message::{Bootstrap, ByteVec, EnvVar, Resources, encode};

/// A clock: the time since a fixed moment. Read under whatever lock guards the connection, so it has
/// to be cheap.
pub type Clock = fn() -> Duration;

/// What a VM's builder decides about its executions.
#[derive(Debug, Clone)]
pub struct Config {
    /// Limits, validated by the caller with [`Limits::validate`].
    pub limits: Limits,
    /// Hostname for the guest.
    pub hostname: Option<String>,
    /// Environment that every execution starts from.
    pub env: Vec<EnvVar>,
    /// Working directory of executions that name none.
    pub cwd: Option<ByteVec>,
    /// What each execution may take, where its request does not say.
    pub resources: Resources,
    /// Takes a guest whose Ready names no `exec_limits`; see [`Conn`](super::Conn) for what is
    /// left then.
    pub allow_legacy_guest: bool,
    /// What executions' deadlines, and the time that they wait, are measured by; monotonic. The
    /// default stands still.
    pub clock: Clock,
    /// The wall clock, since 1970, by which the guest's is set when it goes on. The default is zero.
    pub wall: Clock,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            hostname: None,
            env: Vec::new(),
            cwd: None,
            resources: Resources::default(),
            allow_legacy_guest: false,
            clock: || Duration::ZERO,
            wall: || Duration::ZERO,
        }
    }
}

/// A configuration that cannot work.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The limits contradict themselves.
    Limits(LimitError),
    /// Hostname, environment and working directory do not fit the one frame that carries them.
    TooLarge {
        /// Their size as encoded, in bytes.
        size: usize,
        /// The largest size that fits.
        limit: usize,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(error) => error.fmt(f),
            Self::TooLarge { size, limit } => write!(
                f,
                "the VM's environment, hostname and working directory take {size} bytes together, \
                 at most {limit} are possible; give large values to single executions"
            ),
        }
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// Checks everything that would otherwise fail at the first connection.
    ///
    /// # Errors
    /// What cannot work, with the value and its bound.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.limits.validate().map_err(ConfigError::Limits)?;
        let limit = FRAME_MAX.saturating_sub(HEADER_LEN);
        // The largest connection number takes the most bytes.
        let size = encode(&self.bootstrap(u64::MAX)).len();
        if size > limit {
            return Err(ConfigError::TooLarge { size, limit });
        }
        Ok(())
    }

    /// The first message of a connection.
    pub(super) fn bootstrap(&self, connection: u64) -> Bootstrap {
        Bootstrap {
            generation: crate::GENERATION,
            connection,
            limits: self.limits,
            hostname: self.hostname.clone(),
            env: self.env.clone(),
            cwd: self.cwd.clone(),
            resources: Some(self.resources).filter(|all| *all != Resources::default()),
        }
    }
}
