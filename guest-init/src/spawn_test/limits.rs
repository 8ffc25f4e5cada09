//! Limits of processes.

use forebay_exec_proto::{Request, Rlimit};
use rustix::io::Errno;

use super::{failed_of, request, spawn, stdout};
use crate::failure::{Report, Stage};

fn limited(script: &str, limits: &[(u32, u64, u64)]) -> Request {
    let limit = |&(resource, soft, hard)| Rlimit {
        resource,
        soft,
        hard,
    };
    Request {
        rlimits: limits.iter().map(limit).collect(),
        ..request(&["sh", "-c", script])
    }
}

#[test]
fn every_limit_arrives_at_its_own_place() {
    // As /proc/PID/limits calls them, by number.
    let names = [
        "cpu time",
        "file size",
        "data size",
        "stack size",
        "core file size",
        "resident set",
        "processes",
        "open files",
        "locked memory",
        "address space",
        "file locks",
        "pending signals",
        "msgqueue size",
        "nice priority",
        "realtime priority",
        "realtime timeout",
    ];
    // Not everybody who tests may raise one, as PID 1 may.
    let own = std::fs::read_to_string("/proc/thread-self/limits").unwrap();
    let hard = |number: u32| {
        let [_, own] = values(&own, names[number as usize]);
        let most = (1 << 40) + u64::from(number);
        own.parse().map_or(most, |own: u64| own.min(most))
    };
    let limits: Vec<_> = (0..16).map(|n| (n, hard(n) / 2, hard(n))).collect();
    let text = stdout(&limited("cat /proc/self/limits", &limits));
    for (number, name) in (0..).zip(names) {
        let expected = [hard(number) / 2, hard(number)].map(|value| value.to_string());
        assert_eq!(values(&text, name), expected, "{name}");
    }
}

/// The soft and the hard limit with this name in the text of `/proc/PID/limits`.
fn values(text: &str, name: &str) -> [String; 2] {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("Max {name} ")))
        .unwrap_or_else(|| panic!("{name}: {text}"));
    let mut values = line.split_whitespace().map(str::to_owned);
    [values.next().unwrap(), values.next().unwrap()]
}

// B18
#[test]
fn open_files_have_the_limit_that_was_asked_for_and_can_be_unlimited_elsewhere() {
    let script = "ulimit -S -n; ulimit -H -n; ulimit -S -c";
    let limits = [(7, 10, 20), (4, u64::MAX, u64::MAX)];
    assert_eq!(stdout(&limited(script, &limits)), "10\n20\nunlimited\n");
    // Ten are open when `cat` wants another: nothing of a program can be opened.
    let script = "exec 3</dev/null 4<&3 5<&3 6<&3 7<&3 8<&3 9<&3; \
                  cat /dev/null 2>/dev/null && echo read || echo refused";
    let told = |soft| stdout(&limited(script, &[(7, soft, 20)]));
    assert_eq!(
        (told(10), told(20)),
        ("refused\n".to_owned(), "read\n".to_owned())
    );
}

// B18: above what the kernel lets anybody have.
#[test]
fn a_limit_that_the_kernel_refuses_is_told_with_its_number() {
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").unwrap();
    let most: u64 = most.trim().parse().unwrap();
    let told = failed_of(spawn(&limited("true", &[(7, 10, most + 1)])));
    let expected = Report {
        stage: Stage::Limit,
        errno: Errno::PERM,
        detail: 7,
    };
    assert_eq!(told, expected);
}

// Even without a descriptor or a byte to write, the step that failed is told.
#[test]
fn the_tightest_limits_do_not_hide_why_a_start_failed() {
    let mut request = limited("true", &[(7, 0, 0), (1, 0, 0), (0, 60, 60)]);
    request.cwd = Some(b"/nosuch".to_vec().into());
    assert_eq!(failed_of(spawn(&request)).stage, Stage::Cwd);
}
