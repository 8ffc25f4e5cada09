use super::*;
use crate::memory::MemoryFileError;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

const LEN: u64 = 1 << 20;

fn state() -> State {
    let mut records = Records::default();
    records.put("part", 1, vec![7; 100]);
    State {
        shape: Shape {
            vendor: *b"maker of all",
            signature: 0x123,
            memory: LEN,
            cpus: 1,
        },
        records,
        taken: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000),
    }
}

/// Memory with one page that is not zero.
fn fill(file: &File) -> Result<(), SnapshotError> {
    use std::os::unix::fs::FileExt as _;
    file.set_len(LEN).unwrap();
    file.write_all_at(&[1; 4096], 8192).unwrap();
    Ok(())
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_was_written_is_read_and_only_this_user_can() {
    let dir = tempfile::tempdir().unwrap();
    let snapshot = dir.path().join("a/b");
    let report = write(&snapshot, state(), fill).unwrap();
    assert_eq!(names(&snapshot), ["memory", "state"]);
    for name in ["memory", "state"] {
        let mode = fs::metadata(snapshot.join(name)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{name}");
    }
    let state_len = fs::metadata(snapshot.join("state")).unwrap().len();
    assert_eq!(report.state_bytes, state_len);
    assert!(report.memory_bytes < LEN, "zeros take no room");
    let (read, memory) = read(&snapshot).unwrap();
    assert_eq!(read, state());
    assert_eq!(memory.len(), LEN);
}

#[test]
fn a_snapshot_that_is_there_is_left_alone() {
    for name in ["state", "state.unfinished", "memory", "memory.unfinished"] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), "mine").unwrap();
        let error = write(dir.path(), state(), fill).unwrap_err();
        let SnapshotError::Exists { path } = &error else {
            panic!("{error}");
        };
        assert_eq!(path, &dir.path().join(name));
        assert_eq!(names(dir.path()), [name]);
        assert_eq!(fs::read(path).unwrap(), b"mine");
    }
}

#[test]
fn one_that_failed_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let failing = |file: &File| {
        fill(file)?;
        Err(HostError::new("write memory", io::ErrorKind::StorageFull).into())
    };
    let error = write(dir.path(), state(), failing).unwrap_err();
    assert!(error.to_string().contains("write memory"), "{error}");
    assert_eq!(names(dir.path()), <[&str; 0]>::default());
    // So it can be tried again.
    write(dir.path(), state(), fill).unwrap();
}

#[test]
fn of_two_snapshots_into_one_directory_the_first_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let refused = || {
        let error = write(dir.path(), state(), fill).unwrap_err();
        assert!(matches!(error, SnapshotError::Exists { .. }), "{error}");
    };
    write(dir.path(), state(), |file| {
        refused();
        fill(file)
    })
    .unwrap();
    refused();
    read(dir.path()).unwrap();
    assert_eq!(names(dir.path()), ["memory", "state"]);
}

#[test]
fn what_others_put_in_the_way_is_neither_written_nor_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let theirs = dir.path().join("theirs");
    let refused = || match NewFile::create(path.clone()).map(drop).unwrap_err() {
        SnapshotError::Exists { path: found } => assert_eq!(found, path),
        error => panic!("{error}"),
    };
    fs::write(&path, "a file").unwrap();
    refused();
    assert_eq!(fs::read(&path).unwrap(), b"a file");
    fs::rename(&path, &theirs).unwrap();
    // One that leads somewhere, and one that does not.
    for target in [&theirs, &dir.path().join("nowhere")] {
        std::os::unix::fs::symlink(target, &path).unwrap();
        refused();
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(names(dir.path()), ["theirs"]);
    assert_eq!(fs::read(&theirs).unwrap(), b"a file");
}

#[test]
fn a_link_that_comes_in_the_way_while_the_memory_is_written_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let snapshot = dir.path().join("snapshot");
    let theirs = dir.path().join("theirs");
    fs::write(&theirs, "a file").unwrap();
    let error = write(&snapshot, state(), |file| {
        std::os::unix::fs::symlink(&theirs, snapshot.join("state.unfinished")).unwrap();
        fill(file)
    })
    .unwrap_err();
    assert!(matches!(error, SnapshotError::Exists { .. }), "{error}");
    assert_eq!(fs::read(&theirs).unwrap(), b"a file");
    assert_eq!(names(&snapshot), ["state.unfinished"]);
}

#[test]
fn a_file_that_has_its_name_is_removed_too_unless_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let finished = || {
        let mut file = NewFile::create(dir.path().join("unfinished")).unwrap();
        file.write(b"some").unwrap();
        file.finish(path.clone()).unwrap();
        assert_eq!(names(dir.path()), ["file"]);
        file
    };
    drop(finished());
    assert_eq!(names(dir.path()), <[&str; 0]>::default());
    finished().keep();
    assert_eq!(fs::read(&path).unwrap(), b"some");
}

#[test]
fn a_disk_without_room_for_the_state_has_nothing_of_it_afterwards() {
    const NAME: &str = "snapshot::directory::tests::\
        a_disk_without_room_for_the_state_has_nothing_of_it_afterwards";
    crate::testing::alone(NAME, || {
        let Some(disk) = crate::testing::small_disk() else {
            eprintln!("this user may not mount a small disk: not tested");
            return;
        };
        let mut large = state();
        large.records.put("large", 1, vec![1; 100_000]);
        let error = write(disk.path(), large, fill).unwrap_err();
        assert!(error.to_string().contains("write"), "{error}");
        assert!(error.to_string().contains("state"), "{error}");
        assert_eq!(names(disk.path()), <[&str; 0]>::default());
        write(disk.path(), state(), fill).unwrap();
    });
}

#[test]
fn the_memory_of_another_snapshot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    write(&one, state(), fill).unwrap();
    write(&other, state(), fill).unwrap();
    fs::copy(other.join("memory"), one.join("memory")).unwrap();
    let error = read(&one).unwrap_err();
    let RestoreError::Memory(MemoryFileError::Foreign { path }) = &error else {
        panic!("{error}");
    };
    assert_eq!(path, &one.join("memory"));
}

#[test]
fn memory_that_is_cut_longer_or_missing_is_refused() {
    let whole = LEN + FileMark::ROOM;
    for len in [0, 1, 4096, LEN - 1, LEN, whole - 4096, whole - 1, whole + 1] {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), state(), fill).unwrap();
        let memory = OpenOptions::new()
            .write(true)
            .open(dir.path().join("memory"));
        memory.unwrap().set_len(len).unwrap();
        let error = read(dir.path()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&len.to_string()), "{text}");
        assert!(text.contains(&whole.to_string()), "{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), state(), fill).unwrap();
    fs::remove_file(dir.path().join("memory")).unwrap();
    let text = read(dir.path()).unwrap_err().to_string();
    assert!(text.contains("memory"), "{text}");
}
