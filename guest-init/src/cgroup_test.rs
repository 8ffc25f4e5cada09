//! These need a control group hierarchy that may be changed. Hosts without one leave them to the
//! tests inside a guest, and say so.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;

use forebay_exec_proto::{ExecId, Request, StdinMode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use super::account::Account;
use super::leaf::Remains;
use super::place::Place;
use super::{Parent, STEPS_PER_TURN};
use crate::command::{Command, Defaults};
use crate::reaper::{Exit, reap};
use crate::spawn::{Child, Spawner};

fn shell(leaf: &super::Leaf, script: &str) -> Child {
    let request = Request {
        argv: ["sh", "-c", script]
            .map(|word| word.as_bytes().to_vec().into())
            .into(),
        ..Request::default()
    };
    let command = Command::new(&request, &Defaults::default()).unwrap();
    Spawner::new()
        .unwrap()
        .spawn(&command, StdinMode::Null, None, Some(leaf.as_fd()))
        .unwrap()
}

fn ended(child: &Child) -> Exit {
    poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], None).unwrap();
    reap(child.pidfd.as_fd()).unwrap().exit
}

/// Waits until every released leaf is gone.
fn settle(parent: &mut Parent) {
    while parent.leftovers() > 0 {
        let fd = parent.as_fd();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
        parent.take_changes();
        parent.tidy();
    }
}

fn id(n: u64) -> ExecId {
    ExecId::new(n).unwrap()
}

#[test]
fn a_leaf_is_removed_with_its_execution() {
    let Some((place, mut parent)) = Place::find("removed") else {
        return;
    };
    let leaf = parent.leaf(id(1), false).unwrap();
    let child = shell(&leaf, "exit 4");
    assert_eq!(ended(&child), Exit::Code(4));
    parent.release(leaf);
    parent.tidy();
    assert!(!place.leaf(id(1)).exists());
    assert_eq!(parent.leftovers(), 0);
}

#[test]
fn killing_a_leaf_reaches_a_process_that_left_its_session() {
    let Some((place, mut parent)) = Place::find("kill") else {
        return;
    };
    let leaf = parent.leaf(id(2), false).unwrap();
    // The leader waits for a child that has a session of its own.
    let child = shell(&leaf, "setsid sleep 1000 & echo started; wait");
    let stdout = child.streams.stdout.as_fd().unwrap();
    poll(&mut [PollFd::from_borrowed_fd(stdout, PollFlags::IN)], None).unwrap();
    leaf.kill().unwrap();
    assert_eq!(ended(&child), Exit::Signal(9));
    // The pipe ends when the last process that held it is gone.
    loop {
        match rustix::io::read(stdout, &mut [0; 64]) {
            Ok(0) => break,
            Ok(_) => {}
            Err(_) => drop(poll(
                &mut [PollFd::from_borrowed_fd(stdout, PollFlags::IN)],
                None,
            )),
        }
    }
    parent.release(leaf);
    parent.tidy();
    settle(&mut parent);
    assert!(!place.leaf(id(2)).exists());
}

#[test]
fn a_leaf_with_a_surviving_descendant_is_removed_when_that_ends() {
    let Some((place, mut parent)) = Place::find("survivor") else {
        return;
    };
    let leaf = parent.leaf(id(3), false).unwrap();
    let child = shell(&leaf, "sleep 1000 & exit 0");
    assert_eq!(ended(&child), Exit::Code(0));
    let kill = place.leaf(id(3)).join("cgroup.kill");
    parent.release(leaf);
    parent.tidy();
    assert!(place.leaf(id(3)).exists(), "it still holds a process");
    assert_eq!(parent.leftovers(), 1);
    fs::write(kill, "1").unwrap();
    settle(&mut parent);
    assert!(!place.leaf(id(3)).exists());
}

#[test]
fn a_leaf_that_outlives_its_execution_takes_no_descriptors() {
    let Some((place, mut parent)) = Place::find("at-rest") else {
        return;
    };
    fs::create_dir(place.group("account-1")).unwrap();
    parent
        .accounts
        .push(Account::stand_in(&place.group("account-1")));
    let leaf = parent.leaf(id(13), false).unwrap();
    let child = shell(&leaf, "sleep 1000 & exit 0");
    assert_eq!(ended(&child), Exit::Code(0));
    parent.release(leaf);
    parent.tidy();
    let account = |leaf: &Remains| leaf.account.as_ref().unwrap().is_open();
    let open: Vec<bool> = parent.leftover.values().map(account).collect();
    assert_eq!(open, [false]);
    fs::write(place.group("account-1").join("cgroup.kill"), "1").unwrap();
    settle(&mut parent);
    assert!(!place.group("account-1").exists());
}

#[test]
fn groups_that_a_command_made_go_with_its_leaf() {
    let Some((place, mut parent)) = Place::find("nested") else {
        return;
    };
    let leaf = parent.leaf(id(4), false).unwrap();
    fs::create_dir_all(place.leaf(id(4)).join("a/b")).unwrap();
    fs::create_dir(place.leaf(id(4)).join("c")).unwrap();
    parent.release(leaf);
    parent.tidy();
    assert!(!place.leaf(id(4)).exists());
}

#[test]
fn groups_of_a_surviving_descendant_stay_as_long_as_it_lives() {
    let Some((place, mut parent)) = Place::find("living") else {
        return;
    };
    let leaf = parent.leaf(id(5), false).unwrap();
    let child = shell(&leaf, "sleep 1000 & exit 0");
    assert_eq!(ended(&child), Exit::Code(0));
    let own = place.leaf(id(5)).join("empty/yet");
    fs::create_dir_all(&own).unwrap();
    parent.release(leaf);
    parent.tidy();
    assert!(own.exists(), "its process still lives");
    fs::write(place.leaf(id(5)).join("cgroup.kill"), "1").unwrap();
    settle(&mut parent);
    assert!(!place.leaf(id(5)).exists());
}

