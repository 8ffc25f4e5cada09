use super::*;

#[test]
fn a_host_is_fit_unless_a_check_is_bad() {
    let check = |outcome| Check::new("x", outcome, "y");
    assert!(is_fit(&[check(Outcome::Good), check(Outcome::Warning)]));
    assert!(!is_fit(&[check(Outcome::Good), check(Outcome::Bad)]));
}

#[test]
fn every_check_is_there_under_its_name_and_says_something() {
    let checks = examine();
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    assert_eq!(
        names,
        [
            "KVM",
            "guests",
            "descriptors",
            "threads",
            "memory",
            "control group",
            "address space",
            "overcommit",
            "image"
        ]
    );
    for check in checks {
        assert!(!check.detail.is_empty(), "{check}");
    }
}

#[test]
fn a_check_in_json_has_the_fields_that_it_always_had() {
    let check = Check::new("memory", Outcome::Warning, "little");
    let json = serde_json::to_string(&check).unwrap();
    let expected = r#"{"name":"memory","outcome":"warning","detail":"little"}"#;
    assert_eq!(json, expected);
}

#[test]
fn room_for_few_vms_is_a_warning_and_for_none_a_failure() {
    for (vms, outcome) in [
        (0, Outcome::Bad),
        (1, Outcome::Warning),
        (9, Outcome::Warning),
        (10, Outcome::Good),
    ] {
        let check = Check::room_for("x", vms, "found", "do this");
        assert_eq!(check.outcome, outcome);
        let advised = check.detail.ends_with("do this");
        assert_eq!(advised, outcome != Outcome::Good, "{check}");
    }
}
