use std::os::unix::fs::{PermissionsExt as _, symlink};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};

use super::*;
use crate::newc;
use crate::testing::{cpio, entries, files, spool};

fn read_with(root: &Path, limit: u64) -> Result<(Tree, Notes)> {
    read_until(root, limit, None)
}

fn read_until(root: &Path, limit: u64, newest: Option<u32>) -> Result<(Tree, Notes)> {
    let (mut tree, mut notes) = (Tree::new(), Notes::default());
    read(root, &mut tree, &mut spool(), &mut notes, limit, newest)?;
    Ok((tree, notes))
}

/// Gives a file, directory or link this time.
fn touch(path: &Path, seconds: i64) {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn all_that_is_in_it_arrives_as_roots_and_of_its_own_time() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    chmod(root, 0o700);
    fs::create_dir(root.join("d")).unwrap();
    chmod(&root.join("d"), 0o1750);
    fs::write(root.join("d/tool"), "text").unwrap();
    chmod(&root.join("d/tool"), 0o4755);
    fs::hard_link(root.join("d/tool"), root.join("twin")).unwrap();
    symlink("/etc/passwd", root.join("link")).unwrap();
    mknodat(
        CWD,
        root.join("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    // From within: making something changes the time of the directory that it is in.
    for (path, seconds) in [("d/tool", 3), ("fifo", 4), ("link", 5), ("d", 2)] {
        touch(&root.join(path), seconds);
    }
    let (tree, notes) = read_with(root, 1000).unwrap();
    let found: Vec<_> = entries(&tree)
        .into_iter()
        .map(|(header, contents)| {
            assert_eq!((header.uid, header.gid), (0, 0));
            (
                String::from_utf8(header.name).unwrap(),
                header.mode,
                header.ino,
                header.mtime,
                contents,
            )
        })
        .collect();
    let expected = [
        // Not 0700, as a temporary directory is: nobody else could get in.
        (".", 0o040755, 1, 0, ""),
        ("d", 0o041750, 2, 2, ""),
        ("d/tool", 0o104755, 3, 3, "text"),
        ("fifo", 0o010600, 4, 4, ""),
        ("link", 0o120777, 5, 5, "/etc/passwd"),
        ("twin", 0o104755, 3, 3, ""),
    ]
    .map(|(name, mode, ino, mtime, text)| {
        let text = text.as_bytes().to_vec();
        (name.to_owned(), mode, ino, mtime, text)
    });
    assert_eq!(found, expected);
    assert!(notes.lines().is_empty());
}

#[test]
fn what_others_own_stays_theirs() {
    let reader_owner = (rustix::process::geteuid(), rustix::process::getegid());
    if !reader_owner.0.is_root() {
        // Nobody else can give files away.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    fs::write(&file, "").unwrap();
    std::os::unix::fs::chown(&file, Some(1234), Some(4321)).unwrap();
    let (tree, _) = read_with(dir.path(), 10).unwrap();
    let meta = tree.get(b"f").unwrap().meta;
    assert_eq!((meta.uid, meta.gid), (1234, 4321));
}

#[test]
fn a_copy_made_in_another_place_gives_the_same_archive_if_its_times_are_the_same_or_cut() {
    let make = || {
        let dir = tempfile::tempdir().unwrap();
        for name in ["z", "a", "m"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("f"), name).unwrap();
        }
        dir
    };
    let (one, two) = (make(), make());
    let archive =
        |dir: &tempfile::TempDir, newest| cpio(&read_until(dir.path(), 1000, newest).unwrap().0);
    for name in ["z", "a", "m", "z/f", "a/f", "m/f"] {
        touch(&one.path().join(name), 1000);
        touch(&two.path().join(name), 1000);
    }
    assert_eq!(archive(&one, None), archive(&two, None));
    touch(&two.path().join("a/f"), 2000);
    assert_ne!(archive(&one, None), archive(&two, None));
    assert_eq!(archive(&one, Some(999)), archive(&two, Some(999)));
}

#[test]
fn a_time_before_1970_is_1970_and_noted() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "").unwrap();
    touch(&dir.path().join("f"), -1);
    let (tree, notes) = read_with(dir.path(), 10).unwrap();
    assert_eq!(tree.get(b"f").unwrap().meta.mtime, 0);
    assert!(notes.lines()[0].contains("(f)"), "{:?}", notes.lines());
}

#[test]
fn links_are_not_followed_and_those_that_leave_are_refused() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let dir = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join("out")).unwrap();
    let (tree, _) = read_with(dir.path(), 1000).unwrap();
    assert_eq!(files(&tree), [format!("out={}", outside.path().display())]);
    symlink("../x", dir.path().join("up")).unwrap();
    let text = read_with(dir.path(), 1000).unwrap_err().to_string();
    assert!(
        text.contains("up") && text.contains("leaves the root"),
        "{text}"
    );
}

#[test]
fn a_socket_is_left_out_and_noted() {
    let dir = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
    let (tree, notes) = read_with(dir.path(), 1000).unwrap();
    assert!(files(&tree).is_empty());
    assert!(notes.lines()[0].contains("sockets"), "{:?}", notes.lines());
}

#[test]
fn more_than_the_bound_is_refused_at_the_file_that_passes_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), [0; 100]).unwrap();
    assert!(read_with(dir.path(), 100).is_ok());
    let text = read_with(dir.path(), 99).unwrap_err().to_string();
    assert!(
        text.contains("\"f\"") && text.contains("99 bytes"),
        "{text}"
    );
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let text = read_with(Path::new("/no/such"), 1).unwrap_err().to_string();
    assert!(text.contains("/no/such"), "{text}");
}

#[test]
fn a_directory_as_deep_as_a_path_goes_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let deep = "d/".repeat(500);
    fs::create_dir_all(dir.path().join(&deep)).unwrap();
    let (tree, _) = read_with(dir.path(), 1).unwrap();
    let found = entries(&tree);
    assert_eq!(found.len(), 501);
    assert!(
        found
            .iter()
            .all(|(header, _)| header.mode & newc::TYPE_MASK == newc::DIRECTORY)
    );
}
