//! A terminal: the agent holds the master, the command has the slave as descriptors 0, 1 and 2 and
//! as its controlling terminal.
//!
//! The agent keeps a slave of its own until the leader has exited. Without it the master would
//! report an end whenever a command closes its three descriptors, though it can open `/dev/tty`
//! again and write on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_exec_proto::TerminalSize;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{InputModes, LocalModes, SpecialCodeIndex, Winsize, tcgetattr, tcsetwinsize};

use crate::failure::Stage;

/// More than a terminal holds for its master to read, which is about 22 KiB. What is read beyond it
/// after the leader's exit was written after the exit.
pub(crate) const HOLDS: usize = 64 * 1024;

/// Where terminals are made.
pub(crate) struct Terminals {
    /// The terminals' file system, opened before the first command, which could put something over
    /// it that makes PID 1 wait.
    pts: Result<OwnedFd, Errno>,
}

impl Terminals {
    /// Opens `/dev/pts`. Without it, commands that want a terminal do not start.
    pub(crate) fn open() -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self {
            pts: open("/dev/pts", flags, Mode::empty()),
        }
    }

    /// Both sides of a new one of this size.
    pub(crate) fn make(&self, size: TerminalSize) -> Result<Pty, (Stage, Errno)> {
        let pts = self.pts.as_ref().map_err(|errno| (Stage::Master, *errno))?;
        Pty::open(pts.as_fd(), size)
    }
}

/// Both sides of a new terminal.
pub(crate) struct Pty {
    /// Does not block.
    pub(crate) master: OwnedFd,
    /// Blocks, as programs expect.
    pub(crate) slave: OwnedFd,
}

impl Pty {
    /// A terminal of this size. It belongs to root and to group 5 (`tty`), mode 0620: see the
    /// options of `/dev/pts` in [`crate::boot`].
    fn open(pts: BorrowedFd<'_>, size: TerminalSize) -> Result<Self, (Stage, Errno)> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let within = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let master = openat2(pts, "ptmx", flags, Mode::empty(), within)
            .map_err(|errno| (Stage::Master, errno))?;
        unlockpt(&master).map_err(|errno| (Stage::Slave, errno))?;
        // By the master and not by a path: nothing that an image puts below /dev/pts is opened.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = ioctl_tiocgptpeer(&master, flags).map_err(|errno| (Stage::Slave, errno))?;
        resize(&master, size).map_err(|errno| (Stage::WindowSize, errno))?;
        Ok(Self { master, slave })
    }
}

/// Gives a terminal another size. The foreground process group gets SIGWINCH if it differs.
pub(crate) fn resize(master: impl AsFd, size: TerminalSize) -> Result<(), Errno> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(master, size)
}

/// How input of a terminal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndOfFile {
    /// The character that says so.
    pub(crate) character: u8,
    /// A line has been begun and not ended. The character then only hands that line out, and the
    /// next one is the end.
    pub(crate) line_open: bool,
}

/// How input would end now behind the byte that was typed last, if any was. `None` outside of
/// canonical mode and when the command has turned the character off: there is no end then.
///
/// A line that was erased again is taken for an open one; its end is said twice.
pub(crate) fn end_of_file(master: impl AsFd, last: Option<u8>) -> Option<EndOfFile> {
    // The master answers with the slave's modes.
    let modes = tcgetattr(master).ok()?;
    let code = |index| Some(modes.special_codes[index]).filter(|code| *code != DISABLED);
    let is_one_of = |codes: &[SpecialCodeIndex]| codes.iter().any(|index| code(*index) == last);
    if !modes.local_modes.contains(LocalModes::ICANON) {
        return None;
    }
    let line_open = match last {
        None | Some(b'\n') => false,
        Some(b'\r') if modes.input_modes.contains(InputModes::ICRNL) => false,
        Some(_) => {
            let signals = modes.local_modes.contains(LocalModes::ISIG)
                && !modes.local_modes.contains(LocalModes::NOFLSH);
            !(is_one_of(&LINE_ENDS) || signals && is_one_of(&LINE_FLUSHES))
        }
    };
    Some(EndOfFile {
        character: code(SpecialCodeIndex::VEOF)?,
        line_open,
    })
}

/// What ends a line beside a newline.
const LINE_ENDS: [SpecialCodeIndex; 3] = [
    SpecialCodeIndex::VEOF,
    SpecialCodeIndex::VEOL,
    SpecialCodeIndex::VEOL2,
];

/// What throws a line away, and sends a signal.
const LINE_FLUSHES: [SpecialCodeIndex; 3] = [
    SpecialCodeIndex::VINTR,
    SpecialCodeIndex::VQUIT,
    SpecialCodeIndex::VSUSP,
];

/// `_POSIX_VDISABLE`: no character does this.
const DISABLED: u8 = 0;

#[cfg(test)]
#[path = "pty_test.rs"]
mod tests;
