use super::*;

#[test]
fn long_lines_are_cut_between_characters() {
    assert_eq!(line("short"), "short");
    let long = "ä".repeat(1000);
    let cut = line(&format!("x{long}"));
    assert!(cut.ends_with("ä…") && cut.len() < LINE_MAX + 4, "{cut}");
}

#[test]
fn of_many_lines_the_last_are_kept() {
    let all: Vec<_> = (0..1000).map(|n| format!("line {n}")).collect();
    let kept = lines(&all.join("\n"));
    assert!(kept.len() <= TEXT_MAX);
    assert!(
        kept.ends_with("line 998\nline 999") && kept.starts_with("line "),
        "{kept}"
    );
    assert!(lines(&"x".repeat(100_000)).len() < 2 * LINE_MAX);
}

#[test]
fn what_a_terminal_would_obey_is_shown_instead() {
    let text = "a\tb\nc\u{1b}[2Jd\re\u{202e}f\u{9b}g";
    let shown = Escaped(text).to_string();
    assert_eq!(shown, "a\tb\nc\\u{1b}[2Jd\\re\\u{202e}f\\u{9b}g");
}
