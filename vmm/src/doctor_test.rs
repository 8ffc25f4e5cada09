use super::*;

#[test]
fn a_host_is_fit_unless_a_check_is_bad() {
    let check = |outcome| Check::new("x", outcome, "y");
    assert!(is_fit(&[check(Outcome::Good), check(Outcome::Warning)]));
    assert!(!is_fit(&[check(Outcome::Good), check(Outcome::Bad)]));
}

#[test]
fn available_memory_is_read_in_mebibytes() {
    let meminfo = "MemTotal:       24609392 kB\nMemAvailable:   2097152 kB\n";
    assert_eq!(available_mib(meminfo), Some(2048));
    assert_eq!(available_mib("MemTotal: 1 kB\n"), None);
    assert_eq!(available_mib("MemAvailable: many kB\n"), None);
}

#[test]
fn each_check_has_a_name_and_a_detail() {
    for check in examine() {
        assert!(
            !check.name.is_empty() && !check.detail.is_empty(),
            "{check}"
        );
    }
}
