//! The kernel's command line: ours, and what the caller adds.

use std::ffi::CString;

use linux_loader::cmdline::{Cmdline, Error};

use crate::error::UsageError;
use crate::layout::COMMAND_LINE_MAX;

/// What every guest gets, in order:
/// - `console=hvc0`: port 0 of the console device is the console;
/// - `quiet`: each line of console output costs the guest exits, hundreds of lines cost half the boot;
/// - `panic=-1`: a panic ends the VM at once;
/// - `pci=off`: there is no PCI bus, do not look for one (230 exits);
/// - `8250.nr_uarts=0`: do not look for serial ports (62 exits);
/// - `noreplace-smp`: leave the lock prefixes in place, patching them out costs more than they do.
const BASE: &str = "console=hvc0 quiet panic=-1 pci=off 8250.nr_uarts=0 noreplace-smp";

/// A complete command line, known to be one the kernel takes whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandLine(CString);

impl CommandLine {
    /// Ours, then `additions` separated by blanks: the kernel lets the last word on a parameter win.
    pub(crate) fn new<'a>(
        additions: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, UsageError> {
        let build =
            |words: &mut dyn Iterator<Item = &'a str>| -> Result<CString, (Error, &'a str)> {
                let mut line = Cmdline::new(COMMAND_LINE_MAX).map_err(|e| (e, ""))?;
                line.insert_str(BASE).map_err(|e| (e, BASE))?;
                for words in words {
                    if !words.trim().is_empty() {
                        line.insert_str(words).map_err(|e| (e, words))?;
                    }
                }
                line.as_cstring().map_err(|e| (e, ""))
            };
        build(&mut additions.into_iter())
            .map(Self)
            .map_err(|(error, words)| {
                let bound = match error {
                    Error::TooLarge => format!(
                        "the whole command line, `{BASE}` included, must be shorter than \
                         {COMMAND_LINE_MAX} bytes"
                    ),
                    _ => "only printable ASCII is allowed".to_owned(),
                };
                UsageError::new("cmdline", words, bound)
            })
    }

    /// The line with its NUL.
    pub(crate) fn as_bytes_with_nul(&self) -> &[u8] {
        self.0.as_bytes_with_nul()
    }
}

#[cfg(test)]
#[path = "cmdline_test.rs"]
mod tests;
