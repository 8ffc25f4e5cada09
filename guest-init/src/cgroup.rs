//! Control groups: one leaf per execution under one parent.
//!
//! The parent's limits leave memory and process numbers for the agent, which stays in the root
//! group. There it has half of each contended CPU, however many processes the executions have.
//!
//! ```text
//!  /sys/fs/cgroup                       PID 1
//!    forebay                            all executions: memory.max, pids.max
//!      7                                execution 7, which has limits: set here, and its figures
//!      account-1                        memory figures of one execution after the other
//!        8                              execution 8, which has none
//! ```
//!
//! A leaf holds everything that an execution started, whatever sessions and groups those processes
//! made, so that killing it misses none. A leaf whose leader has gone may still hold descendants,
//! which live on with whatever groups they made in it; the leaf is removed when the kernel reports
//! it empty. So there are never more leaves than processes, and the parent bounds those.
//!
//! Only an execution with limits has a leaf with controllers: they would make each command's round
//! trip a sixth longer. How the others' memory is accounted for: [`account`].
//!
//! The kernel chooses a victim among all executions when they are out of memory together, and
//! within one that has reached its own limit. It is a process, not the execution
//! (`memory.oom.group` stays off): a shell outlives its killed child and can say so. The agent is
//! never chosen; the kernel spares PID 1.

mod account;
mod freeze;
mod leaf;
mod removal;
mod reserve;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use forebay_exec_proto::ExecId;
use rustix::fs::{Mode, OFlags, ResolveFlags, inotify, openat2};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::fchdir;

use crate::console::{say, trace};
use crate::figures::Figures;

use account::Account;
use freeze::Freezing;
use leaf::Remains;
pub(crate) use leaf::{Leaf, is_limited, limits, unlimited};
use removal::{Progress, Removal};

/// Where the hierarchy is mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// To make, enter and remove groups in a group.
const GROUP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// System calls per turn for groups that commands made in their leaves.
const STEPS_PER_TURN: usize = 128;

/// Bytes of changes taken per turn, 16 for each.
const CHANGES: usize = 1024;

/// Accounts kept for executions to come; a burst of more makes its own.
const SPARE_ACCOUNTS: usize = 16;

/// The parent of all leaves, and the leaves that outlive their execution.
pub(crate) struct Parent {
    path: PathBuf,
    dir: OwnedFd,
    /// Reports changes of `cgroup.events` of the leaves below.
    watch: OwnedFd,
    /// This process's `/proc/self/fd`, opened before the first command. Inotify takes nothing but
    /// paths.
    open_files: OwnedFd,
    /// Leaves that were given back and not looked at yet.
    released: Vec<Remains>,
    /// Leaves that still hold processes, by watch.
    leftover: BTreeMap<i32, Remains>,
    /// Leaves without processes that hold groups.
    removals: VecDeque<Removal>,
    /// Leaves that can be neither removed nor watched; one is tried again with each that is
    /// released.
    stuck: VecDeque<Remains>,
    /// Ready for executions.
    accounts: Vec<Account>,
    /// Number of the next account; `None` where no memory is accounted for.
    next_account: Option<u64>,
    /// `cgroup.freeze`, open for writing: a guest that has no descriptor to spare can still be thawed.
    /// `None` where the kernel has no such control.
    freeze: Option<OwnedFd>,
    /// Everything is being frozen.
    freezing: Option<Freezing>,
}

impl Parent {
    /// Makes the parent group and sets its limits. A guest without control groups runs its
    /// executions all the same; then killing one reaches its process group only.
    pub(crate) fn create() -> Option<Self> {
        let root = Path::new(ROOT);
        let parent = enable(root).and_then(|()| Self::create_in(root));
        match parent {
            Ok(mut parent) => {
                parent.limit();
                Some(parent)
            }
            Err(error) => {
                say(format_args!(
                    "no control groups, executions are not contained: {error}"
                ));
                None
            }
        }
    }

