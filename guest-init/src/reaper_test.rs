use std::os::fd::AsFd as _;
use std::process::{Child, Command};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Exit, reap};

fn shell(script: &str) -> (Child, OwnedFd) {
    let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    (child, pidfd)
}

fn ended(script: &str) -> Exit {
    let (_child, pidfd) = shell(script);
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
    let reaped = reap(pidfd.as_fd()).expect("it has ended");
    assert_eq!(reap(pidfd.as_fd()), None, "a status is given out once");
    reaped.exit
}

#[test]
fn codes_and_signals_are_told_apart() {
    assert_eq!(ended("exit 0"), Exit::Code(0));
    assert_eq!(ended("exit 137"), Exit::Code(137));
    assert_eq!(ended("exit 255"), Exit::Code(255));
    assert_eq!(ended("kill -9 $$"), Exit::Signal(9));
    assert_eq!(ended("kill -34 $$"), Exit::Signal(34));
}

#[test]
fn a_running_process_is_not_collected() {
    let (mut child, pidfd) = shell("exec sleep 1000");
    assert_eq!(reap(pidfd.as_fd()), None);
    child.kill().unwrap();
    poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).unwrap();
    let reaped = reap(pidfd.as_fd()).unwrap();
    assert_eq!(reaped.exit, Exit::Signal(9));
}
