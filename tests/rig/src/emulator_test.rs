use super::*;

#[test]
fn the_major_version_is_read_from_what_the_emulator_says() {
    let said = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright (c) 2003-2022";
    assert_eq!(major(said), Some(7));
    assert_eq!(major("QEMU emulator version 10.0.2"), Some(10));
    assert_eq!(major("something else"), None);
}

#[test]
fn one_that_does_not_run_has_no_version() {
    assert_eq!(Program::below(Path::new("/nowhere")).version(), None);
}

#[test]
fn data_is_looked_for_where_it_was_unpacked() {
    let command = Program::below(Path::new("/cache/entry")).command();
    let arguments: Vec<_> = command.get_args().collect();
    assert_eq!(
        arguments,
        [
            "-L",
            "/cache/entry/usr/share/qemu",
            "-L",
            "/cache/entry/usr/share/seabios"
        ]
    );
    assert_eq!(Program::installed().command().get_args().count(), 0);
}

#[test]
fn what_was_not_found_is_not_sought_again_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    assert!(!was_sought(&cache));
    fs::create_dir_all(dir.path().join(CACHE_KIND)).unwrap();
    let mark = fs::File::create(cache.path(CACHE_KIND, SOUGHT)).unwrap();
    assert!(was_sought(&cache));
    let long_ago = std::time::SystemTime::now() - SEEK_AGAIN;
    mark.set_modified(long_ago).unwrap();
    assert!(!was_sought(&cache));
}
