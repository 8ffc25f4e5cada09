//! What PID 1 of a guest holds, to see that it holds no more afterwards.

use std::time::Instant;

use crate::pace::{CEILING, Within as _, scaled};
use crate::vm::TestVm;

/// Memory that PID 1 may have more of after than before: of its allocator, in KiB.
const NOISE: u64 = 128;

/// Its resident memory is counted page by page: `VmRSS` of `/proc/1/status` is behind by what each
/// CPU has not added up yet, which may be as much as [`NOISE`].
const LOOK: &str = "ls /proc/1/fd | wc -l; ls /proc/1/task | wc -l; \
                    ls -d /sys/fs/cgroup/forebay/*/ | wc -l; \
                    awk '/^Rss:/ { print $2 }' /proc/1/smaps_rollup";

/// What PID 1 holds at one time.
#[derive(Debug)]
pub struct Held {
    descriptors: u64,
    threads: u64,
    /// Control groups of executions: jobs that other commands left keep theirs.
    groups: u64,
    /// Resident, in KiB.
    memory: u64,
}

impl Held {
    /// Looks, by a command in the guest, which is part of what is seen.
    ///
    /// # Panics
    /// If the guest does not say.
    pub async fn now(vm: &TestVm) -> Self {
        let seen = vm.shell(LOOK).within(CEILING).await.unwrap();
        let seen = seen.stdout_str().unwrap();
        let numbers = seen.lines().map(|line| line.trim().parse().ok());
        let numbers: Option<Vec<u64>> = numbers.collect();
        let Some(&[descriptors, threads, groups, memory]) = numbers.as_deref() else {
            panic!("not four numbers: {seen}");
        };
        Self {
            descriptors,
            threads,
            groups,
            memory,
        }
    }

    /// Waits until it is no more than it was, which the last of an end may take a moment for; of
    /// memory it may be more by noise.
    ///
    /// # Panics
    /// If it stays more.
    pub async fn assert_no_more(&self, vm: &TestVm) {
        let started = Instant::now();
        loop {
            let now = Self::now(vm).await;
            let no_more = now.descriptors <= self.descriptors
                && now.threads <= self.threads
                && now.groups <= self.groups
                && now.memory <= self.memory + NOISE;
            if no_more {
                break;
            }
            assert!(
                started.elapsed() < scaled(CEILING),
                "PID 1 held {self:?}, now {now:?}"
            );
        }
    }
}
