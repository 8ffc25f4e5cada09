use std::time::{Duration, Instant};

use super::{DRAIN, End, KILLED, Shutdown, Step};

const GRACE: Duration = Duration::from_secs(3);

#[test]
fn everything_that_ends_on_sigterm_is_never_killed() {
    let now = Instant::now();
    let mut shutdown = Shutdown::new(End::PowerOff, GRACE, now);
    assert_eq!(shutdown.advance(false, false, now), Step::Terminate);
    assert_eq!(shutdown.advance(false, false, now), Step::Wait);
    assert_eq!(
        shutdown.advance(true, true, now),
        Step::Finish(End::PowerOff)
    );
}

#[test]
fn what_outlives_the_grace_is_killed_once() {
    let now = Instant::now();
    let mut shutdown = Shutdown::new(End::Reboot, GRACE, now);
    assert_eq!(shutdown.advance(false, false, now), Step::Terminate);
    assert_eq!(shutdown.deadline(), now + GRACE);
    let late = now + GRACE;
    assert_eq!(shutdown.advance(false, false, late), Step::Kill);
    assert_eq!(shutdown.advance(false, false, late), Step::Wait);
    assert_eq!(
        shutdown.advance(true, true, late),
        Step::Finish(End::Reboot)
    );
}

#[test]
fn a_process_stuck_in_the_kernel_does_not_stop_the_end() {
    let now = Instant::now();
    let mut shutdown = Shutdown::new(End::PowerOff, Duration::ZERO, now);
    assert_eq!(shutdown.advance(false, false, now), Step::Terminate);
    assert_eq!(shutdown.advance(false, false, now), Step::Kill);
    assert_eq!(
        shutdown.advance(false, false, shutdown.deadline()),
        Step::Wait
    );
    assert_eq!(
        shutdown.advance(false, false, shutdown.deadline()),
        Step::Finish(End::PowerOff)
    );
}

#[test]
fn the_last_output_has_a_bounded_time_to_leave() {
    let now = Instant::now();
    let mut shutdown = Shutdown::new(End::PowerOff, GRACE, now);
    shutdown.advance(false, false, now);
    assert_eq!(shutdown.advance(true, false, now), Step::Wait);
    assert_eq!(shutdown.advance(true, false, now), Step::Wait);
    let late = shutdown.deadline();
    assert!(late < now + GRACE);
    assert_eq!(
        shutdown.advance(true, false, late),
        Step::Finish(End::PowerOff)
    );
}

// The budget that the module promises to hosts.
#[test]
fn the_slowest_end_takes_the_grace_and_two_seconds_and_a_fifth() {
    let begun = Instant::now();
    let mut shutdown = Shutdown::new(End::PowerOff, GRACE, begun);
    let mut now = begun;
    while shutdown.advance(false, false, now) != Step::Finish(End::PowerOff) {
        now = shutdown.deadline();
    }
    assert_eq!(now - begun, GRACE + KILLED + DRAIN);
    assert_eq!(KILLED + DRAIN, Duration::from_millis(2200));
}
