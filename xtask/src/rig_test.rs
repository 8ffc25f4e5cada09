use super::*;

#[test]
fn an_image_may_be_named_twice_and_by_its_directory() {
    let links = tempfile::tempdir().unwrap();
    for name in ["app", "app", "3f0c", "3f0c9a"] {
        add_name(links.path(), name, OsStr::new("3f0c9a")).unwrap();
    }
    let mut names: Vec<_> = fs::read_dir(links.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["3f0c", "app"]);
    for name in names {
        let target = fs::read_link(links.path().join(name)).unwrap();
        assert_eq!(target, Path::new("3f0c9a"));
    }
}
