//! This process's terminal while a command of the guest has it: raw, so that every key is the
//! command's, and as it was again afterwards.
//!
//! It is as it was when [`Raw`] is dropped: at the command's end, after an error, at the signals
//! that [`Signals`](crate::signals::Signals) takes, and after a panic, which unwinds. It is not after
//! SIGKILL, any other signal that ends a process, or a crash: then `stty sane` does it, or `reset`.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, bail};
use forebay::{ExecControl, TerminalSize};
use rustix::process::getpgrp;
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGCONT.
const CONTINUED: SignalKind = SignalKind::from_raw(18);

/// The terminal on stdin.
pub(crate) struct Terminal {
    tty: OwnedFd,
    resized: Signal,
    continued: Signal,
}

/// The terminal in raw mode. Dropping it brings the modes back that it had before.
pub(crate) struct Raw {
    terminal: Terminal,
    before: Termios,
}

impl Terminal {
    /// From here on a change of its size is not missed. Must be called within a runtime.
    ///
    /// # Errors
    /// Stdin is no terminal.
    pub(crate) fn of_stdin() -> Result<Self> {
        let stdin = io::stdin();
        if !isatty(&stdin) {
            bail!(
                "stdin is not a terminal, which -t and shell need; use run or exec without -t where \
                 stdin is a pipe or a file"
            );
        }
        let tty = stdin.as_fd().try_clone_to_owned();
        Self::new(tty.context("cannot duplicate stdin")?)
    }

    fn new(tty: OwnedFd) -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            tty,
            resized: listen(SignalKind::window_change())?,
            continued: listen(CONTINUED)?,
        })
    }

    /// Its size now; 24 × 80 for one that has none, such as a serial line.
    pub(crate) fn size(&self) -> TerminalSize {
        match tcgetwinsize(&self.tty) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => TerminalSize {
                rows: size.ws_row,
                cols: size.ws_col,
            },
            _ => TerminalSize::default(),
        }
    }

    /// Makes it raw.
    pub(crate) fn raw(self) -> io::Result<Raw> {
        let before = tcgetattr(&self.tty)?;
        // Made first, so that a change that fails half-way is undone too.
        let raw = Raw {
            terminal: self,
            before,
        };
        raw.enter()?;
        Ok(raw)
    }
}

impl Raw {
    fn enter(&self) -> io::Result<()> {
        let mut modes = self.before.clone();
        modes.make_raw();
        Ok(tcsetattr(&self.terminal.tty, OptionalActions::Now, &modes)?)
    }

    /// Lets the command's terminal follow this one's size, the newest however often it changes,
    /// until this is dropped.
    pub(crate) async fn follow(&mut self, control: &ExecControl) -> Infallible {
        loop {
            tokio::select! {
                _ = self.terminal.resized.recv() => {}
                // The shell took its terminal back while we stood still, and may have resized it.
                _ = self.terminal.continued.recv() => if self.is_ours() {
                    // Fails only when it is gone, which is seen where it is read.
                    let _ = self.enter();
                },
            }
            // Fails only when the command has ended, which is seen where that is waited for.
            let _ = control.resize(self.terminal.size()).await;
        }
    }

    /// Whether we are its foreground. Otherwise a shell has it and gave it modes of its own, and
    /// whoever sets others is stopped. A terminal that controls somebody else's session has no
    /// foreground for us, and no one to stop us.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.terminal.tty).map_or(true, |foreground| foreground == getpgrp())
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.is_ours() {
            // Fails only when the terminal is gone. At once, not after its output: one that is
            // stopped would hold us for ever.
            let _ = tcsetattr(&self.terminal.tty, OptionalActions::Now, &self.before);
        }
    }
}

#[cfg(test)]
#[path = "terminal_test.rs"]
mod tests;
