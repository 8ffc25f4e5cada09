use super::*;
use cpio::newc::Reader;
use std::fs;
use std::io::Read;

fn bytes(builder: &InitramfsBuilder) -> Vec<u8> {
    let mut out = Vec::new();
    builder.write(&mut out, Path::new("memory")).unwrap();
    out
}

/// Path, mode with type bits, inode, device numbers, contents.
type Found = (String, u32, u32, (u32, u32), Vec<u8>);

fn entries(archive: &[u8]) -> Vec<Found> {
    let mut found = Vec::new();
    let mut rest = archive;
    loop {
        let mut reader = Reader::new(rest).unwrap();
        let entry = reader.entry();
        if entry.is_trailer() {
            return found;
        }
        assert_eq!(entry.mtime(), 0);
        assert_eq!((entry.uid(), entry.gid()), (0, 0));
        let head = (
            entry.name().to_owned(),
            entry.mode(),
            entry.ino(),
            (entry.rdev_major(), entry.rdev_minor()),
        );
        let mut contents = Vec::new();
        reader.read_to_end(&mut contents).unwrap();
        rest = reader.finish().unwrap();
        found.push((head.0, head.1, head.2, head.3, contents));
    }
}

#[test]
fn the_order_of_adding_does_not_show() {
    let mut one = InitramfsBuilder::new();
    one.file("init", 0o755, "x").directory("proc", 0o555);
    let mut two = InitramfsBuilder::new();
    two.directory("/proc/", 0o555).file("/init", 0o755, "x");
    assert_eq!(bytes(&one), bytes(&two));
}

#[test]
fn every_kind_of_entry_reads_back() {
    let mut builder = InitramfsBuilder::new();
    builder
        .early_devices()
        .file("init", 0o755, "hello")
        .symlink("bin/sh", "/bin/busybox");
    let archive = bytes(&builder);
    assert_eq!(archive.len() % 4, 0);
    let found = entries(&archive);
    let expected = [
        ("bin", 0o040755, 1, (0, 0), ""),
        ("bin/sh", 0o120777, 2, (0, 0), "/bin/busybox"),
        ("dev", 0o040755, 3, (0, 0), ""),
        ("dev/console", 0o020600, 4, (5, 1), ""),
        ("dev/null", 0o020666, 5, (1, 3), ""),
        ("init", 0o100755, 6, (0, 0), "hello"),
    ]
    .map(|(path, mode, ino, rdev, text)| (path.to_owned(), mode, ino, rdev, text.into()));
    assert_eq!(found, expected);
}

#[test]
fn parents_come_before_their_children_even_beside_similar_names() {
    let mut builder = InitramfsBuilder::new();
    builder
        .file("usr/bin/x", 0o755, "")
        .file("usr-local", 0o644, "")
        .file("usr.old", 0o644, "");
    let names: Vec<_> = entries(&bytes(&builder)).into_iter().map(|e| e.0).collect();
    let at = |name: &str| names.iter().position(|n| n == name).unwrap();
    assert!(at("usr") < at("usr/bin"));
    assert!(at("usr/bin") < at("usr/bin/x"));
}

#[test]
fn a_directory_keeps_the_mode_it_was_added_with() {
    let mut builder = InitramfsBuilder::new();
    builder.file("tmp/x", 0o644, "").directory("tmp", 0o1777);
    let found = entries(&bytes(&builder));
    assert_eq!((found[0].0.as_str(), found[0].1), ("tmp", 0o041777));
}

#[test]
fn what_was_added_last_stays() {
    let mut builder = InitramfsBuilder::new();
    builder.file("a", 0o644, "one").file("a", 0o600, "two");
    let found = entries(&bytes(&builder));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].4, b"two");
}

#[test]
fn paths_that_leave_the_archive_are_refused() {
    for path in ["../x", "a/../x", "a//b", "./a", "", "a\0b"] {
        let mut builder = InitramfsBuilder::new();
        builder.file(path, 0o644, "");
        let result = builder.write(&mut Vec::new(), Path::new("memory"));
        assert!(matches!(result, Err(Error::Entry { .. })), "{path:?}");
    }
}

#[test]
fn nothing_can_be_put_below_a_file() {
    let mut builder = InitramfsBuilder::new();
    builder.file("a", 0o644, "").file("a/b", 0o644, "");
    let result = builder.write(&mut Vec::new(), Path::new("memory"));
    assert!(matches!(result, Err(Error::Entry { .. })));
}

#[test]
fn host_files_are_read_when_the_archive_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::write(&source, "before").unwrap();
    let mut builder = InitramfsBuilder::new();
    builder.host_file("bin/tool", 0o755, &source);
    fs::write(&source, "after!!").unwrap();
    let found = entries(&bytes(&builder));
    assert_eq!(found[1].4, b"after!!");
}

#[test]
fn a_missing_host_file_is_named() {
    let mut builder = InitramfsBuilder::new();
    builder.host_file("bin/tool", 0o755, "/nonexistent/tool");
    let error = builder
        .write(&mut Vec::new(), Path::new("memory"))
        .unwrap_err();
    assert!(error.to_string().contains("/nonexistent/tool"), "{error}");
}

#[test]
fn joined_archives_start_on_multiples_of_four() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("1"), dir.path().join("2"));
    fs::write(&one, "12345").unwrap();
    fs::write(&two, "6789").unwrap();
    let joined = dir.path().join("joined");
    concatenate(&[&one, &two], &joined).unwrap();
    assert_eq!(fs::read(&joined).unwrap(), b"12345\x00\x00\x006789");
}
