use super::*;

#[test]
fn the_numbers_of_a_refusal_come_back() {
    let refused = ExecError::AtCapacity {
        limit: 128,
        active: 127,
        left: 3,
    };
    let back = capacity(&failure(&refused)).unwrap();
    assert_eq!(format!("{back:?}"), format!("{refused:?}"));
    assert!(back.to_string().contains("3 of which were left"), "{back}");
    let older = Failure {
        message: "2 of at most 2 executions are active".to_owned(),
        ..failure(&refused)
    };
    let back = capacity(&older).unwrap();
    assert!(matches!(
        back,
        ExecError::AtCapacity {
            limit: 2,
            active: 2,
            left: 0
        }
    ));
    assert!(!back.to_string().contains("left"), "{back}");
}

#[test]
fn what_only_looks_like_a_refusal_is_none() {
    let good = at_capacity(1, 1, 0);
    for other in [
        Failure {
            kind: FailureKind::Other,
            ..good.clone()
        },
        Failure {
            stage: "execve".to_owned(),
            ..good.clone()
        },
        Failure {
            message: "x of at most y executions".to_owned(),
            ..good
        },
        unread(5, 10),
    ] {
        assert!(capacity(&other).is_none());
    }
}

#[test]
fn a_vm_that_is_gone_stays_one() {
    let gone = ExecError::VmGone {
        reason: "it burnt down".to_owned(),
    };
    let failure = failure(&gone);
    assert_eq!(
        (failure.kind, failure.message.as_str()),
        (FailureKind::Lost, "it burnt down")
    );
}
