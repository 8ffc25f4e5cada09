//! What this process holds of the host, read from `/proc/self`.

use std::fs;
use std::time::{Duration, Instant};

use crate::pace::{CEILING, scaled};

/// How the names of the library's threads begin.
const LIBRARYS: &str = "forebay-";

/// How often [`HostUse::is_back`] looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Descriptors, threads and mappings of this process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostUse {
    /// What each open descriptor is, sorted; without the one that lists them.
    pub descriptors: Vec<String>,
    /// Names of the library's threads, sorted. (The test runner's own come and go.)
    pub threads: Vec<String>,
    /// Mappings of memory, of all kinds.
    pub mappings: usize,
}

impl HostUse {
    /// Now.
    ///
    /// # Panics
    /// Where there is no `/proc`.
    #[must_use]
    pub fn now() -> Self {
        let links = fs::read_dir("/proc/self/fd").expect("/proc is mounted");
        let mut descriptors: Vec<String> = links
            .flatten()
            // The directory itself is closed by the time its own entry is read.
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .map(|target| kind(&target.to_string_lossy()))
            .filter(|target| !target.starts_with("/proc/"))
            .collect();
        descriptors.sort();
        let tasks = fs::read_dir("/proc/self/task").expect("/proc is mounted");
        let mut threads: Vec<String> = tasks
            .flatten()
            // A thread may end while they are listed.
            .filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok())
            .map(|name| name.trim_end().to_owned())
            .filter(|name| name.starts_with(LIBRARYS))
            .collect();
        threads.sort();
        let mappings = read("maps").lines().count();
        Self {
            descriptors,
            threads,
            mappings,
        }
    }

    /// Waits until no VM of this process, nor anything that takes one apart, is left, and looks then.
    ///
    /// # Panics
    /// When that does not come.
    pub async fn without_vms() -> Self {
        let deadline = Instant::now() + scaled(CEILING);
        loop {
            let (now, guests) = (Self::now(), guest_mappings());
            if now.threads.is_empty() && guests == 0 {
                return now;
            }
            assert!(
                Instant::now() < deadline,
                "there are VMs: {now:?}, and {guests} mappings of guests"
            );
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until the process holds the descriptors and threads of this moment again, and no
    /// guest's memory. A thread that was joined is still listed for a moment.
    ///
    /// # Panics
    /// When that does not come; the message says what is left.
    pub async fn is_back(&self) {
        let deadline = Instant::now() + scaled(CEILING);
        loop {
            let (now, guests) = (Self::now(), guest_mappings());
            let same = now.descriptors == self.descriptors && now.threads == self.threads;
            if same && guests == 0 {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "held before: {self:?}; still held: {now:?}, and {guests} mappings of guests"
            );
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// Without the numbers that differ each time: `socket:[12345]` is `socket:`.
fn kind(target: &str) -> String {
    match target.split_once(":[") {
        Some((kind, number)) if number.trim_end_matches(']').parse::<u64>().is_ok() => {
            format!("{kind}:")
        }
        _ => target.to_owned(),
    }
}

/// Mappings of this process that hold guests' memory.
///
/// The library keeps that memory out of forked children and out of core dumps, which nothing else
/// in these programs does.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn guest_mappings() -> usize {
    Mapping::all()
        .iter()
        .filter(|mapping| mapping.guest)
        .count()
}

/// Bytes of memory that this process holds, without its guests' own memory.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn resident_beyond_guests() -> u64 {
    let mappings = Mapping::all();
    let ours = mappings.iter().filter(|mapping| !mapping.guest);
    ours.map(|mapping| mapping.resident).sum()
}

/// Bytes of its guests' own memory that this process holds.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn resident_in_guests() -> u64 {
    let mappings = Mapping::all();
    let guests = mappings.iter().filter(|mapping| mapping.guest);
    guests.map(|mapping| mapping.resident).sum()
}

/// Bytes of its guests' own memory that this process holds and shares with nobody: of a copy of a VM
/// the pages that it wrote, of another all that it touched.
///
/// # Panics
/// Where there is no `/proc`.
#[must_use]
pub fn private_in_guests() -> u64 {
    let mappings = Mapping::all();
    let guests = mappings.iter().filter(|mapping| mapping.guest);
    guests.map(|mapping| mapping.private).sum()
}

/// One entry of `smaps`, as far as it matters.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mapping {
    /// Of its first byte.
    address: u64,
    /// Bytes.
    resident: u64,
    /// Bytes of that in pages of no file. A file's own pages are shared, mapped once or often.
    private: u64,
    guest: bool,
}

impl Mapping {
    fn all() -> Vec<Self> {
        Self::parse(&read("smaps"))
    }

    /// The kernel writes the file in pieces, and goes on where a mapping ended: one that grew in
    /// between comes again, whole, from the same address. The later of the two is the one that counts.
    fn parse(smaps: &str) -> Vec<Self> {
        let mut mappings: Vec<Self> = Vec::new();
        let mut current = Self::default();
        for line in smaps.lines() {
            if let Some(address) = first_address(line) {
                current.address = address;
            } else if let Some(size) = line.strip_prefix("Rss:") {
                current.resident = bytes(size);
            } else if let Some(size) = line.strip_prefix("Anonymous:") {
                current.private = bytes(size);
            } else if let Some(flags) = line.strip_prefix("VmFlags:") {
                // The last line of an entry.
                let has = |wanted| flags.split_whitespace().any(|flag| flag == wanted);
                current.guest = has("dc") && has("dd") && !has("io");
                while mappings
                    .last()
                    .is_some_and(|m| m.address >= current.address)
                {
                    mappings.pop();
                }
                mappings.push(std::mem::take(&mut current));
            }
        }
        mappings
    }
}

/// Where the mapping lies that this line begins the entry of.
fn first_address(line: &str) -> Option<u64> {
    let (first, _) = line.split_once('-')?;
    u64::from_str_radix(first, 16).ok()
}

/// A size as `smaps` has it.
fn bytes(size: &str) -> u64 {
    let kib = size.trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap_or(0) * 1024
}

fn read(file: &str) -> String {
    let path = format!("/proc/self/{file}");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

#[cfg(test)]
#[path = "host_use_test.rs"]
mod tests;
