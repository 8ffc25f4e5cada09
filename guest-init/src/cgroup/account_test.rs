use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::{Account, Files, LEFT_MAX};

/// An account whose controls are files. Its group has to exist before they can, so it is made
/// beside them.
fn account(place: &Path) -> Account {
    let open = |file, flags| {
        fs::write(place.join(file), "").unwrap();
        rustix::fs::open(place.join(file), flags, Mode::empty()).unwrap()
    };
    Account {
        name: "account-1".to_owned(),
        files: Some(Files {
            group: parent(place),
            peak: open("memory.peak", OFlags::RDWR),
            events: open("memory.events", OFlags::RDONLY),
        }),
        oom_kills: 0,
    }
}

impl Account {
    /// One of a group that is not accounted for.
    pub(in crate::cgroup) fn stand_in(group: &Path) -> Self {
        let null = || OwnedFd::from(fs::File::open("/dev/null").unwrap());
        Self {
            name: group.file_name().unwrap().to_str().unwrap().to_owned(),
            files: Some(Files {
                group: parent(group),
                peak: null(),
                events: null(),
            }),
            oom_kills: 0,
        }
    }

    pub(in crate::cgroup) fn is_open(&self) -> bool {
        self.files.is_some()
    }
}

fn parent(place: &Path) -> OwnedFd {
    rustix::fs::open(place, OFlags::PATH, Mode::empty()).unwrap()
}

#[test]
fn a_group_without_accounting_is_no_account_and_is_not_left_behind() {
    let place = tempfile::tempdir().unwrap();
    let parent = parent(place.path());
    assert!(Account::make(parent.as_fd(), "account-1".to_owned()).is_err());
    assert!(!place.path().join("account-1").exists());
}

// B23: what an earlier execution suffered is not told of the next one.
#[test]
fn each_execution_has_its_own_victims() {
    let place = tempfile::tempdir().unwrap();
    let mut account = account(place.path());
    let victims = |n: u64| {
        let text = format!("oom 7\noom_kill {n}\noom_group_kill 7\n");
        fs::write(place.path().join("memory.events"), text).unwrap();
    };
    fs::write(place.path().join("memory.peak"), "1\n").unwrap();
    victims(0);
    assert_eq!(account.oom_killed(), Some(false));
    victims(2);
    assert_eq!(account.oom_killed(), Some(true));
    assert!(account.renew(parent(place.path()).as_fd()));
    assert_eq!(account.oom_killed(), Some(false));
    victims(3);
    assert_eq!(account.oom_killed(), Some(true));
}

#[test]
fn an_account_that_still_holds_much_is_not_used_again() {
    let place = tempfile::tempdir().unwrap();
    let mut account = account(place.path());
    fs::write(place.path().join("memory.events"), "oom_kill 0\n").unwrap();
    // The reset overwrites the first digit with a zero, which changes no number here.
    let held = |n: u64| fs::write(place.path().join("memory.peak"), format!("0{n}\n")).unwrap();
    held(LEFT_MAX);
    assert!(account.renew(parent(place.path()).as_fd()));
    assert_eq!(account.peak(), Some(LEFT_MAX));
    held(LEFT_MAX + 1);
    assert!(!account.renew(parent(place.path()).as_fd()));
}

#[test]
fn an_account_whose_peak_cannot_be_reset_is_used_once() {
    let place = tempfile::tempdir().unwrap();
    let mut account = account(place.path());
    fs::write(place.path().join("memory.events"), "oom_kill 0\n").unwrap();
    fs::write(place.path().join("memory.peak"), "0\n").unwrap();
    assert!(account.renew(parent(place.path()).as_fd()));
    let flags = OFlags::RDONLY;
    account.files.as_mut().unwrap().peak =
        rustix::fs::open(place.path().join("memory.peak"), flags, Mode::empty()).unwrap();
    assert!(!account.renew(parent(place.path()).as_fd()));
}

#[test]
fn an_account_whose_leaf_lives_on_takes_no_descriptors_until_it_is_used_again() {
    let place = tempfile::tempdir().unwrap();
    let mut account = account(place.path());
    let group = place.path().join("account-1");
    fs::create_dir(&group).unwrap();
    fs::write(group.join("memory.peak"), "07\n").unwrap();
    fs::write(group.join("memory.events"), "oom_kill 3\n").unwrap();
    account.close();
    assert!(account.files.is_none());
    assert!(account.renew(parent(place.path()).as_fd()));
    assert_eq!(account.peak(), Some(7));
    assert_eq!(account.oom_killed(), Some(false));
    // One that has gone meanwhile is none.
    account.close();
    fs::remove_dir_all(group).unwrap();
    assert!(!account.renew(parent(place.path()).as_fd()));
}
