use super::*;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn output_is_what_the_program_printed() {
    assert_eq!(
        output(&mut shell("echo one; echo two")).unwrap(),
        "one\ntwo\n"
    );
}

#[test]
fn a_failed_program_is_shown_with_its_last_lines_in_order() {
    let error = output(&mut shell("echo first >&2; echo last >&2; exit 3")).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("exit status: 3"), "{text}");
    assert!(text.contains("first\nlast"), "{text}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = output(&mut Command::new("/nonexistent/make")).unwrap_err();
    assert!(matches!(error, Error::Start { .. }));
    assert!(error.to_string().contains("/nonexistent/make"), "{error}");
}

#[test]
fn lines_come_in_order_from_both_streams() {
    let mut seen = Vec::new();
    lines(&mut shell("echo one; echo two >&2; echo three"), |line| {
        seen.push(line.to_owned());
    })
    .unwrap();
    assert_eq!(seen, ["one", "two", "three"]);
}

#[test]
fn only_the_last_lines_of_a_failure_are_kept() {
    let error = lines(&mut shell("seq 1 100; exit 1"), |_| {}).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("\n76\n") && text.contains("\n100"), "{text}");
    assert!(!text.contains("\n75\n"), "{text}");
}