#[test]
fn more_groups_than_a_turn_removes_go_in_several() {
    let Some((place, mut parent)) = Place::find("many") else {
        return;
    };
    let leaf = parent.leaf(id(6), false).unwrap();
    let mut deep = place.leaf(id(6)).join("deep");
    for n in 0..STEPS_PER_TURN {
        fs::create_dir_all(place.leaf(id(6)).join(format!("wide/{n}"))).unwrap();
        deep.push("x");
    }
    fs::create_dir_all(deep).unwrap();
    parent.release(leaf);
    let mut left = groups(&place.leaf(id(6)));
    let mut turns = 0;
    loop {
        parent.tidy();
        turns += 1;
        let now = groups(&place.leaf(id(6)));
        assert!(left - now <= STEPS_PER_TURN, "{left} to {now} in a turn");
        left = now;
        if !parent.is_untidy() {
            break;
        }
    }
    assert!(!place.leaf(id(6)).exists(), "{left} groups are left");
    assert!(turns > 2);
}

/// Groups from `root` down, itself included.
fn groups(root: &Path) -> usize {
    let below = fs::read_dir(root).into_iter().flatten().flatten();
    let dirs = below.filter(|entry| entry.file_type().unwrap().is_dir());
    usize::from(root.exists()) + dirs.map(|dir| groups(&dir.path())).sum::<usize>()
}

#[test]
fn what_a_command_mounted_in_its_leaf_is_left_alone() {
    let Some((place, mut parent)) = Place::find("mount") else {
        return;
    };
    let leaf = parent.leaf(id(7), false).unwrap();
    let over = place.leaf(id(7)).join("a");
    fs::create_dir(&over).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let kept = elsewhere.path().join("kept");
    fs::create_dir(&kept).unwrap();
    if let Err(error) = mount_bind(elsewhere.path(), &over) {
        return eprintln!("nothing can be mounted here ({error}): not tested");
    }
    parent.release(leaf);
    parent.tidy();
    let untidy = parent.is_untidy();
    unmount(&over, UnmountFlags::DETACH).unwrap();
    assert!(kept.exists());
    assert!(!untidy, "it would be tried for ever");
    // The next one that is given back reminds of it.
    let next = parent.leaf(id(8), false).unwrap();
    parent.release(next);
    parent.tidy();
    assert_eq!(parent.leftovers(), 0);
    assert!(!place.leaf(id(7)).exists());
}

// A pipe that nobody writes to, opened by its name, would stop PID 1 for ever.
#[test]
fn what_a_command_mounted_over_its_leafs_files_is_not_read() {
    let Some((place, mut parent)) = Place::find("over-events") else {
        return;
    };
    let leaf = parent.leaf(id(10), false).unwrap();
    let child = shell(&leaf, "sleep 1000 & exit 0");
    assert_eq!(ended(&child), Exit::Code(0));
    let elsewhere = tempfile::tempdir().unwrap();
    let pipe = elsewhere.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let over = place.leaf(id(10)).join("cgroup.events");
    if let Err(error) = mount_bind(&pipe, &over) {
        return eprintln!("nothing can be mounted here ({error}): not tested");
    }
    parent.release(leaf);
    parent.tidy();
    unmount(&over, UnmountFlags::DETACH).unwrap();
    assert_eq!(parent.leftovers(), 1, "its process still lives");
    assert!(!parent.is_untidy(), "it would be tried for ever");
    // Only now it can be watched.
    let next = parent.leaf(id(11), false).unwrap();
    parent.release(next);
    parent.tidy();
    fs::write(place.leaf(id(10)).join("cgroup.kill"), "1").unwrap();
    settle(&mut parent);
    assert!(!place.leaf(id(10)).exists());
}

#[test]
fn what_a_command_mounted_over_an_account_is_neither_entered_nor_in_the_way() {
    let Some((place, mut parent)) = Place::find("over-account") else {
        return;
    };
    let group = place.group("account-1");
    fs::create_dir(&group).unwrap();
    parent.accounts.push(Account::stand_in(&group));
    let elsewhere = tempfile::tempdir().unwrap();
    if let Err(error) = mount_bind(elsewhere.path(), &group) {
        return eprintln!("nothing can be mounted here ({error}): not tested");
    }
    let made = [id(12), id(13)].map(|id| {
        let leaf = parent.leaf(id, false).unwrap();
        let entered = fs::read_dir(elsewhere.path()).unwrap().count();
        (leaf, entered)
    });
    unmount(&group, UnmountFlags::DETACH).unwrap();
    // The account serves one at a time, so the second leaf stands alone.
    assert!(group.join("12").exists() && place.leaf(id(13)).exists());
    for (leaf, entered) in made {
        assert_eq!(entered, 0);
        parent.release(leaf);
    }
    parent.tidy();
    assert_eq!(parent.leftovers(), 0);
    assert!(!group.exists());
}

// As in a guest whose kernel lost the controller after the agent looked.
#[test]
fn a_leaf_that_can_have_no_account_stands_alone() {
    let Some((place, mut parent)) = Place::find("no-account") else {
        return;
    };
    parent.next_account = Some(1);
    let leaf = parent.leaf(id(9), false).unwrap();
    assert!(place.leaf(id(9)).exists());
    assert!(!place.group("account-1").exists());
    parent.release(leaf);
    parent.tidy();
    assert_eq!(parent.leftovers(), 0);
}
