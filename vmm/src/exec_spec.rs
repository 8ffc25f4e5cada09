//! What a VM's builder decides about executions, and whether a guest can live with it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use forebay_exec::{
    ByteVec, Config, ConfigError, EnvVar, GroupLimitError, GroupLimits, LimitError, Limits,
};

use forebay_images::ImageConfig;

use crate::error::UsageError;

/// Longest hostname that Linux takes, in bytes.
const HOSTNAME_MAX: usize = 64;

/// Unchecked values, as the caller gave them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExecSpec {
    pub(crate) hostname: Option<String>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) current_dir: Option<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) group: GroupLimits,
    pub(crate) allow_legacy_guest: bool,
}

impl ExecSpec {
    /// The same, where an image's word counts for what was not said.
    pub(crate) fn over(&self, image: &ImageConfig) -> Self {
        let of_image = image
            .env
            .iter()
            .map(|(key, value)| (key.into(), value.into()));
        Self {
            // Of a name that comes twice the last value counts.
            env: of_image.chain(self.env.iter().cloned()).collect(),
            current_dir: self
                .current_dir
                .clone()
                .or(image.workdir.as_ref().map(PathBuf::from)),
            ..self.clone()
        }
    }

    /// The same, checked. The limits check themselves when the hub is made.
    pub(crate) fn config(&self) -> Result<Config, UsageError> {
        if let Some(hostname) = &self.hostname {
            check_hostname(hostname)?;
        }
        Ok(Config {
            limits: self.limits,
            hostname: self.hostname.clone(),
            env: self.environment()?,
            cwd: self.directory()?,
            resources: self.group.check().map_err(refused_group)?,
            allow_legacy_guest: self.allow_legacy_guest,
            ..Config::default()
        })
    }

    fn environment(&self) -> Result<Vec<EnvVar>, UsageError> {
        let mut variables: Vec<EnvVar> = Vec::with_capacity(self.env.len());
        for (key, value) in &self.env {
            let name = key.as_bytes();
            if name.is_empty() || name.contains(&b'=') || name.contains(&0) {
                let bound = "a variable's name is not empty and has neither `=` nor NUL in it";
                return Err(UsageError::new("env", key.display(), bound));
            }
            if value.as_bytes().contains(&0) {
                let bound = "a variable's value has no NUL in it";
                return Err(UsageError::new("env", key.display(), bound));
            }
            variables.retain(|known| known.key.as_slice() != name);
            variables.push(EnvVar {
                key: ByteVec::from(name.to_vec()),
                value: ByteVec::from(value.as_bytes().to_vec()),
            });
        }
        Ok(variables)
    }

    fn directory(&self) -> Result<Option<ByteVec>, UsageError> {
        let Some(path) = &self.current_dir else {
            return Ok(None);
        };
        let bytes = path.as_os_str().as_bytes();
        if !path.is_absolute() || bytes.contains(&0) {
            let bound = "an absolute path in the guest is needed, without NUL";
            return Err(UsageError::new("current_dir", path.display(), bound));
        }
        Ok(Some(ByteVec::from(bytes.to_vec())))
    }
}

pub(crate) fn check_hostname(hostname: &str) -> Result<(), UsageError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if (1..=HOSTNAME_MAX).contains(&hostname.len()) && hostname.bytes().all(allowed) {
        Ok(())
    } else {
        Err(UsageError::new(
            "hostname",
            format!("{hostname:?}"),
            format!("1 to {HOSTNAME_MAX} letters, digits, `-` and `.`"),
        ))
    }
}

/// A limit of every execution's control group, by the name of the builder's method.
fn refused_group(error: GroupLimitError) -> UsageError {
    let field = match error.field {
        "memory_limit" => "exec_memory_limit",
        "process_limit" => "exec_process_limit",
        "cpu_weight" => "exec_cpu_weight",
        "cpu_limit" => "exec_cpu_limit",
        other => other,
    };
    UsageError::new(field, error.value, format!("{} is possible", error.bound))
}

/// What the hub refuses, as a refused value of the builder.
pub(crate) fn refused_config(error: ConfigError) -> UsageError {
    match error {
        ConfigError::Limits(LimitError {
            field,
            value,
            min,
            max,
        }) => UsageError::new(field, value, format!("{min} to {max} are possible")),
        ConfigError::TooLarge { size, limit } => UsageError::new(
            "env",
            format!("{size} bytes"),
            format!(
                "with hostname and working directory at most {limit} bytes; give large values to \
                 single executions"
            ),
        ),
        other => UsageError::new("exec_limits", other, "the hub takes no such configuration"),
    }
}

#[cfg(test)]
#[path = "exec_spec_test.rs"]
mod tests;
