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
    let running = cache.scratch("build", "k").unwrap();
    fs::write(running.path().join("half"), "x").unwrap();
    // Killed before and after it took its lock; its process id may be anybody's by now.
    let own = format!(".k.{}", std::process::id());
    let (early, late, other) = (
        kind.join(own),
        kind.join(".k.AbCdEf"),
        kind.join(".k.2.AbCdEf"),
    );
    for left in [&early, &late, &other] {
        fs::create_dir_all(left).unwrap();
    }
    fs::write(late.join(OWNER), "").unwrap();
    let second = cache.scratch("build", "k").unwrap();
    assert!(!early.exists() && !late.exists());
    assert!(other.exists());
    assert!(running.path().join("half").exists());
    assert_ne!(running.path(), second.path());
}

#[test]
fn builds_of_one_key_in_several_threads_keep_out_of_each_other_s_way() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..20 {
                    let scratch = cache.scratch("build", "k").unwrap();
                    let file = scratch.path().join("file");
                    let text = format!("{thread} {round}");
                    fs::write(&file, &text).unwrap();
                    std::thread::yield_now();
                    assert_eq!(fs::read_to_string(&file).unwrap(), text);
                }
            });
        }
    });
    assert_eq!(fs::read_dir(dir.path().join("build")).unwrap().count(), 0);
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
