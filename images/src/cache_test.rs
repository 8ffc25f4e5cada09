use super::*;

#[test]
fn an_entry_appears_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let failed: Result<PathBuf> = cache.publish("kernel", "k", |path| {
        fs::write(path.join("half"), "x").unwrap();
        Err(Error::NoCacheDirectory)
    });
    assert!(failed.is_err());
    assert_eq!(cache.get("kernel", "k"), None);
    assert_eq!(fs::read_dir(dir.path().join("kernel")).unwrap().count(), 0);

    let path = cache
        .publish("kernel", "k", |path| -> Result<()> {
            fs::write(path.join("whole"), "x").unwrap();
            assert_eq!(cache.get("kernel", "k"), None);
            Ok(())
        })
        .unwrap();
    assert_eq!(cache.get("kernel", "k"), Some(path.clone()));
    assert!(path.join("whole").exists());
}

#[test]
fn an_entry_that_is_there_is_not_built_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let fill = |_: &Path| -> Result<()> { Ok(()) };
    let first = cache.get_or_publish("image", "k", fill).unwrap();
    let again = cache
        .get_or_publish("image", "k", |_| -> Result<()> {
            panic!("built a second time")
        })
        .unwrap();
    assert_eq!(first, again);
}

#[test]
fn whoever_published_first_wins() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let path = cache
        .publish("image", "k", |_| -> Result<()> {
            let theirs = cache.path("image", "k");
            fs::create_dir_all(&theirs).unwrap();
            fs::write(theirs.join("theirs"), "x").unwrap();
            Ok(())
        })
        .unwrap();
    assert!(path.join("theirs").exists());
}

#[test]
fn a_lock_is_held_until_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let held = cache.lock("build").unwrap();
    let other = File::open(dir.path().join("build.lock")).unwrap();
    let attempt = || rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
    assert!(attempt().is_err());
    drop(held);
    assert!(attempt().is_ok());
}

#[test]
fn what_killed_builds_left_is_removed_and_what_others_build_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let kind = dir.path().join("build");
    // Process ids end far below this one; 1 is always running.
    let (dead, alive, other) = (".k.4294967294", ".k.1", ".other.4294967294");
    for name in [dead, alive, other] {
        fs::create_dir_all(kind.join(name)).unwrap();
    }
    cache.scratch("build", "k").unwrap();
    assert!(!kind.join(dead).exists());
    assert!(kind.join(alive).exists());
    assert!(kind.join(other).exists());
}

#[test]
fn its_size_counts_files_of_several_names_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().join("cache"));
    assert_eq!(cache.size().unwrap(), 0);
    let entry = dir.path().join("cache/a/b");
    fs::create_dir_all(&entry).unwrap();
    fs::write(entry.join("one"), vec![1; 100_000]).unwrap();
    let once = cache.size().unwrap();
    assert!(once >= 100_000);
    fs::hard_link(entry.join("one"), entry.join("two")).unwrap();
    assert_eq!(cache.size().unwrap(), once);
}
