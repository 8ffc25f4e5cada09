use super::*;

/// A mount of control groups with these files.
fn groups(listed: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, ControlGroups) {
    let mount = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = mount.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let groups = ControlGroups {
        mount: mount.path().into(),
        listed: listed.into(),
    };
    (mount, groups)
}

#[test]
fn the_tightest_of_all_groups_around_the_process_counts() {
    let files = [
        ("memory.max", "max\n"),
        ("outer/memory.max", "1000\n"),
        ("outer/memory.current", "700\n"),
        (
            "outer/memory.stat",
            "anon 500\ninactive_file 100\nactive_file 9\n",
        ),
        ("outer/inner/memory.max", "900\n"),
        ("outer/inner/memory.current", "100\n"),
        ("outer/inner/pids.max", "20\n"),
        ("outer/inner/pids.current", "15\n"),
        ("other/memory.max", "1\n"),
    ];
    let (mount, groups) = groups("0::/outer/inner\n", &files);
    let limit = groups.tightest_of_memory().unwrap();
    assert_eq!((limit.max, limit.used, limit.free()), (1000, 600, 400));
    let file = mount.path().join("outer/memory.max");
    assert_eq!(limit.file, file.display().to_string());
    assert_eq!(groups.tightest_of_threads().unwrap().free(), 5);
}

#[test]
fn both_versions_are_found_beside_each_other() {
    let files = [
        ("memory/a/memory.limit_in_bytes", "5000\n"),
        ("memory/a/memory.usage_in_bytes", "4000\n"),
        (
            "memory/a/memory.stat",
            "inactive_file 9\ntotal_inactive_file 500\n",
        ),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("unified/b/pids.max", "7\n"),
    ];
    let (_mount, groups) = groups("4:memory:/a\n1:name=systemd:/\n0::/b\n", &files);
    assert_eq!(groups.tightest_of_memory().unwrap().free(), 1500);
    assert_eq!(groups.tightest_of_threads().unwrap().free(), 7);
}

#[test]
fn what_cannot_be_read_is_no_limit() {
    for listed in ["", "0::/elsewhere\n", "nonsense\n", "3:memory:\n"] {
        let (_mount, groups) = groups(listed, &[("memory.max", "many\n")]);
        assert_eq!(groups.tightest_of_memory(), None, "{listed:?}");
        assert_eq!(groups.tightest_of_threads(), None);
    }
    // A container sees its own group as the root, under whatever path.
    let (_mount, groups) = groups("0::/host/path\n", &[("memory.max", "10\n")]);
    assert_eq!(groups.tightest_of_memory().unwrap().free(), 10);
}
