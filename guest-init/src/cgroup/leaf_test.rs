use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;

use forebay_exec_proto::{ExecId, FailureKind, Resources};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

use super::{Leaf, limits, unlimited};

const ALL: Resources = Resources {
    memory: Some(64 << 20),
    pids: Some(20),
    cpu_weight: Some(50),
    cpu_quota: Some(150_000),
};

/// A directory in place of a group, with files in place of its controls.
fn leaf(place: &Path, controls: &[&str]) -> Leaf {
    let parent: OwnedFd = rustix::fs::open(place, OFlags::PATH, Mode::empty()).unwrap();
    let leaf = match Leaf::make(parent.as_fd(), ExecId::new(7).unwrap(), None) {
        Ok(leaf) => leaf,
        Err((errno, _)) => panic!("{errno}"),
    };
    for control in controls {
        fs::write(place.join("7").join(control), "").unwrap();
    }
    leaf
}

#[test]
fn each_limit_goes_to_its_control_and_none_that_was_not_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let controls = [
        "memory.max",
        "memory.swap.max",
        "pids.max",
        "cpu.weight",
        "cpu.max",
    ];
    let leaf = leaf(place.path(), &controls);
    let read =
        || controls.map(|file| fs::read_to_string(place.path().join("7").join(file)).unwrap());
    leaf.limit(&Resources::default()).unwrap();
    assert_eq!(read(), ["", "", "", "", ""]);
    leaf.limit(&ALL).unwrap();
    assert_eq!(read(), ["67108864", "0", "20", "50", "150000 100000"]);
}

#[test]
fn a_limit_that_cannot_be_set_is_refused_by_the_name_of_its_control() {
    let one = |field: fn(&mut Resources)| {
        let mut limits = Resources::default();
        field(&mut limits);
        limits
    };
    for (limits, control) in [
        (one(|l| l.memory = ALL.memory), "memory.max"),
        (one(|l| l.pids = ALL.pids), "pids.max"),
        (one(|l| l.cpu_weight = ALL.cpu_weight), "cpu.weight"),
        (one(|l| l.cpu_quota = ALL.cpu_quota), "cpu.max"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let refused = leaf(place.path(), &[]).limit(&limits).unwrap_err();
        assert_eq!(refused.kind, FailureKind::ResourceLimit);
        assert_eq!(refused.stage, format!("cgroup({control})"));
        assert_eq!(refused.errno, Some(libc::ENOENT));
        assert!(refused.message.contains(control), "{}", refused.message);
        // Nor where there are no groups at all.
        let refused = unlimited(&limits).unwrap_err();
        assert_eq!(refused.kind, FailureKind::ResourceLimit);
        assert_eq!(refused.stage, format!("cgroup({control})"));
        assert_eq!(refused.errno, None);
    }
    unlimited(&Resources::default()).unwrap();
}

#[test]
fn a_guest_without_swap_needs_no_limit_of_it() {
    let place = tempfile::tempdir().unwrap();
    leaf(place.path(), &["memory.max"])
        .limit(&Resources {
            memory: Some(1 << 20),
            ..Resources::default()
        })
        .unwrap();
}

#[test]
fn what_a_request_says_replaces_what_the_vm_does_limit_by_limit() {
    let request = Resources {
        memory: Some(1 << 20),
        cpu_quota: Some(1000),
        ..Resources::default()
    };
    assert_eq!(
        limits(Some(&request), &ALL),
        Resources {
            pids: ALL.pids,
            cpu_weight: ALL.cpu_weight,
            ..request
        }
    );
    assert_eq!(limits(None, &ALL), ALL);
    assert_eq!(limits(Some(&request), &Resources::default()), request);
}

// It would be PID 1 that waits for a reader.
#[test]
fn what_a_command_put_over_a_control_is_not_written_to() {
    let place = tempfile::tempdir().unwrap();
    let leaf = leaf(place.path(), &["cgroup.kill", "other"]);
    let over = place.path().join("7/cgroup.kill");
    if let Err(error) = rustix::mount::mount_bind(place.path().join("7/other"), &over) {
        return eprintln!("nothing can be mounted here ({error}): not tested");
    }
    let done = leaf.kill();
    rustix::mount::unmount(&over, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!(done, Err(rustix::io::Errno::XDEV));
    assert_eq!(
        fs::read_to_string(place.path().join("7/other")).unwrap(),
        ""
    );
}

#[test]
fn what_it_used_is_read_from_the_controls_of_its_own_group() {
    let place = tempfile::tempdir().unwrap();
    let leaf = leaf(place.path(), &[]);
    assert_eq!(leaf.cpu(), (None, None));
    assert_eq!(leaf.peak_memory(), None);
    assert_eq!(leaf.oom_killed(), None);
    let write = |file, text| fs::write(place.path().join("7").join(file), text).unwrap();
    write("cpu.stat", "usage_usec 30\nuser_usec 10\nsystem_usec 20\n");
    write("memory.peak", "8192\n");
    write(
        "memory.events",
        "low 9\noom 9\noom_kill 0\noom_group_kill 9\n",
    );
    assert_eq!(leaf.cpu(), (Some(10), Some(20)));
    assert_eq!(leaf.peak_memory(), Some(8192));
    assert_eq!(leaf.oom_killed(), Some(false));
    write("memory.events", "oom 9\noom_kill 1\n");
    assert_eq!(leaf.oom_killed(), Some(true));
}