    /// Makes the parent group in the hierarchy at `root`, without limits.
    pub(crate) fn create_in(root: &Path) -> io::Result<Self> {
        let path = root.join("forebay");
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let dir = rustix::fs::open(
            &path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let freeze = below(dir.as_fd(), "cgroup.freeze", OFlags::WRONLY).ok();
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let open_files = rustix::fs::open(
            "/proc/self/fd",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self {
            path,
            dir,
            watch,
            open_files,
            released: Vec::new(),
            leftover: BTreeMap::new(),
            removals: VecDeque::new(),
            stuck: VecDeque::new(),
            accounts: Vec::new(),
            next_account: None,
            freeze,
            freezing: None,
        })
    }

    /// Limits what all executions together may take, and lets each be limited and accounted for.
    fn limit(&mut self) {
        if let Err(error) = enable(&self.path) {
            say(format_args!("executions cannot be limited: {error}"));
        }
        let controllers = fs::read_to_string(self.path.join("cgroup.subtree_control"));
        if controllers.is_ok_and(|names| names.split_whitespace().any(|name| name == "memory")) {
            self.next_account = Some(1);
        }
        if let Some(limit) = reserve::memory() {
            self.set("memory.max", limit);
        }
        if let Some(limit) = reserve::processes() {
            self.set("pids.max", limit);
        }
    }

    fn set(&self, file: &str, value: u64) {
        if let Err(error) = fs::write(self.path.join(file), value.to_string()) {
            say(format_args!(
                "cannot set {file} of the executions to {value}: {error}"
            ));
        }
    }

    /// Makes the group of execution `id`, with controllers of its own if it is to be limited.
    pub(crate) fn leaf(&mut self, id: ExecId, limited: bool) -> Result<Leaf, Errno> {
        let account = if limited { None } else { self.account() };
        match Leaf::make(self.dir.as_fd(), id, account) {
            Ok(leaf) => Ok(leaf),
            Err((errno, account)) => {
                self.give_back(account);
                Err(errno)
            }
        }
    }

    /// An account for one execution. Without one, the execution's own group accounts for it.
    fn account(&mut self) -> Option<Account> {
        if let Some(account) = self.accounts.pop() {
            return Some(account);
        }
        let number = self.next_account?;
        let made = Account::make(self.dir.as_fd(), format!("account-{number}"));
        match made {
            Ok(account) => {
                self.next_account = number.checked_add(1);
                Some(account)
            }
            Err(errno) => {
                trace!("no account for an execution's memory: {errno}");
                None
            }
        }
    }

    /// Takes an account back, whose leaf is gone.
    fn give_back(&mut self, account: Option<Account>) {
        let Some(mut account) = account else {
            return;
        };
        if self.accounts.len() < SPARE_ACCOUNTS && account.renew(self.dir.as_fd()) {
            self.accounts.push(account);
        } else {
            self.discard(account);
        }
    }

    /// Has an account removed.
    fn discard(&mut self, account: Account) {
        self.released.push(Remains {
            path: account.name,
            account: None,
        });
    }

    /// Kills every process in every leaf, those of ended executions included.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        leaf::kill(self.dir.as_fd())
    }

    /// Gives a leaf back: [`tidy`](Self::tidy) removes it if it is empty, else when it becomes so.
    pub(crate) fn release(&mut self, leaf: Leaf) {
        self.released.push(leaf.remains);
        self.released.extend(self.stuck.pop_front());
    }

    /// Readable when a leaf may have become empty: then call [`take_changes`](Self::take_changes).
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Whether [`tidy`](Self::tidy) has something to do.
    pub(crate) fn is_untidy(&self) -> bool {
        !self.released.is_empty() || !self.removals.is_empty()
    }

