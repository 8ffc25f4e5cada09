use forebay_exec_proto::Usage;
use rustix::process::{Pid, getpid};

use super::{Processes, usage};
use crate::reaper::{Exit, Reaped};

#[test]
fn what_cannot_be_learned_is_absent_and_not_zero() {
    let leader = Reaped {
        exit: Exit::Code(0),
        major_faults: Some(0),
        involuntary_switches: None,
    };
    assert_eq!(
        usage(None, None, &leader),
        Usage {
            major_faults: Some(0),
            ..Usage::default()
        }
    );
    assert_eq!(Processes { proc: None }.io(getpid()), None);
    // No process has such a number.
    let nobody = Pid::from_raw(i32::MAX).unwrap();
    assert_eq!(Processes::open().io(nobody), None);
}

#[test]
fn what_a_process_read_and_wrote_is_counted_whether_or_not_it_reached_a_disk() {
    let processes = Processes::open();
    let before = processes.io(getpid()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let bytes = vec![7; 100_000];
    std::fs::write(place.path().join("x"), &bytes).unwrap();
    assert_eq!(std::fs::read(place.path().join("x")).unwrap(), bytes);
    let after = processes.io(getpid()).unwrap();
    let grown = |before: Option<u64>, after: Option<u64>| after.unwrap() - before.unwrap();
    assert!(grown(before.read, after.read) >= 100_000, "{after:?}");
    assert!(grown(before.written, after.written) >= 100_000, "{after:?}");
}
