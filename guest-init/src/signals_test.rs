use std::os::fd::AsFd as _;
use std::process::Command;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Reach, send};

#[test]
fn a_signal_to_a_process_that_is_gone_reaches_nobody() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    child.wait().unwrap();
    // The number may name another process by now; the descriptor cannot.
    let error = send(pidfd.as_fd(), 9, Reach::Process).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
}

#[test]
fn a_real_time_signal_can_be_sent() {
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    send(pidfd.as_fd(), 34, Reach::Process).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(34)
    );
}
