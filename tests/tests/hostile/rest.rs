//! Whether the host's threads still work for what is over.

use std::fs;
use std::time::Duration;

use forebay_tests::{CEILING, Within as _};

/// How the names of the library's threads begin, those of its vCPUs among them.
const LIBRARYS: &str = "forebay-";

/// Between two looks.
const WINDOW: Duration = Duration::from_secs(1);

/// Of the kernel's ticks of 10 ms, what a VM that has nothing to do may use in a window: its guest
/// has a clock of its own, and a slow place makes much of it.
const IDLE_TICKS: u64 = 25;

/// Waits until the library's threads use next to no CPU. Threads that go on never come to it, and
/// that is the failure; how long it takes is not judged.
pub(crate) async fn threads_come_to_rest() {
    let rest = async {
        loop {
            let before = ticks();
            tokio::time::sleep(WINDOW).await;
            if ticks().saturating_sub(before) <= IDLE_TICKS {
                break;
            }
        }
    };
    rest.within(CEILING).await;
}

/// CPU time of the library's threads in this process so far.
fn ticks() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is mounted");
    tasks
        .flatten()
        // A thread may end while they are listed.
        .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok())
        .filter_map(|stat| {
            let (head, fields) = stat.rsplit_once(')')?;
            head.contains(LIBRARYS).then(|| used(fields))
        })
        .sum()
}

/// User and system time: fields 14 and 15, the first here being field 3.
fn used(fields: &str) -> u64 {
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|time| time.parse::<u64>().ok()).sum()
}
