//! Whether the host's threads still work for what is over.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use forebay::{Activity, Vm};
use forebay_tests::{CEILING, Within as _};

/// How the names of the library's threads begin, those of its vCPUs among them.
const LIBRARYS: &str = "forebay-";

/// Between two looks.
const WINDOW: Duration = Duration::from_secs(1);

/// Of the kernel's ticks of 10 ms, what the threads of a VM that has nothing to do may use in a
/// window, together: its guest has a clock of its own, and a slow place makes much of it.
const IDLE_TICKS: u64 = 10;

/// Waits until the library's threads use next to no CPU and each of the VM's vCPUs sleeps. Threads
/// that go on never come to it, and that is the failure; how long it takes is not judged.
pub(crate) async fn comes_to_rest(vm: &Vm) {
    let rest = async {
        loop {
            let before = ticks();
            tokio::time::sleep(WINDOW).await;
            let used: u64 = ticks()
                .into_iter()
                .map(|(thread, now)| now - before.get(&thread).copied().unwrap_or(0))
                .sum();
            let vcpus = vm.inspect().machine.vcpus;
            let halted = vcpus.iter().all(|vcpu| {
                vcpu.as_ref()
                    .is_some_and(|vcpu| vcpu.activity == Activity::Halted)
            });
            if used <= IDLE_TICKS && halted && !vcpus.is_empty() {
                break;
            }
        }
    };
    rest.within(CEILING).await;
}

/// CPU time of each of the library's threads in this process so far, by the thread's id.
fn ticks() -> HashMap<OsString, u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is mounted");
    tasks
        .flatten()
        .filter_map(|task| {
            // A thread may end while they are listed.
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            let (head, fields) = stat.rsplit_once(')')?;
            head.contains(LIBRARYS)
                .then(|| (task.file_name(), used(fields)))
        })
        .collect()
}

/// User and system time: fields 14 and 15, the first here being field 3.
fn used(fields: &str) -> u64 {
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|time| time.parse::<u64>().ok()).sum()
}
