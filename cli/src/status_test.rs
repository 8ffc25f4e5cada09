use forebay::Failure;

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
            active: 1,
            left: 0
        }),
        125
    );
}

#[test]
fn a_program_that_did_not_run_has_the_code_of_its_reason() {
    for (kind, stage, code) in [
        ("not_found", "execve", 127),
        ("permission_denied", "execve", 126),
        ("not_executable", "execve", 126),
        ("too_large", "execve", 126),
        ("user_setup", "user", 125),
        ("other", "timeout", 124),
    ] {
        let failure =
            format!(r#"{{"kind": "{kind}", "errno": null, "stage": "{stage}", "message": "no"}}"#);
        let failure: Failure = serde_json::from_str(&failure).unwrap();
        assert_eq!(of_error(&ExecError::NotStarted(failure)), code, "{kind}");
    }
}

#[test]
fn every_cause_is_told_once() {
    use anyhow::Context as _;
    let cause = || Err::<(), _>(std::io::Error::other("no such thing"));
    let says_it = cause().map_err(|e| anyhow::Error::new(e).context("open x: no such thing"));
    let error = says_it.context("cannot begin").unwrap_err();
    assert_eq!(told(&error), "cannot begin: open x: no such thing");
    let error = cause().context("open x").unwrap_err();
    assert_eq!(told(&error), "open x: no such thing");
}
