use super::*;
use rustix::event::{PollFd, PollFlags, poll};

fn fires(deadlines: &Deadlines, within: Duration) -> bool {
    let timeout = Timespec::try_from(within).unwrap();
    let mut fds = [PollFd::new(&deadlines.timer, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).unwrap() == 1
}

#[test]
fn what_is_due_fires_once_and_the_rest_stays() {
    let deadlines = Deadlines::new().unwrap();
    let now = Instant::now();
    let far = now + Duration::from_secs(1000);
    deadlines.set(Deadline::Boot, Some(far)).unwrap();
    deadlines.set(Deadline::Panic, Some(now)).unwrap();
    assert!(fires(&deadlines, Duration::from_secs(60)));
    assert_eq!(deadlines.take_due().unwrap(), [Deadline::Panic]);
    assert_eq!(deadlines.take_due().unwrap(), []);
    assert!(!fires(&deadlines, Duration::ZERO));
}

#[test]
fn one_that_was_taken_back_does_not_fire() {
    let deadlines = Deadlines::new().unwrap();
    deadlines.set(Deadline::Boot, Some(Instant::now())).unwrap();
    deadlines.set(Deadline::Boot, None).unwrap();
    assert!(!fires(&deadlines, Duration::from_millis(20)));
    assert_eq!(deadlines.take_due().unwrap(), []);
}

#[test]
fn one_that_is_brought_forward_keeps_its_earlier_time() {
    let deadlines = Deadlines::new().unwrap();
    let now = Instant::now();
    let far = now + Duration::from_secs(1000);
    let bring = |at| deadlines.bring_forward(Deadline::Executions, at).unwrap();
    bring(far);
    assert!(!fires(&deadlines, Duration::ZERO));
    bring(now);
    bring(far);
    assert!(fires(&deadlines, Duration::from_secs(60)));
    assert_eq!(deadlines.take_due().unwrap(), [Deadline::Executions]);
    // What was taken is no longer earlier than anything.
    bring(far);
    assert!(!fires(&deadlines, Duration::ZERO));
}
