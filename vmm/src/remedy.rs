//! What to do when a host is short of something, by the system's answer. For errors and the doctor.

use std::io;

/// For a process that has no descriptors left.
pub(crate) const DESCRIPTORS: &str =
    "raise the process's limit on descriptors (`ulimit -n`, LimitNOFILE=)";

/// `error` and what to do about it, where that is known.
pub(crate) fn explained(error: &io::Error) -> String {
    match of(error) {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    }
}

/// What usually lies behind this answer, and what to do; `None` if it says enough by itself.
fn of(error: &io::Error) -> Option<&'static str> {
    Some(match error.raw_os_error()? {
        libc::EMFILE => DESCRIPTORS,
        libc::ENFILE => "the host is out of descriptors: raise fs.file-max, or stop something",
        libc::ENOMEM => {
            "the host is short of memory, or a limit on it is in the way: ask for less, stop \
             something, or look at the control group's memory.max, RLIMIT_AS and \
             vm.overcommit_memory"
        }
        libc::EAGAIN => {
            "a limit on threads is in the way: look at `ulimit -u`, the control group's pids.max and \
             kernel.threads-max"
        }
        libc::EACCES | libc::EPERM => {
            "this user may not do that: look at the permissions on the way there, and at what \
             confines the process (container, seccomp, AppArmor, SELinux)"
        }
        _ => return None,
    })
}

#[cfg(test)]
#[path = "remedy_test.rs"]
mod tests;
