use std::process::Command;

use rustix::process::{Signal as Number, getpid, kill_process};

use super::*;

#[test]
fn the_mask_of_ignored_signals_is_found() {
    let status = "Name:\tforebay\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n\
                  SigCgt:\t0000000000000440\n";
    assert_eq!(ignored(status), 1 << 12 | 1);
    assert_eq!(ignored("SigIgn:\tnonsense\n"), 0);
    assert_eq!(ignored(""), 0);
}

#[tokio::test]
async fn a_signal_that_was_ignored_is_left_alone() {
    let bit = |signal: Signal| 1_u64 << (signal.number() - 1);
    let signals = Signals::listen_beside(bit(Signal::HUP) | bit(Signal::ALRM)).unwrap();
    let heeded: Vec<_> = signals.0.iter().map(|(signal, _)| *signal).collect();
    let all_others = [
        Signal::INT,
        Signal::TERM,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
    ];
    assert_eq!(heeded, all_others);
    assert!(Signals::listen_beside(u64::MAX).unwrap().0.is_empty());
}

/// Set in the process that the next test starts beneath a `nohup`.
const BENEATH_NOHUP: &str = "FOREBAY_TEST_BENEATH_NOHUP";

#[tokio::test]
async fn a_program_that_nohup_began_survives_the_hang_up() {
    const THIS: &str = "signals::tests::a_program_that_nohup_began_survives_the_hang_up";
    if std::env::var_os(BENEATH_NOHUP).is_none() {
        let out = Command::new("sh")
            .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", THIS])
            .env(BENEATH_NOHUP, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let mut signals = Signals::listen().unwrap();
    // The first neither ends it nor is told; the second is.
    kill_process(getpid(), Number::HUP).unwrap();
    kill_process(getpid(), Number::USR1).unwrap();
    assert_eq!(signals.next().await, Signal::USR1);
}
