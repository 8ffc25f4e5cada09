use forebay_exec_proto::{FailureKind, RLIMITS_MAX, Rlimit};

use super::{KINDS, NOFILE, Rlimits, kind};

fn limit(resource: u32, soft: u64, hard: u64) -> Rlimit {
    Rlimit {
        resource,
        soft,
        hard,
    }
}

fn refusal(limits: &[Rlimit]) -> String {
    let failure = Rlimits::new(limits).unwrap_err();
    assert_eq!(failure.kind, FailureKind::ResourceLimit);
    assert_eq!((failure.stage.as_str(), failure.errno), ("request", None));
    failure.message
}

#[test]
fn numbers_are_those_of_linux() {
    assert_eq!(KINDS.len(), RLIMITS_MAX);
    for (number, kind) in KINDS.iter().enumerate() {
        assert_eq!(kind.resource as usize, number, "{}", kind.name);
        assert_eq!(
            kind.stage,
            format!("setrlimit({})", kind.name.to_uppercase())
        );
    }
    assert_eq!(kind(NOFILE).unwrap().name, "nofile");
    assert!(kind(16).is_none());
}

// B18: the host checks too, but the agent does not rely on it.
#[test]
fn limits_that_make_no_sense_are_refused_by_name() {
    assert!(refusal(&[limit(16, 1, 1)]).contains("number 16"));
    assert!(refusal(&[limit(u32::MAX, 1, 1)]).contains("4294967295"));
    let above = refusal(&[limit(7, 20, 10)]);
    assert!(
        above.contains("nofile") && above.contains("20") && above.contains("10"),
        "{above}"
    );
    let above = refusal(&[limit(0, u64::MAX, 10)]);
    assert!(above.contains("unlimited of cpu"), "{above}");
    let twice = refusal(&[limit(1, 1, 1), limit(7, 1, 1), limit(1, 1, 1)]);
    assert!(
        twice.contains("fsize") && twice.contains("twice"),
        "{twice}"
    );
    let all: Vec<Rlimit> = (0..16).map(|number| limit(number, 0, u64::MAX)).collect();
    assert!(Rlimits::new(&all).is_ok());
}

#[test]
fn a_message_shows_what_was_asked_for() {
    let limits = Rlimits::new(&[limit(7, 10, u64::MAX)]).unwrap();
    assert_eq!(limits.shown(7), "10 (soft) and unlimited (hard)");
    assert_eq!(limits.shown(6), "its default");
}
