use super::*;

const GOOD: &str = "test result: ok. 42 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s";
const BAD: &str = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";

#[test]
fn summaries_of_several_programs_add_up() {
    let output = format!("running 42 tests\n{GOOD}\n\nrunning 5 tests\n{BAD}\n");
    let verdict = Verdict::read(&output, false);
    assert_eq!((verdict.passed, verdict.failed), (45, 2));
}

#[test]
fn a_crash_without_a_summary_is_a_failure() {
    let verdict = Verdict::read("running 3 tests\ntest a ... ", false);
    assert_eq!((verdict.passed, verdict.failed), (0, 1));
}

#[test]
fn a_crash_after_a_good_summary_is_a_failure() {
    let verdict = Verdict::read(GOOD, false);
    assert_eq!((verdict.passed, verdict.failed), (42, 1));
}

#[test]
fn success_without_tests_counts_nothing() {
    assert_eq!(Verdict::read("", true), Verdict::default());
}

#[test]
fn failures_are_named() {
    let output = format!("test a ... ok\ntest b::c ... FAILED\n{BAD}\n");
    let mut verdict = Verdict::read(&output, false);
    assert_eq!(verdict.failures, ["b::c"]);
    verdict.fail("no room".to_owned());
    assert_eq!((verdict.failed, verdict.failures.len()), (2, 2));
    let crash = Verdict::read("running 3 tests\ntest a ... \n", false).failures;
    assert!(crash[0].contains("test a ..."), "{crash:?}");
}

#[test]
fn the_names_of_passed_tests_are_read() {
    let output = "test a::one ... ok\ntest a::two ... FAILED\ntest b ... ok\ntest c ... ";
    assert_eq!(passed(output).collect::<Vec<_>>(), ["a::one", "b"]);
}
