use super::*;

const MEMINFO: &str = "MemTotal:       24609392 kB\nMemAvailable:   2097152 kB\n\
                       CommitLimit:  524288 kB\nCommitted_AS:  204800 kB\n";

#[test]
fn fields_are_read_in_mebibytes() {
    assert_eq!(
        field_mib("VmPeak:\t  4096 kB\nVmSize:\t  3072 kB\n", "VmSize"),
        Some(3)
    );
    assert_eq!(field_mib(MEMINFO, "MemAvailable"), Some(2048));
    assert_eq!(field_mib(MEMINFO, "Mem"), None);
    assert_eq!(field_mib("MemAvailable: many kB\n", "MemAvailable"), None);
}

#[test]
fn a_measure_is_judged_by_the_smallest_guest_and_the_one_in_question() {
    for (free, outcome) in [
        (0, Outcome::Bad),
        (63, Outcome::Bad),
        (64, Outcome::Warning),
        (255, Outcome::Warning),
        (256, Outcome::Good),
    ] {
        let check = room("x", free, 256, "found".into(), "do this");
        assert_eq!(check.outcome, outcome, "{free} MiB");
        let advised = check.detail.ends_with("do this");
        assert_eq!(advised, outcome != Outcome::Good, "{check}");
    }
}

#[test]
fn what_the_host_has_is_held_against_the_guests_size() {
    assert_eq!(host(MEMINFO, 2048).outcome, Outcome::Good);
    let check = host(MEMINFO, 2049);
    assert_eq!(check.outcome, Outcome::Warning);
    assert!(check.detail.contains("a guest of 2049 MiB"), "{check}");
    assert_eq!(host("", 64).outcome, Outcome::Warning);
}

#[test]
fn a_host_that_never_promises_twice_is_a_warning_at_best() {
    assert_eq!(by_policy("0", MEMINFO, 256).outcome, Outcome::Good);
    let warned = by_policy("2", MEMINFO, 256);
    assert_eq!(warned.outcome, Outcome::Warning);
    assert!(warned.detail.contains("312 MiB"), "{warned}");
    assert!(warned.detail.ends_with(remedy::OVERCOMMIT), "{warned}");
    let full = MEMINFO.replace("204800", "524288");
    assert_eq!(by_policy("2", &full, 256).outcome, Outcome::Bad);
}
