use super::*;
use std::thread;

fn lifecycle() -> Lifecycle {
    Lifecycle::new(eventfd().unwrap())
}

#[test]
fn the_first_reason_is_the_reason() {
    let life = lifecycle();
    life.stop(StopReason::Reboot);
    life.stop(StopReason::Requested);
    assert_eq!(life.reason(), Some(StopReason::Reboot));
    assert_eq!(life.stopped(), None, "not before it is announced");
    life.announce();
    assert_eq!(life.stopped(), Some(StopReason::Reboot));
}

#[test]
fn a_power_off_that_was_asked_for_is_as_asked() {
    let life = lifecycle();
    life.want_power_off(Duration::ZERO);
    life.stop(StopReason::PowerOff);
    assert_eq!(life.reason(), Some(StopReason::Requested));
    let life = lifecycle();
    life.want_power_off(Duration::ZERO);
    life.stop(StopReason::Panic { message: None });
    assert_eq!(life.reason(), Some(StopReason::Panic { message: None }));
    let life = lifecycle();
    life.want_power_off(Duration::from_millis(1500));
    life.power_off_overdue();
    assert_eq!(life.reason(), Some(StopReason::Forced { after_ms: 1500 }));
}

#[test]
fn every_waiter_learns_of_it_blocking_or_not() {
    let life = Arc::new(lifecycle());
    let blocking: Vec<_> = (0..3)
        .map(|_| {
            let life = Arc::clone(&life);
            thread::spawn(move || life.wait_blocking(None))
        })
        .collect();
    let async_ones: Vec<_> = (0..3)
        .map(|_| {
            let life = Arc::clone(&life);
            thread::spawn(move || {
                tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap()
                    .block_on(life.wait())
            })
        })
        .collect();
    life.stop(StopReason::PowerOff);
    life.announce();
    for waiter in blocking {
        assert_eq!(waiter.join().unwrap(), Some(StopReason::PowerOff));
    }
    for waiter in async_ones {
        assert_eq!(waiter.join().unwrap(), StopReason::PowerOff);
    }
    // And one who comes late.
    assert_eq!(
        life.wait_blocking(Some(Duration::ZERO)),
        Some(StopReason::PowerOff)
    );
}

#[test]
fn a_wait_with_a_limit_gives_up() {
    assert_eq!(lifecycle().wait_blocking(Some(Duration::ZERO)), None);
}

#[test]
fn the_vcpus_are_waited_for_and_the_loop_is_woken() {
    let life = Arc::new(lifecycle());
    life.vcpu_starts(Arc::default());
    life.stop(StopReason::Requested);
    let ender = {
        let life = Arc::clone(&life);
        thread::spawn(move || life.vcpu_ended())
    };
    life.wait_vcpus();
    ender.join().unwrap();
    assert!(life.wake_fd().read().is_ok());
    assert!(life.take_wake().is_ok(), "nothing left, and no error");
}

#[test]
fn each_reason_says_something_of_its_own() {
    let reasons = [
        StopReason::Requested,
        StopReason::Dropped,
        StopReason::Forced { after_ms: 1 },
        StopReason::PowerOff,
        StopReason::Reboot,
        StopReason::Panic { message: None },
        StopReason::TripleFault {
            vcpu: 0,
            registers: None,
        },
        StopReason::KvmError {
            vcpu: 0,
            exit: "x".into(),
            registers: None,
        },
        StopReason::AgentLost { why: "x".into() },
        StopReason::BootDeadline {
            limit_ms: 1500,
            halted: true,
        },
        StopReason::Host { error: "x".into() },
        StopReason::Internal {
            thread: "t".into(),
            message: "x".into(),
        },
    ];
    let texts: std::collections::HashSet<_> = reasons.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), reasons.len());
    assert!(reasons[9].to_string().contains("1.5 s"));
}

#[test]
fn the_guests_words_do_nothing_to_a_terminal() {
    let reason = StopReason::Panic {
        message: Some("\x1b]0;title\x07".into()),
    };
    let text = reason.to_string();
    assert!(
        text.contains("]0;title") && !text.contains('\x1b'),
        "{text}"
    );
}

#[test]
fn a_vcpu_thread_waits_neither_for_itself_nor_for_anothers() {
    let life = Arc::new(lifecycle());
    life.vcpu_starts(Arc::default());
    let other = Arc::new(lifecycle());
    other.vcpu_starts(Arc::default());
    let vcpu = {
        let (life, other) = (Arc::clone(&life), Arc::clone(&other));
        thread::spawn(move || {
            life.vcpu_runs_here();
            life.stop(StopReason::Dropped);
            life.wait_vcpus();
            other.stop(StopReason::Dropped);
            other.wait_vcpus();
            life.vcpu_ended();
        })
    };
    life.wait_vcpus();
    vcpu.join().unwrap();
    other.vcpu_ended();
    other.wait_vcpus();
}
