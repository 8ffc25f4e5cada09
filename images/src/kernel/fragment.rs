//! A kernel configuration fragment: reading it, and checking that Kconfig took it.
//!
//! Kconfig silently drops an option whose dependencies are off or whose name has changed. A kernel
//! that lacks what the fragment says would fail in a guest, much later.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// A fragment's options, without its comments.
#[derive(Debug, Clone)]
pub struct Fragment {
    path: PathBuf,
    options: Vec<Setting>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    name: String,
    /// As written after the equals sign; `None` is an option that must be off.
    value: Option<String>,
}

impl Setting {
    fn parse(line: &str) -> Option<Self> {
        if let Some((name, value)) = line.split_once('=')
            && name.starts_with("CONFIG_")
        {
            return Some(Self {
                name: name.to_owned(),
                value: Some(value.to_owned()),
            });
        }
        let name = line.strip_prefix("# ")?.strip_suffix(" is not set")?;
        name.starts_with("CONFIG_").then(|| Self {
            name: name.to_owned(),
            value: None,
        })
    }

    fn line(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.name),
            None => format!("# {} is not set", self.name),
        }
    }
}

impl Fragment {
    /// The fragment of forebay's own guest kernel, as of this build of the crate.
    pub fn microvm() -> Self {
        Self::parse(
            "kernel-config/microvm.fragment",
            include_str!("../../../kernel-config/microvm.fragment"),
        )
    }

    /// The same for guests of several vCPUs that share processors with others: a vCPU that waits for a
    /// lock halts instead of spinning. It costs a guest of one vCPU 12 of 40 ms of its kernel's boot,
    /// and nothing is gained where each vCPU has a processor to itself; `docs/kernels.md` has the
    /// figures.
    pub fn microvm_shared_processors() -> Self {
        Self::microvm().with("CONFIG_PARAVIRT_SPINLOCKS", "y")
    }

    /// Sets one option, whatever the fragment said of it.
    fn with(mut self, name: &str, value: &str) -> Self {
        self.options.retain(|option| option.name != name);
        self.options.push(Setting {
            name: name.to_owned(),
            value: Some(value.to_owned()),
        });
        self
    }

    /// Reads a fragment from a file.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        Ok(Self::parse(path, &text))
    }

    fn parse(path: impl Into<PathBuf>, text: &str) -> Self {
        Self {
            path: path.into(),
            options: text
                .lines()
                .filter_map(|line| Setting::parse(line.trim_end()))
                .collect(),
        }
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The options alone, one per line, in the order written.
    pub fn normalised(&self) -> String {
        self.options.iter().fold(String::new(), |mut text, option| {
            text.push_str(&option.line());
            text.push('\n');
            text
        })
    }

    /// The lines that a finished `.config` does not honour. An option that must be off is off too
    /// when `.config` does not mention it, because something it depends on is off.
    pub fn missing_from(&self, config: &str) -> Vec<String> {
        let set: Vec<_> = config.lines().filter_map(Setting::parse).collect();
        self.options
            .iter()
            .filter(|wanted| {
                let found = set.iter().find(|setting| setting.name == wanted.name);
                found.and_then(|setting| setting.value.as_ref()) != wanted.value.as_ref()
            })
            .map(Setting::line)
            .collect()
    }
}

#[cfg(test)]
#[path = "fragment_test.rs"]
mod tests;
