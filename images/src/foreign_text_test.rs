use super::*;

#[test]
fn what_a_terminal_would_not_print_is_escaped() {
    for (text, expected) in [
        ("usr/bin/größe \"a\" 'b' \\c", "usr/bin/größe \"a\" 'b' \\c"),
        ("a\u{1b}[2Jb", "a\\u{1b}[2Jb"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("gnp.\u{202e}exe\u{2066}", "gnp.\\u{202e}exe\\u{2066}"),
        ("\u{9b}31m\u{7f}\u{200b}", "\\u{9b}31m\\u{7f}\\u{200b}"),
    ] {
        assert_eq!(shown(text), expected);
    }
}

#[test]
fn long_text_is_cut() {
    let text = shown(&"a".repeat(1 << 20));
    assert_eq!(text.chars().count(), SHOWN_MAX + 1);
    assert!(text.ends_with("a…"));
}
