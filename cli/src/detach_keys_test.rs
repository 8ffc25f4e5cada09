use super::*;

fn keys(text: &str) -> DetachKeys {
    text.parse().unwrap()
}

/// All that goes to the command, and whether the keys came.
fn typed(keys_text: &str, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let mut watch = Watch::new(keys(keys_text));
    let mut all = Vec::new();
    for piece in pieces {
        let Typed { input, detach } = watch.typed(piece);
        all.extend(input);
        if detach {
            return (all, true);
        }
    }
    all.extend(watch.rest());
    (all, false)
}

#[test]
fn keys_are_written_as_docker_has_them() {
    assert_eq!(keys("ctrl-p,ctrl-q"), DetachKeys(vec![0x10, 0x11]));
    assert_eq!(
        keys("ctrl-@,a,ctrl-_,ctrl-]"),
        DetachKeys(vec![0, b'a', 0x1f, 0x1d])
    );
    assert_eq!(keys("ctrl-A"), keys("ctrl-a"));
    assert_eq!(keys(""), DetachKeys(vec![]));
    for wrong in [
        "ctrl-",
        "ctrl-p,",
        "ctrl-1",
        "ab",
        "ä",
        "ctrl-ä",
        "\u{7f}",
        "a,b,c,d,e,f,g,h,i",
    ] {
        assert!(wrong.parse::<DetachKeys>().is_err(), "{wrong}");
    }
}

#[test]
fn the_keys_are_found_however_they_arrive_and_never_reach_the_command() {
    assert_eq!(
        typed("ctrl-p,ctrl-q", &[b"ab\x10\x11cd"]),
        (b"ab".to_vec(), true)
    );
    assert_eq!(
        typed("ctrl-p,ctrl-q", &[b"ab\x10", b"\x11"]),
        (b"ab".to_vec(), true)
    );
    assert_eq!(typed("ctrl-]", &[b"\x1d"]), (vec![], true));
}

#[test]
fn what_only_begins_like_the_keys_reaches_the_command_whole() {
    let all = b"\x10\x10a\x10b\x11\x10";
    for size in 1..=all.len() {
        let pieces: Vec<_> = all.chunks(size).collect();
        assert_eq!(
            typed("ctrl-p,ctrl-q", &pieces),
            (all.to_vec(), false),
            "{size}"
        );
    }
}

#[test]
fn a_sequence_that_begins_within_itself_is_found() {
    assert_eq!(typed("a,a,b", &[b"aaab"]), (b"a".to_vec(), true));
    assert_eq!(
        typed("a,b,a,c", &[b"xabab", b"ac"]),
        (b"xab".to_vec(), true)
    );
}

#[test]
fn without_keys_everything_reaches_the_command() {
    assert_eq!(
        typed("", &[b"\x10\x11", b"x"]),
        (b"\x10\x11x".to_vec(), false)
    );
}
