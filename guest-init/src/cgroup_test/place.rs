//! A place in the host's hierarchy where tests may make groups.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_exec_proto::ExecId;

use super::Parent;

/// A group of its own for one test. Dropping it ends what is left in it.
pub(crate) struct Place {
    root: PathBuf,
}

impl Place {
    /// Hosts without a hierarchy that may be changed leave the test to the guest, and say so.
    pub(crate) fn find(name: &str) -> Option<(Self, Parent)> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mount = mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(words[1]))
        });
        let root = mount?.join(format!("forebay-test-{name}-{}", std::process::id()));
        match fs::create_dir(&root).and_then(|()| Parent::create_in(&root)) {
            Ok(parent) => Some((Self { root }, parent)),
            Err(error) => {
                eprintln!("no control groups can be made here ({error}): not tested");
                None
            }
        }
    }

    /// Where the leaf of execution `id` is.
    pub(crate) fn leaf(&self, id: ExecId) -> PathBuf {
        self.group(&id.to_string())
    }

    /// What the kernel says of the parent of all leaves.
    pub(crate) fn is_frozen(&self) -> bool {
        let events = fs::read_to_string(self.group("cgroup.events")).unwrap();
        events.lines().any(|line| line == "frozen 1")
    }

    /// Where a group beside the leaves is.
    pub(crate) fn group(&self, name: &str) -> PathBuf {
        self.root.join("forebay").join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::write(self.root.join("cgroup.kill"), "1");
        // What was killed leaves its group a moment later.
        for _ in 0..1000 {
            remove(&self.root);
            if !self.root.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}
