//! Removes a leaf together with the empty groups that its processes made in it.
//!
//! How many there are, and how deep, was up to the command, so the work is done a few steps at a
//! time. Nothing is remembered between two steps but the place: a group is left upwards when it
//! has nothing below, and then removed from above. Only the leaf's own hierarchy is entered, never
//! what a command mounted over a part of it.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags, RawDir, SeekFrom, seek, unlinkat};
use rustix::io::Errno;

use super::below;
use super::leaf::Remains;

/// Room for the names that one look into a group returns; one name is at most 255 bytes.
const NAMES: usize = 2048;

/// A leaf on its way out.
pub(super) struct Removal {
    leaf: Remains,
    /// The group whose children are being removed, and how far below the leaf it is. `None` before
    /// the first step.
    at: Option<(OwnedFd, usize)>,
    /// A group was entered because it could not be removed, and nothing in it was removed yet.
    fruitless: bool,
}

/// Where a removal stands after some steps.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The leaf is gone.
    Gone,
    /// There is more to do.
    Unfinished,
    /// Something that is no group below keeps it: a process that moved in, a mount.
    Stuck,
}

/// What became of the groups in one group.
enum Cleared {
    /// None is left.
    All,
    /// This one has groups of its own.
    Inside(OwnedFd),
}

/// Why clearing a group was given up for now.
enum Halt {
    OutOfSteps,
    Stuck,
}

impl Removal {
    pub(super) fn new(leaf: Remains) -> Self {
        Self {
            leaf,
            at: None,
            fruitless: false,
        }
    }

    /// The leaf, gone or not.
    pub(super) fn into_leaf(self) -> Remains {
        self.leaf
    }

    /// Goes on for at most `steps` system calls, give or take one look into a group, and takes
    /// what it used off them. `parent` is the directory that the leaf's path begins in.
    pub(super) fn advance(&mut self, parent: BorrowedFd<'_>, steps: &mut usize) -> Progress {
        loop {
            match self.step(parent, steps) {
                Ok(true) => return Progress::Gone,
                Ok(false) => {}
                Err(Halt::OutOfSteps) => return Progress::Unfinished,
                Err(Halt::Stuck) => return Progress::Stuck,
            }
        }
    }

    /// Clears one group and moves to the next. True when the leaf is gone.
    fn step(&mut self, parent: BorrowedFd<'_>, steps: &mut usize) -> Result<bool, Halt> {
        let (group, depth) = match self.at.take() {
            Some(at) => at,
            None => match enter(parent, self.leaf.path.as_str(), steps)? {
                Some(leaf) => (leaf, 0),
                None => return Ok(true),
            },
        };
        match clear(group.as_fd(), &mut self.fruitless, steps) {
            Ok(Cleared::Inside(below)) => self.at = Some((below, depth.saturating_add(1))),
            Ok(Cleared::All) if depth == 0 => {
                spend(steps)?;
                return match self.leaf.remove(parent) {
                    Ok(()) | Err(Errno::NOENT) => Ok(true),
                    Err(_) => Err(Halt::Stuck),
                };
            }
            // It would be entered again and again.
            Ok(Cleared::All) if self.fruitless => return Err(Halt::Stuck),
            Ok(Cleared::All) => match enter(group.as_fd(), "..", steps) {
                Ok(Some(above)) => self.at = Some((above, depth.saturating_sub(1))),
                Ok(None) => return Err(Halt::Stuck),
                Err(halt) => {
                    self.at = Some((group, depth));
                    return Err(halt);
                }
            },
            Err(halt) => {
                self.at = Some((group, depth));
                return Err(halt);
            }
        }
        Ok(false)
    }
}

/// Removes the groups in `group` until one has groups of its own.
fn clear(group: BorrowedFd<'_>, fruitless: &mut bool, steps: &mut usize) -> Result<Cleared, Halt> {
    spend(steps)?;
    // An earlier look may have ended in the middle.
    seek(group, SeekFrom::Start(0)).map_err(|_| Halt::Stuck)?;
    let mut names = [MaybeUninit::<u8>::uninit(); NAMES];
    let mut entries = RawDir::new(group, &mut names);
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(|_| Halt::Stuck)?;
        let name = entry.file_name();
        if entry.file_type() != FileType::Directory || name == c"." || name == c".." {
            continue;
        }
        spend(steps)?;
        match unlinkat(group, name, AtFlags::REMOVEDIR) {
            Ok(()) => *fruitless = false,
            Err(Errno::NOENT) => {}
            Err(_) => {
                if let Some(below) = enter(group, name, steps)? {
                    *fruitless = true;
                    return Ok(Cleared::Inside(below));
                }
            }
        }
    }
    Ok(Cleared::All)
}

/// Opens a group of the same hierarchy; `None` if it does not exist.
fn enter(
    from: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
    steps: &mut usize,
) -> Result<Option<OwnedFd>, Halt> {
    spend(steps)?;
    match below(from, name, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(group) => Ok(Some(group)),
        Err(Errno::NOENT) => Ok(None),
        Err(_) => Err(Halt::Stuck),
    }
}

fn spend(steps: &mut usize) -> Result<(), Halt> {
    *steps = steps.checked_sub(1).ok_or(Halt::OutOfSteps)?;
    Ok(())
}
