//! Control groups: one leaf per execution under one parent.
//!
//! The parent's limits leave memory and process numbers for the agent, which stays in the root
//! group. There it has half of each contended CPU, however many processes the executions have.
//!
//! A leaf holds everything that an execution started, whatever sessions and groups those processes
//! made, so that killing it misses none. A leaf whose leader has gone may still hold descendants,
//! which live on with whatever groups they made in it; the leaf is removed when the kernel reports
//! it empty. So there are never more leaves than processes, and the parent bounds those.
//!
//! Leaves have no controllers of their own: making one is a part of each start, and nothing reads
//! per-execution figures.

mod removal;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use forebay_exec_proto::ExecId;
use rustix::fs::{AtFlags, Mode, OFlags, inotify, mkdirat, openat, unlinkat};
use rustix::io::{Errno, retry_on_intr};

use crate::console::{say, trace};

use removal::{Progress, Removal};

/// Where the hierarchy is mounted.
const ROOT: &str = "/sys/fs/cgroup";

const MIB: u64 = 1 << 20;

/// Smallest memory left to the agent and the kernel: eight times what the agent has with all
/// executions running.
const RESERVE_MIN: u64 = 8 * MIB;

/// System calls per turn for groups that commands made in their leaves.
const STEPS_PER_TURN: usize = 128;

/// Bytes of changes taken per turn, 16 for each.
const CHANGES: usize = 1024;

/// The parent of all leaves, and the leaves that outlive their execution.
pub(crate) struct Parent {
    path: PathBuf,
    dir: OwnedFd,
    /// Reports changes of `cgroup.events` of the leaves below.
    watch: OwnedFd,
    /// Leaves that were given back and not looked at yet.
    released: Vec<String>,
    /// Leaves that still hold processes, by watch.
    leftover: BTreeMap<i32, String>,
    /// Leaves without processes that hold groups.
    removals: VecDeque<Removal>,
    /// Leaves that can be neither removed nor watched; one is tried again with each that is
    /// released.
    stuck: VecDeque<String>,
}

/// One execution's group.
pub(crate) struct Leaf {
    name: String,
    dir: OwnedFd,
}

