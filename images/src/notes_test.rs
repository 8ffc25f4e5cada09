use super::*;

#[test]
fn a_path_in_a_note_is_escaped_and_few_are_named() {
    let mut notes = Notes::default();
    for number in 0..7 {
        notes.attributes_lost(format!("a\u{1b}[2J\n{number}\u{202e}").as_bytes());
    }
    let lines = notes.lines();
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].contains("a\\u{1b}[2J\\n4\\u{202e} and 2 more"),
        "{lines:?}"
    );
    assert!(
        !lines[0].contains(['\u{1b}', '\n', '\u{202e}']),
        "{lines:?}"
    );
}

#[test]
fn a_time_that_no_initramfs_can_say_is_the_nearest_and_noted() {
    let mut notes = Notes::default();
    let last = u32::MAX;
    for (said, newest, expected) in [
        (0, None, 0),
        (i64::from(last), None, last),
        (50, Some(100), 50),
        // As was asked for.
        (200, Some(100), 100),
        (i64::MAX, Some(100), 100),
    ] {
        assert_eq!(notes.time(b"good", said, newest), expected, "{said}");
    }
    assert!(notes.lines().is_empty(), "{:?}", notes.lines());
    assert_eq!(notes.time(b"early", -1, Some(100)), 0);
    assert_eq!(notes.time(b"late", i64::from(last) + 1, None), last);
    let [line] = &notes.lines()[..] else {
        panic!("{:?}", notes.lines());
    };
    assert!(
        line.contains("times") && line.ends_with("(early, late)"),
        "{line}"
    );
}

#[test]
fn an_image_that_no_guest_can_boot_is_noted() {
    let noted = |archives| {
        let mut notes = Notes::default();
        notes.memory_need(MemoryNeed {
            kernel: 64 << 20,
            archives,
            unpacked: 0,
        });
        notes.lines()
    };
    assert!(noted(2 << 30).is_empty());
    assert!(noted(3 << 30)[0].contains("no guest can boot it"));
}
