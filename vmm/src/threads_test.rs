use super::*;

/// The `SigBlk` line of this thread's status: which signals it blocks.
fn blocked() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("SigBlk:")).unwrap();
    u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

#[test]
fn a_thread_starts_with_signals_blocked_and_faults_open() {
    let before = blocked();
    let inside = spawn("t".into(), blocked).unwrap().join().unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGCHLD, libc::SIGRTMIN()] {
        assert_ne!(inside & bit(signal), 0, "signal {signal} is open");
    }
    for signal in FAULTS {
        assert_eq!(inside & bit(signal), 0, "fault {signal} is blocked");
    }
    assert_eq!(blocked(), before, "the starting thread's mask changed");
}

#[test]
fn a_panic_comes_back_as_its_text() {
    let outcome = catch(|| -> () { panic!("lost {}", 7) });
    assert_eq!(outcome, Err("lost 7".to_owned()));
}
