use super::*;

#[test]
fn a_signal_is_128_and_its_number() {
    assert_eq!(of_signal(9), 137);
    assert_eq!(of_signal(15), 143);
    assert_eq!(of_signal(64), 192);
}

#[test]
fn an_error_of_ours_is_125() {
    let gone = ExecError::VmGone {
        reason: "the guest switched itself off".to_owned(),
    };
    assert_eq!(of_error(&gone), 125);
    assert_eq!(
        of_error(&ExecError::AtCapacity {
            limit: 1,
            active: 1
        }),
        125
    );
}
