use std::task::Waker;

use rustix::event::{PollFd, PollFlags, poll};

use super::*;

fn rings(bell: &Bell) -> bool {
    let none = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN)];
    poll(&mut fds, Some(&none)).unwrap() > 0
}

#[test]
fn a_cause_is_listed_once_until_it_was_taken() {
    let bell = Bell::new().unwrap();
    let cause = Cause::Exec(1, ExecId::new(2).unwrap());
    let waker = Waker::from(Ringer::new(cause, &bell));
    assert!(!rings(&bell));
    waker.wake_by_ref();
    waker.wake_by_ref();
    assert!(rings(&bell));
    bell.silence();
    let causes: Vec<Cause> = bell.take().iter().map(|ringer| ringer.cause).collect();
    assert_eq!(causes, [cause]);
    assert!(!rings(&bell));
    waker.wake_by_ref();
    assert!(rings(&bell), "it rings again after it was taken");
    assert_eq!(bell.take().len(), 1);
}

#[test]
fn a_stop_rings_and_stays() {
    let bell = Bell::new().unwrap();
    bell.stop();
    assert!(rings(&bell));
    bell.silence();
    assert!(bell.is_stopped());
}
