//! Control groups: one leaf per execution under one parent.
//!
//! The parent's limits leave memory and process numbers for the agent, which stays in the root
//! group. There it has half of each contended CPU, however many processes the executions have. A leaf holds everything that an execution started, whatever sessions and groups those
//! processes made, so that killing it misses none. A leaf whose leader has gone may still hold
//! descendants, which live on; the leaf is removed when the kernel reports it empty. So there are
//! never more leaves than processes, and the parent bounds those.
//!
//! Leaves have no controllers of their own: making one is a part of each start, and nothing reads
//! per-execution figures.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use forebay_exec_proto::ExecId;
use rustix::fs::{AtFlags, Mode, OFlags, inotify, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use crate::console::{say, trace};

/// Where the hierarchy is mounted.
const ROOT: &str = "/sys/fs/cgroup";

const MIB: u64 = 1 << 20;

/// Smallest memory left to the agent and the kernel: eight times what the agent has with all
/// executions running.
const RESERVE_MIN: u64 = 8 * MIB;

/// Groups below a leaf, made by its own processes, that are removed with it in one attempt.
const NESTED_MAX: usize = 1024;

/// The parent of all leaves, and the leaves that outlive their execution.
pub(crate) struct Parent {
    path: PathBuf,
    dir: OwnedFd,
    /// Reports changes of `cgroup.events` of the leaves below.
    watch: OwnedFd,
    /// Leaves that still hold processes, by watch.
    leftover: BTreeMap<i32, String>,
    /// Leaves for which the kernel had no watch; tried again whenever a leaf is released.
    unwatched: Vec<String>,
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
            leftover: BTreeMap::new(),
            unwatched: Vec::new(),
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

    /// Gives a leaf back: removed now if it is empty, else when it becomes so.
    pub(crate) fn release(&mut self, leaf: Leaf) {
        self.remove_or_watch(leaf.name);
        if let Some(name) = self.unwatched.pop() {
            self.remove_or_watch(name);
        }
    }

    fn remove_or_watch(&mut self, name: String) {
        if self.remove(&name) {
            return;
        }
        let events = self.path.join(&name).join("cgroup.events");
        match inotify::add_watch(&self.watch, &events, inotify::WatchFlags::MODIFY) {
            // It may have become empty before the watch was set.
            Ok(watch) if !self.remove(&name) => {
                trace!("group {name} outlives its execution");
                self.leftover.insert(watch, name);
            }
            Ok(_) => {}
            Err(_) => self.unwatched.push(name),
        }
    }

    /// Readable when a leaf may have become empty.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Removes the leaves that have become empty.
    pub(crate) fn handle_empty(&mut self) {
        let mut room = [MaybeUninit::<u8>::uninit(); 4096];
        let mut changed = Vec::new();
        let mut reader = inotify::Reader::new(&self.watch, &mut room);
        while let Ok(event) = reader.next() {
            changed.push(event.wd());
        }
        for watch in changed {
            if self
                .leftover
                .get(&watch)
                .is_some_and(|name| self.remove(name))
            {
                // The kernel drops the watch with the file.
                self.leftover.remove(&watch);
            }
        }
    }

    /// Removes a leaf, and what groups its processes made in it. False while it holds processes.
    fn remove(&self, name: &str) -> bool {
        match unlinkat(&self.dir, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => true,
            Err(_) => remove_nested(&self.path.join(name)),
        }
    }

    #[cfg(test)]
    fn leftovers(&self) -> usize {
        self.leftover.len() + self.unwatched.len()
    }
}

impl Leaf {
    /// Kills every process in the leaf and below.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        let file = openat(
            &self.dir,
            "cgroup.kill",
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::io::write(&file, b"1").map(drop)
    }
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

/// Removes an empty group that has groups below it, deepest first.
fn remove_nested(leaf: &Path) -> bool {
    let mut groups = vec![leaf.to_owned()];
    let mut next = 0;
    while let Some(group) = groups.get(next).cloned() {
        next += 1;
        let below = fs::read_dir(&group).into_iter().flatten().flatten();
        let dirs = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        groups.extend(
            dirs.map(|entry| entry.path())
                .take(NESTED_MAX.saturating_sub(groups.len())),
        );
    }
    // The parent of each group stands before it.
    groups
        .iter()
        .rev()
        .all(|group| fs::remove_dir(group).is_ok())
}

#[cfg(test)]
#[path = "cgroup_test.rs"]
mod tests;