    /// Learns which leaves may have become empty, up to a turn's share.
    pub(crate) fn take_changes(&mut self) {
        let mut room = [MaybeUninit::<u8>::uninit(); CHANGES];
        let mut reader = inotify::Reader::new(&self.watch, &mut room);
        while let Ok(event) = reader.next() {
            if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                // Any of them may have changed.
                self.released
                    .extend(std::mem::take(&mut self.leftover).into_values());
            } else {
                self.released.extend(self.leftover.remove(&event.wd()));
            }
            if reader.is_buffer_empty() {
                break;
            }
        }
    }

    /// Removes empty leaves, up to a turn's share beyond one look at each that is new.
    pub(crate) fn tidy(&mut self) {
        while let Some(leaf) = self.released.pop() {
            self.remove_or_keep(leaf);
        }
        let mut steps = STEPS_PER_TURN;
        while let Some(mut removal) = self.removals.pop_front() {
            match removal.advance(self.dir.as_fd(), &mut steps) {
                Progress::Gone => self.give_back(removal.into_leaf().account),
                Progress::Unfinished => {
                    self.removals.push_front(removal);
                    return;
                }
                Progress::Stuck => {
                    let leaf = removal.into_leaf();
                    if let Err(leaf) = self.watch_if_occupied(leaf) {
                        trace!("group {} cannot be removed", leaf.path);
                        self.stuck.push_back(leaf.at_rest());
                    }
                }
            }
        }
    }

    fn remove_or_keep(&mut self, leaf: Remains) {
        match leaf.remove(self.dir.as_fd()) {
            Ok(()) | Err(Errno::NOENT) => self.give_back(leaf.account),
            // A process or a group is in it, and the error is the same for both.
            Err(_) => {
                if let Err(leaf) = self.watch_if_occupied(leaf) {
                    self.removals.push_back(Removal::new(leaf));
                }
            }
        }
    }

    /// Keeps a leaf that holds processes until the kernel reports that it does not. Gives back one
    /// that holds none.
    fn watch_if_occupied(&mut self, leaf: Remains) -> Result<(), Remains> {
        let path = format!("{}/cgroup.events", leaf.path);
        let watched = match below(self.dir.as_fd(), &path, OFlags::RDONLY) {
            Err(Errno::NOENT) => return Err(leaf),
            Err(errno) => Err(errno),
            Ok(events) if !is_occupied(&events) => return Err(leaf),
            Ok(events) => match self.watch(&events) {
                // It may have become empty before the watch was set.
                Ok(_) if !is_occupied(&events) => return Err(leaf),
                watched => watched,
            },
        };
        let leaf = leaf.at_rest();
        match watched {
            Ok(watch) => {
                trace!("group {} outlives its execution", leaf.path);
                // The kernel drops the watch with the file.
                self.leftover.insert(watch, leaf);
            }
            Err(errno) => {
                trace!("group {} cannot be watched: {errno}", leaf.path);
                self.stuck.push_back(leaf);
            }
        }
        Ok(())
    }

    /// Has changes of an open file reported. By its number, from inside the directory of those: a
    /// path that is walked from the root goes through whatever commands mounted on the way.
    fn watch(&self, file: &OwnedFd) -> Result<i32, Errno> {
        let here = rustix::fs::open(".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        fchdir(&self.open_files)?;
        let number = file.as_raw_fd().to_string();
        let watch = inotify::add_watch(&self.watch, number, inotify::WatchFlags::MODIFY);
        fchdir(here)?;
        watch
    }

    #[cfg(test)]
    fn leftovers(&self) -> usize {
        self.released.len() + self.leftover.len() + self.removals.len() + self.stuck.len()
    }
}

/// Whether a process is in the group of these `cgroup.events` or below it. One of which that cannot
/// be learned counts as occupied.
fn is_occupied(events: &OwnedFd) -> bool {
    Figures::read(events).and_then(|events| events.get("populated ")) != Some(0)
}

/// Opens a file or group below `group`, of the same hierarchy: what a command mounted over a part of
/// the way is not entered, for it could make PID 1 wait.
fn below(group: BorrowedFd<'_>, path: impl Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    let within = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    openat2(group, path, flags | OFlags::CLOEXEC, Mode::empty(), within)
}

/// Lets the groups in `group` be limited and accounted for. A kernel that lacks one of the
/// controllers still gives the others.
fn enable(group: &Path) -> io::Result<()> {
    let control = group.join("cgroup.subtree_control");
    if fs::write(&control, "+cpu +memory +pids").is_ok() {
        return Ok(());
    }
    for controller in ["+cpu", "+memory", "+pids"] {
        match fs::write(&control, controller) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Err(error) => say(format_args!("no control of {}: {error}", &controller[1..])),
            Ok(()) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "cgroup_test/place.rs"]
pub(crate) mod place;

#[cfg(test)]
#[path = "cgroup_test.rs"]
mod tests;
