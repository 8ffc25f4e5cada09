use super::*;
use crate::testing::files;

#[test]
fn words_that_would_be_options_or_lists_are_refused() {
    for bad in [
        "",
        "-x",
        "--option",
        "book worm",
        "a\nb",
        "a,b",
        "a;b",
        "a/b",
    ] {
        assert!(DebianRoot::new(bad).is_err(), "{bad:?}");
        let root = DebianRoot::new("bookworm").unwrap();
        assert!(root.with_package(bad).is_err(), "{bad:?}");
    }
    let root = DebianRoot::new("bookworm").unwrap();
    let root = root.with_package("libstdc++6:amd64").unwrap();
    assert!(root.clone().with_mirror("http://example.org/a b").is_err());
    root.with_mirror("http://snapshot.debian.org/archive/debian/20260101T000000Z")
        .unwrap();
}

#[test]
fn a_mirror_that_is_given_is_the_only_source() {
    let root = DebianRoot::new("trixie").unwrap();
    let root = root.with_mirror("http://example.org/debian").unwrap();
    assert_eq!(
        root.sources().unwrap(),
        ["deb http://example.org/debian trixie main"]
    );
}

#[test]
fn what_is_the_host_s_and_what_nobody_reads_is_not_in_a_debian_image() {
    let mut tree = Tree::new();
    for path in [&b"etc/resolv.conf"[..], b"etc/hostname", b"etc/hosts"] {
        add_file(&mut tree, path, "of the host").unwrap();
    }
    for path in [&b"usr/share/doc/x/README"[..], b"usr/share/man/man1/x.1"] {
        add_file(&mut tree, path, "of the host: nobody reads it").unwrap();
    }
    add_file(&mut tree, b"usr/share/doc/x/copyright", "kept").unwrap();
    DebianRoot::new("bookworm")
        .unwrap()
        .settle(&mut tree)
        .unwrap();
    let found = files(&tree);
    assert_eq!(found.len(), 3);
    assert!(found.contains(&"usr/share/doc/x/copyright=kept".to_owned()));
    assert!(!found.concat().contains("of the host"), "{found:?}");
    assert!(found.concat().contains("127.0.0.1 localhost"), "{found:?}");
}
