use super::*;
use crate::agent::NoAgent;
use crate::builder::VmBuilder;
use crate::testing::{self, COUNT, HALT, SPIN, kernel, numbers_from, out, print, reaches};
use crate::vcpu::look::Activity;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn start(builder: VmBuilder) -> Option<Machine> {
    testing::start(builder, Arc::new(NoAgent))
}

/// A guest that counts, and how far it has come.
fn counting(cpus: u8) -> Option<(Machine, Arc<AtomicU64>)> {
    let (tap, counted) = numbers_from(0);
    let (_dir, builder) = kernel(&[&COUNT]);
    let machine = start(builder.cpus(cpus).console_tap(tap))?;
    Some((machine, counted))
}

#[test]
fn a_paused_guest_does_nothing_and_then_goes_on_without_repeat_or_gap() {
    for cpus in [1, 2, 4] {
        let Some((machine, counted)) = counting(cpus) else {
            return;
        };
        for round in 0..100 {
            let paused = machine.pause().unwrap();
            let stands = counted.load(Ordering::SeqCst);
            if round % 10 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(counted.load(Ordering::SeqCst), stands, "it runs");
            paused.resume();
            // From the first round on at any moment, also before the first instruction.
            if round % 2 == 0 {
                reaches(&counted, stands + 1 + round, &machine);
            }
        }
    }
}

#[test]
fn a_paused_machine_can_be_looked_at() {
    let (_dir, builder) = kernel(&[&print("on"), &SPIN]);
    let Some(machine) = start(builder.cpus(2)) else {
        return;
    };
    while machine.console_log().text() != "on" {
        std::thread::yield_now();
    }
    let paused = machine.pause().unwrap();
    for _ in 0..50 {
        let view = machine.inspect();
        assert!(view.paused);
        assert_eq!(view.stopped, None);
        let activities: Vec<_> = view.vcpus.iter().map(|v| v.unwrap().activity).collect();
        assert_eq!(activities, [Activity::Running, Activity::NotStarted]);
    }
    paused.resume();
    assert!(!machine.inspect().paused);
}

#[test]
fn a_machine_is_paused_once_at_a_time() {
    let (_dir, builder) = kernel(&[&HALT]);
    let Some(machine) = start(builder) else {
        return;
    };
    let paused = machine.pause().unwrap();
    assert!(matches!(machine.pause(), Err(PauseError::AlreadyPaused)));
    assert!(machine.inspect().paused, "the second attempt resumed it");
    drop(paused);
    machine.pause().unwrap().resume();
}

#[test]
fn a_machine_that_has_ended_cannot_be_paused_and_says_why() {
    let (_dir, builder) = kernel(&[&out(0x600, 0x34), &SPIN]);
    let Some(machine) = start(builder) else {
        return;
    };
    machine.wait_blocking(LONG).unwrap();
    match machine.pause() {
        Err(PauseError::Ended { reason }) => assert_eq!(reason, StopReason::PowerOff),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_paused_machine_ends_when_it_is_stopped() {
    let (_dir, builder) = kernel(&[&SPIN]);
    let Some(machine) = start(builder.cpus(4)) else {
        return;
    };
    let paused = machine.pause().unwrap();
    machine.stop();
    assert_eq!(machine.wait_blocking(LONG), Some(StopReason::Requested));
    paused.resume();
    assert_eq!(machine.stopped(), Some(StopReason::Requested));
}

#[test]
fn a_paused_machine_is_freed_when_it_is_dropped() {
    let (_dir, builder) = kernel(&[&SPIN]);
    let Some(machine) = start(builder.cpus(2)) else {
        return;
    };
    std::mem::forget(machine.pause().unwrap());
    let device = Arc::downgrade(&machine.console);
    drop(machine);
    let limit = Instant::now() + Duration::from_secs(60);
    while device.upgrade().is_some() {
        assert!(Instant::now() < limit, "nobody frees it");
        std::thread::yield_now();
    }
}

#[test]
fn the_guests_clock_stands_still_while_it_is_paused() {
    let (_dir, builder) = kernel(&[&SPIN]);
    let Some(machine) = start(builder) else {
        return;
    };
    let clock = || Duration::from_nanos(machine.vm().unwrap().get_clock().unwrap().clock);
    let paused = machine.pause().unwrap();
    let stands = Duration::from_nanos(machine.hold().as_ref().unwrap().clock.clock);
    std::thread::sleep(Duration::from_millis(100));
    let before = Instant::now();
    paused.resume();
    let after = clock();
    assert!(after >= stands, "it went back");
    assert!(after <= stands + before.elapsed(), "it went on");
}

#[test]
fn a_deadline_comes_nearer_only_while_the_guest_runs() {
    let (_dir, builder) = kernel(&[&HALT]);
    let limit = Duration::from_millis(200);
    let begun = Instant::now();
    let Some(machine) = start(builder.boot_deadline(limit)) else {
        return;
    };
    let mut allowed = limit;
    // On a slow host it is over before.
    if let Ok(paused) = machine.pause() {
        std::thread::sleep(2 * limit);
        assert_eq!(machine.stopped(), None);
        paused.resume();
        allowed += 2 * limit;
    }
    let reason = machine.wait_blocking(LONG);
    assert!(
        matches!(reason, Some(StopReason::BootDeadline { limit_ms: 200, .. })),
        "{reason:?}"
    );
    assert!(begun.elapsed() >= allowed, "the pause was counted");
}

#[test]
fn what_a_console_tap_holds_up_is_said() {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let (_dir, builder) = kernel(&[&print("x"), &SPIN]);
    let tap = move |_: &[u8]| {
        let _ = held.lock().unwrap().recv();
    };
    let Some(machine) = start(builder.console_tap(tap)) else {
        return;
    };
    while machine.console_log().written() == 0 {
        std::thread::yield_now();
    }
    machine.lifecycle.standstill().begin().unwrap();
    let waited = machine
        .lifecycle
        .standstill()
        .wait_for(1, Duration::from_millis(50));
    assert!(
        matches!(&waited, Err(NoStandstill::HeldUp(who)) if who.contains("1 of 1 vCPUs")),
        "{waited:?}"
    );
    drop(hold);
    machine.pause().unwrap().resume();
}
