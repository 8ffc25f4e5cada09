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

#[test]
fn nothing_is_due_while_the_vm_stands_still_and_all_is_later_by_that_time() {
    let deadlines = Deadlines::new().unwrap();
    let (pause, limit) = (Duration::from_secs(1000), Duration::from_secs(100));
    let now = Instant::now();
    // As if it had stood still for a long time when it goes on.
    let since = now.checked_sub(pause).unwrap();
    deadlines.set(Deadline::Boot, Some(since + limit)).unwrap();
    deadlines.hold(since).unwrap();
    assert!(!fires(&deadlines, Duration::ZERO));
    assert_eq!(deadlines.take_due().unwrap(), []);
    // One that is set meanwhile is at its own time.
    deadlines.set(Deadline::Panic, Some(now)).unwrap();
    deadlines.release().unwrap();
    assert!(fires(&deadlines, Duration::from_secs(60)));
    assert_eq!(deadlines.take_due().unwrap(), [Deadline::Panic]);
    let boot = deadlines.lock().at[0].unwrap();
    assert!(boot >= now + limit, "it lost what was left of it");
    assert!(boot <= Instant::now() + limit, "it got more than that");
}
