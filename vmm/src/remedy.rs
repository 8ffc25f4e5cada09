//! What to do when a host is short of something, by the system's answer. For errors and the doctor.

use std::borrow::Cow;
use std::io;

/// For a process that has no descriptors left.
pub(crate) const DESCRIPTORS: &str =
    "raise the process's limit on descriptors (`ulimit -n`, LimitNOFILE=)";

/// For a process, or a user, that may have no more threads.
pub(crate) const THREADS: &str = "raise `ulimit -u`, the control group's pids.max or \
                                  kernel.threads-max, or stop something";

/// For a host that is short of memory.
pub(crate) const MEMORY: &str = "give guests less, or stop something";

/// For a control group that is.
pub(crate) const MEMORY_GROUP: &str = "raise the control group's memory.max";

/// For a process that may map no more.
pub(crate) const ADDRESS_SPACE: &str = "raise RLIMIT_AS (`ulimit -v`, LimitAS=)";

/// For a host that promises memory only once.
pub(crate) const OVERCOMMIT: &str =
    "set vm.overcommit_memory to 0 or 1, so that only what is used counts";

/// `error` and what to do about it, where that is known.
pub(crate) fn explained(error: &io::Error) -> String {
    match of(error) {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    }
}

/// What usually lies behind this answer, and what to do; `None` if it says enough by itself.
fn of(error: &io::Error) -> Option<Cow<'static, str>> {
    Some(match error.raw_os_error()? {
        libc::EMFILE => DESCRIPTORS.into(),
        libc::ENFILE => {
            "the host is out of descriptors: raise fs.file-max, or stop something".into()
        }
        libc::ENOMEM => format!(
            "the host is short of memory, or a limit on it is in the way (`forebay doctor` tells \
             which): {MEMORY}; {MEMORY_GROUP}; {ADDRESS_SPACE}; {OVERCOMMIT}"
        )
        .into(),
        libc::EAGAIN => format!("a limit on threads is in the way: {THREADS}").into(),
        libc::EACCES | libc::EPERM => {
            "this user may not do that: look at the permissions on the way there, and at what \
             confines the process (container, seccomp, AppArmor, SELinux)"
                .into()
        }
        _ => return None,
    })
}

#[cfg(test)]
#[path = "remedy_test.rs"]
mod tests;
