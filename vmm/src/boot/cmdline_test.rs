use super::*;

fn text(additions: &[&str]) -> Result<String, UsageError> {
    CommandLine::new(additions.iter().copied())
        .map(|line| String::from_utf8(line.as_bytes_with_nul().to_vec()).unwrap())
}

#[test]
fn additions_come_last_so_that_they_win() {
    assert_eq!(
        text(&["loglevel=7", " ", "panic=5 init=/bin/sh"]).unwrap(),
        format!("{BASE} loglevel=7 panic=5 init=/bin/sh\0")
    );
    assert_eq!(text(&[]).unwrap(), format!("{BASE}\0"));
}

#[test]
fn what_the_kernel_would_cut_or_misread_is_refused_by_name() {
    let error = text(&["a=\0b"]).unwrap_err();
    assert_eq!(error.field, "cmdline");
    assert!(error.bound.contains("ASCII"), "{error}");
    assert!(text(&["a=ü"]).is_err());
    assert!(text(&["a=b\nc"]).is_err());
}

#[test]
fn the_length_limit_counts_ours_and_the_nul() {
    let room = COMMAND_LINE_MAX - BASE.len() - 1 - 1;
    assert_eq!(text(&[&"x".repeat(room)]).unwrap().len(), COMMAND_LINE_MAX);
    let error = text(&[&"x".repeat(room + 1)]).unwrap_err();
    assert!(error.bound.contains("2048"), "{error}");
    assert!(error.value.chars().count() < 100, "the value is cut");
}
