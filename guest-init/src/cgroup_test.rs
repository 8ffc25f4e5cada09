use super::{MIB, leave_room, meminfo, memory_limit};

#[test]
fn the_agent_keeps_a_reserve_of_memory() {
    assert_eq!(memory_limit(240 * MIB, 200 * MIB), 188 * MIB);
    assert_eq!(memory_limit(60 * MIB, 40 * MIB), 32 * MIB);
    // In a guest too small for the reserve, half.
    assert_eq!(memory_limit(20 * MIB, 10 * MIB), 5 * MIB);
}

#[test]
fn figures_of_meminfo_are_read_by_their_whole_name() {
    let text = "MemTotal:         246228 kB\nMemFree:    7 kB\nMemAvailable:   200 kB\nHuge:  5\n";
    assert_eq!(meminfo(text, "MemTotal:"), Some(246_228 * 1024));
    assert_eq!(meminfo(text, "MemAvailable:"), Some(200 * 1024));
    assert_eq!(meminfo(text, "Available:"), None);
    assert_eq!(meminfo(text, "Huge:"), None);
}

#[test]
fn the_agent_keeps_room_for_processes() {
    assert_eq!(leave_room(32_768), 28_672);
    assert_eq!(leave_room(128), 96);
    assert_eq!(leave_room(40), 20);
}

/// What needs a control group hierarchy that may be changed. Hosts without one leave these to the
/// tests inside a guest, and say so.
mod hierarchy {
    use std::fs;
    use std::os::fd::AsFd as _;
    use std::path::Path;

    use forebay_exec_proto::{ExecId, Request, StdinMode};
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::mount::{UnmountFlags, mount_bind, unmount};

    use super::super::place::Place;
    use super::super::{Parent, STEPS_PER_TURN};
    use crate::command::{Command, Defaults};
    use crate::reaper::{Exit, reap};
    use crate::spawn::{Child, Spawner};

    fn shell(leaf: &super::super::Leaf, script: &str) -> Child {
        let request = Request {
            argv: ["sh", "-c", script]
                .map(|word| word.as_bytes().to_vec().into())
                .into(),
            ..Request::default()
        };
        let command = Command::new(&request, &Defaults::default()).unwrap();
        Spawner::new()
            .unwrap()
            .spawn(&command, StdinMode::Null, Some(leaf.as_fd()))
            .unwrap()
    }

    fn ended(child: &Child) -> Exit {
        poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], None).unwrap();
        reap(child.pidfd.as_fd()).unwrap()
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
        let leaf = parent.leaf(id(1)).unwrap();
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
        let leaf = parent.leaf(id(2)).unwrap();
        // The leader waits for a child that has a session of its own.
        let child = shell(&leaf, "setsid sleep 1000 & echo started; wait");
        poll(&mut [PollFd::new(&child.stdout, PollFlags::IN)], None).unwrap();
        leaf.kill().unwrap();
        assert_eq!(ended(&child), Exit::Signal(9));
        // The pipe ends when the last process that held it is gone.
        loop {
            match rustix::io::read(&child.stdout, &mut [0; 64]) {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => drop(poll(&mut [PollFd::new(&child.stdout, PollFlags::IN)], None)),
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
        let leaf = parent.leaf(id(3)).unwrap();
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
    fn groups_that_a_command_made_go_with_its_leaf() {
        let Some((place, mut parent)) = Place::find("nested") else {
            return;
        };
        let leaf = parent.leaf(id(4)).unwrap();
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
        let leaf = parent.leaf(id(5)).unwrap();
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
        let leaf = parent.leaf(id(6)).unwrap();
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
        let leaf = parent.leaf(id(7)).unwrap();
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
        let next = parent.leaf(id(8)).unwrap();
        parent.release(next);
        parent.tidy();
        assert_eq!(parent.leftovers(), 0);
        assert!(!place.leaf(id(7)).exists());
    }
}
