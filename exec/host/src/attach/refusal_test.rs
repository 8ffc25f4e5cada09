use super::*;

#[test]
fn the_numbers_of_a_refusal_come_back() {
    let refused = ExecError::AtCapacity {
        limit: 128,
        active: 127,
    };
    assert_eq!(capacity(&failure(&refused)), Some((128, 127)));
}

#[test]
fn what_only_looks_like_a_refusal_is_none() {
    let good = at_capacity(1, 1);
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
        assert_eq!(capacity(&other), None);
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