impl Parent {
    /// Makes the parent group and sets its limits. A guest without control groups runs its
    /// executions all the same; then killing one reaches its process group only.
    pub(crate) fn create() -> Option<Self> {
        let root = Path::new(ROOT);
        let parent = enable(root).and_then(|()| Self::create_in(root));
        match parent {
            Ok(parent) => {
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
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        Ok(Self {
            path,
            dir,
            watch,
            released: Vec::new(),
            leftover: BTreeMap::new(),
            removals: VecDeque::new(),
            stuck: VecDeque::new(),
        })
    }

    /// Limits what all executions together may take.
    fn limit(&self) {
        if let Err(error) = fs::write(self.path.join("cgroup.subtree_control"), "+cpu") {
            trace!("executions do not share the CPU fairly: {error}");
        }
        if let Some((total, available)) = memory() {
            self.set("memory.max", memory_limit(total, available));
        }
        if let Some(limit) = process_limit() {
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

    /// Makes the group of execution `id`.
    pub(crate) fn leaf(&self, id: ExecId) -> Result<Leaf, Errno> {
        let name = id.to_string();
        mkdirat(&self.dir, &name, Mode::from_raw_mode(0o755))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(&self.dir, &name, flags, Mode::empty()) {
            Ok(dir) => Ok(Leaf { name, dir }),
            Err(error) => {
                let _ = unlinkat(&self.dir, &name, AtFlags::REMOVEDIR);
                Err(error)
            }
        }
    }

    /// Kills every process in every leaf, those of ended executions included.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        kill(self.dir.as_fd())
    }

    /// Gives a leaf back: [`tidy`](Self::tidy) removes it if it is empty, else when it becomes so.
    pub(crate) fn release(&mut self, leaf: Leaf) {
        self.released.push(leaf.name);
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
        let mut released = std::mem::take(&mut self.released);
        for leaf in released.drain(..) {
            self.remove_or_keep(leaf);
        }
        // Nothing was added meanwhile; the list's allocation is kept.
        self.released = released;
        let mut steps = STEPS_PER_TURN;
        while let Some(mut removal) = self.removals.pop_front() {
            match removal.advance(self.dir.as_fd(), &mut steps) {
                Progress::Gone => {}
                Progress::Unfinished => {
                    self.removals.push_front(removal);
                    return;
                }
                Progress::Stuck => {
                    let leaf = removal.into_leaf();
                    if let Err(leaf) = self.watch_if_occupied(leaf) {
                        trace!("group {leaf} cannot be removed");
                        self.stuck.push_back(leaf);
                    }
                }
            }
        }
    }

    fn remove_or_keep(&mut self, leaf: String) {
        match unlinkat(&self.dir, &leaf, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
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
    fn watch_if_occupied(&mut self, leaf: String) -> Result<(), String> {
        if !self.is_occupied(&leaf) {
            return Err(leaf);
        }
        let events = self.path.join(&leaf).join("cgroup.events");
        match inotify::add_watch(&self.watch, &events, inotify::WatchFlags::MODIFY) {
            // It may have become empty before the watch was set.
            Ok(_) if !self.is_occupied(&leaf) => Err(leaf),
            Ok(watch) => {
                trace!("group {leaf} outlives its execution");
                // The kernel drops the watch with the file.
                self.leftover.insert(watch, leaf);
                Ok(())
            }
            Err(_) => {
                self.stuck.push_back(leaf);
                Ok(())
            }
        }
    }

    /// Whether a process is in a leaf or below it. One of which that cannot be learned counts as
    /// occupied.
    fn is_occupied(&self, leaf: &str) -> bool {
        match fs::read(self.path.join(leaf).join("cgroup.events")) {
            Ok(events) => events
                .split(|byte| *byte == b'\n')
                .all(|line| line != b"populated 0"),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    #[cfg(test)]
    fn leftovers(&self) -> usize {
        self.released.len() + self.leftover.len() + self.removals.len() + self.stuck.len()
    }
}

impl Leaf {
    /// Kills every process in the leaf and below.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        kill(self.dir.as_fd())
    }
}

fn kill(group: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(group, "cgroup.kill", flags, Mode::empty())?;
    retry_on_intr(|| rustix::io::write(&file, b"1")).map(drop)
}

/// For starting a process in the leaf.
impl AsFd for Leaf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Lets groups below the root be limited. A kernel that lacks one of the controllers still gives
/// the others.
fn enable(root: &Path) -> io::Result<()> {
    let control = root.join("cgroup.subtree_control");
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

/// The guest's memory, and what of it can be had without swapping, in bytes.
fn memory() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some((
        meminfo(&text, "MemTotal:")?,
        meminfo(&text, "MemAvailable:")?,
    ))
}

/// One figure of `/proc/meminfo`, in bytes.
fn meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What the executions may take of the memory that is `available` before the first one: all but
/// the larger of 8 MiB and a twentieth of the total, and never less than half. What the kernel and
/// the initramfs hold already is nobody's to limit.
fn memory_limit(total: u64, available: u64) -> u64 {
    let reserve = (total / 20).max(RESERVE_MIN);
    available.saturating_sub(reserve).max(available / 2)
}

/// What the executions may take of the kernel's process numbers.
fn process_limit() -> Option<u64> {
    let read = |path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let threads = read("/proc/sys/kernel/threads-max")?;
    let numbers = read("/proc/sys/kernel/pid_max")?;
    Some(leave_room(threads.min(numbers)))
}

/// All but the larger of 32 and an eighth, and never less than half.
fn leave_room(processes: u64) -> u64 {
    let reserve = (processes / 8).max(32);
    processes.saturating_sub(reserve).max(processes / 2)
}

#[cfg(test)]
#[path = "cgroup_test/place.rs"]
pub(crate) mod place;

#[cfg(test)]
#[path = "cgroup_test.rs"]
mod tests;
