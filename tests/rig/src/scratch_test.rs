use super::*;

#[test]
fn a_directory_in_use_stays_and_an_abandoned_one_goes() {
    let parent = tempfile::tempdir().unwrap();
    let used = Scratch::below(parent.path()).unwrap();
    fs::write(used.path().join("l1.cpio"), "archive").unwrap();
    // As after a kill: the directory is there and nobody holds its lock.
    let abandoned = parent.path().join(format!("{PREFIX}abandoned"));
    fs::create_dir(&abandoned).unwrap();
    fs::write(abandoned.join("l1.cpio"), "archive").unwrap();
    let foreign = parent.path().join("foreign");
    fs::create_dir(&foreign).unwrap();

    let next = Scratch::below(parent.path()).unwrap();
    assert!(used.path().join("l1.cpio").exists());
    assert!(next.path().exists());
    assert!(!abandoned.exists());
    assert!(foreign.exists());
}

#[test]
fn a_directory_goes_with_its_run() {
    let parent = tempfile::tempdir().unwrap();
    drop(Scratch::below(parent.path()).unwrap());
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}
