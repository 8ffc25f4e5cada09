use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn it_stands_still_when_all_rest_and_not_before() {
    let still = Standstill::default();
    assert!(!still.rest_vcpu(|| panic!("nobody wants it to rest")));
    still.begin().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| still.rest_vcpu(|| ()));
        let few = still.wait_for(2, Duration::from_millis(50));
        // Whichever had come by then.
        assert!(matches!(few, Err(NoStandstill::HeldUp(_))), "{few:?}");
        assert!(!still.is_wanted(), "an attempt that failed leaves nothing");

        still.begin().unwrap();
        scope.spawn(|| still.rest_vcpu(|| ()));
        scope.spawn(|| still.rest_vcpu(|| ()));
        scope.spawn(|| still.rest_loop());
        still.wait_for(2, LONG).unwrap();
        still.release();
    });
    let state = still.lock();
    assert_eq!((state.vcpus, state.event_loop), (0, false));
}

#[test]
fn there_is_one_at_a_time_and_none_behind_the_end() {
    let still = Standstill::default();
    still.begin().unwrap();
    assert_eq!(still.begin(), Err(NoStandstill::Already));
    still.release();
    still.begin().unwrap();
    still.end();
    assert_eq!(still.begin(), Err(NoStandstill::Ended));
    assert_eq!(still.wait_for(0, LONG), Err(NoStandstill::Ended));
    // And nobody rests any more.
    assert!(!still.rest_vcpu(|| ()));
    still.rest_loop();
}

#[test]
fn the_end_lets_those_who_rest_go() {
    let still = Standstill::default();
    still.begin().unwrap();
    thread::scope(|scope| {
        let resting = [
            scope.spawn(|| assert!(still.rest_vcpu(|| ()))),
            scope.spawn(|| still.rest_loop()),
        ];
        still.wait_for(1, LONG).unwrap();
        still.end();
        for thread in resting {
            thread.join().unwrap();
        }
    });
}

#[test]
fn those_who_rest_do_errands_whenever_they_are_nudged() {
    let still = Standstill::default();
    let done = AtomicUsize::new(0);
    still.begin().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            still.rest_vcpu(|| {
                done.fetch_add(1, Ordering::SeqCst);
            })
        });
        for nudges in 1..100 {
            while done.load(Ordering::SeqCst) < nudges {
                thread::yield_now();
            }
            still.nudge();
        }
        while done.load(Ordering::SeqCst) < 100 {
            thread::yield_now();
        }
        still.release();
    });
    assert_eq!(done.into_inner(), 100, "errands without a nudge");
}
