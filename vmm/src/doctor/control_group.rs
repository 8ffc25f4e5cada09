//! The limits that control groups put on this process: its own and those around it.
//!
//! Both versions of the interface are read, each controller where `/proc/self/cgroup` says that it
//! is. What cannot be read is no limit: a container may show none of the groups it is in.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// The groups of one process, by controller.
#[derive(Debug)]
pub(super) struct ControlGroups {
    mount: PathBuf,
    /// As `/proc/self/cgroup` shows them: number, controllers, path.
    listed: String,
}

/// What a group allows, in the unit of its controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) max: u64,
    pub(super) used: u64,
    /// The file that says so.
    pub(super) file: String,
}

impl Limit {
    pub(super) fn free(&self) -> u64 {
        self.max.saturating_sub(self.used)
    }
}

/// The files of a controller in one version of the interface.
struct Files {
    max: &'static str,
    used: &'static str,
    /// A file and a field in it of what is counted and would be given back at once.
    reclaimable: Option<(&'static str, &'static str)>,
}

const MEMORY_V1: Files = Files {
    max: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: Some(("memory.stat", "total_inactive_file")),
};
const MEMORY_V2: Files = Files {
    max: "memory.max",
    used: "memory.current",
    reclaimable: Some(("memory.stat", "inactive_file")),
};
/// The same in both versions.
const THREADS: Files = Files {
    max: "pids.max",
    used: "pids.current",
    reclaimable: None,
};

impl ControlGroups {
    pub(super) fn of_this_process() -> Self {
        Self {
            mount: MOUNT.into(),
            listed: fs::read_to_string("/proc/self/cgroup").unwrap_or_default(),
        }
    }

    /// The limit on memory that leaves the fewest bytes.
    pub(super) fn tightest_of_memory(&self) -> Option<Limit> {
        self.tightest("memory", &MEMORY_V1, &MEMORY_V2)
    }

    /// The limit on threads and processes that leaves the fewest.
    pub(super) fn tightest_of_threads(&self) -> Option<Limit> {
        self.tightest("pids", &THREADS, &THREADS)
    }

    fn tightest(&self, controller: &str, v1: &Files, v2: &Files) -> Option<Limit> {
        let mut limits = Vec::new();
        for line in self.listed.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            if controllers.is_empty() {
                // Beside version 1, version 2 is mounted one level below.
                limits.extend(read_all(&self.mount, path, v2));
                limits.extend(read_all(&self.mount.join("unified"), path, v2));
            } else if controllers.split(',').any(|name| name == controller) {
                limits.extend(read_all(&self.mount.join(controllers), path, v1));
            }
        }
        limits.into_iter().min_by_key(Limit::free)
    }
}

/// The limits of the group at `path` below `mount`, and of those around it.
fn read_all<'a>(
    mount: &'a Path,
    path: &'a str,
    files: &'a Files,
) -> impl Iterator<Item = Limit> + 'a {
    Path::new(path)
        .ancestors()
        .map(|group| mount.join(group.strip_prefix("/").unwrap_or(group)))
        .filter_map(|group| read(&group, files))
}

fn read(group: &Path, files: &Files) -> Option<Limit> {
    let number = |file| -> Option<u64> {
        let text = fs::read_to_string(group.join(file)).ok()?;
        text.trim().parse().ok()
    };
    // `max` is no number, and no limit; nor is what version 1 has instead, all of 63 bits' pages.
    let max = number(files.max).filter(|max| *max < i64::MAX as u64 / 2)?;
    let used = number(files.used).unwrap_or(0);
    let reclaimable = files.reclaimable.and_then(|(file, field)| {
        let text = fs::read_to_string(group.join(file)).ok()?;
        text.lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(' '))?
            .parse()
            .ok()
    });
    Some(Limit {
        max,
        used: used.saturating_sub(reclaimable.unwrap_or(0)),
        file: group.join(files.max).display().to_string(),
    })
}

#[cfg(test)]
#[path = "control_group_test.rs"]
mod tests;
