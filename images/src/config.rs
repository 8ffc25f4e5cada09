//! How commands of an image run if nobody says otherwise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an image says about the commands in it; empty for one that says nothing.
///
/// The parts mean what they mean for container tools: the command is the entry point with the
/// arguments behind it, and arguments of the caller's take the place of [`cmd`](Self::cmd).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageConfig {
    /// Variables of the environment that commands start from.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Who runs them, as `user` or `user:group`, by names of the guest or by numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Their working directory, an absolute path in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// What every command line of the image begins with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// The arguments that are used where the caller gives none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
}

impl ImageConfig {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The image's own command line: program and arguments; empty if it names none.
    pub fn command(&self) -> Vec<String> {
        [&self.entrypoint[..], &self.cmd].concat()
    }
}
