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
    use std::path::PathBuf;

    use forebay_exec_proto::{ExecId, Request, StdinMode};
    use rustix::event::{PollFd, PollFlags, poll};

    use super::super::Parent;
    use crate::command::{Command, Defaults};
    use crate::reaper::{Exit, reap};
    use crate::spawn::{Child, Spawner};

    /// A parent of its own for each test, removed with it.
    struct Place {
        root: PathBuf,
        parent: Parent,
    }

    impl Place {
        fn find(name: &str) -> Option<Self> {
            let mounts = fs::read_to_string("/proc/mounts").unwrap();
            let mount = mounts.lines().find_map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                (words.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(words[1]))
            });
            let root = mount?.join(format!("forebay-test-{name}-{}", std::process::id()));
            match fs::create_dir(&root).and_then(|()| Parent::create_in(&root)) {
                Ok(parent) => Some(Self { root, parent }),
                Err(error) => {
                    eprintln!("no control groups can be made here ({error}): not tested");
                    None
                }
            }
        }

        fn leaf_dir(&self, id: ExecId) -> PathBuf {
            self.root.join("forebay").join(id.to_string())
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir(self.root.join("forebay"));
            let _ = fs::remove_dir(&self.root);
        }
    }

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

    fn id(n: u64) -> ExecId {
        ExecId::new(n).unwrap()
    }

    #[test]
    fn a_leaf_is_removed_with_its_execution() {
        let Some(mut place) = Place::find("removed") else {
            return;
        };
        let leaf = place.parent.leaf(id(1)).unwrap();
        let child = shell(&leaf, "exit 4");
        assert_eq!(ended(&child), Exit::Code(4));
        place.parent.release(leaf);
        assert!(!place.leaf_dir(id(1)).exists());
        assert_eq!(place.parent.leftovers(), 0);
    }

    #[test]
    fn killing_a_leaf_reaches_a_process_that_left_its_session() {
        let Some(mut place) = Place::find("kill") else {
            return;
        };
        let leaf = place.parent.leaf(id(2)).unwrap();
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
        place.parent.release(leaf);
        while place.parent.leftovers() > 0 {
            let fd = place.parent.as_fd();
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
            place.parent.handle_empty();
        }
        assert!(!place.leaf_dir(id(2)).exists());
    }

    #[test]
    fn a_leaf_with_a_surviving_descendant_is_removed_when_that_ends() {
        let Some(mut place) = Place::find("survivor") else {
            return;
        };
        let leaf = place.parent.leaf(id(3)).unwrap();
        let child = shell(&leaf, "sleep 1000 & exit 0");
        assert_eq!(ended(&child), Exit::Code(0));
        let kill = place.leaf_dir(id(3)).join("cgroup.kill");
        place.parent.release(leaf);
        assert!(place.leaf_dir(id(3)).exists(), "it still holds a process");
        assert_eq!(place.parent.leftovers(), 1);
        fs::write(kill, "1").unwrap();
        while place.parent.leftovers() > 0 {
            let fd = place.parent.as_fd();
            poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
            place.parent.handle_empty();
        }
        assert!(!place.leaf_dir(id(3)).exists());
    }

    #[test]
    fn groups_that_a_command_made_go_with_its_leaf() {
        let Some(mut place) = Place::find("nested") else {
            return;
        };
        let leaf = place.parent.leaf(id(4)).unwrap();
        fs::create_dir_all(place.leaf_dir(id(4)).join("a/b")).unwrap();
        fs::create_dir(place.leaf_dir(id(4)).join("c")).unwrap();
        place.parent.release(leaf);
        assert!(!place.leaf_dir(id(4)).exists());
    }
}
