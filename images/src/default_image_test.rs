use super::*;
use crate::kernel::KernelFacts;
use crate::progress::Quiet;
use std::os::unix::fs::PermissionsExt;

/// A kernel, an init and a "busybox" that lists two applets.
fn parts(dir: &Path) -> (Kernel, PathBuf, PathBuf) {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let kernel = Kernel {
        vmlinux: file("kernel", "kernel"),
        facts: KernelFacts {
            release: "6.12.0-test".into(),
            source_package: "linux-source".into(),
            source_version: "6.12".into(),
            source_sha256: "00".into(),
            compiler: "gcc".into(),
            options_sha256: "11".into(),
        },
    };
    let busybox = file(
        "busybox",
        "#!/bin/sh\n[ $# = 0 ] && echo BusyBox v1 && exit\n\
         echo bin/busybox; echo bin/sh; echo usr/bin/env; echo linuxrc\n",
    );
    (kernel, file("init", "init"), busybox)
}

#[test]
fn building_it_makes_it_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, init, busybox) = parts(dir.path());
    let cache = Cache::at(dir.path().join("cache"));
    let image = get_or_build(&cache, &kernel, &init, &busybox, &Quiet).unwrap();
    image.verify().unwrap();
    let opened = Image::default_in(&cache).unwrap();
    assert_eq!(opened.digest(), image.digest());
    assert_eq!(opened.origin()["kernel.release"], "6.12.0-test");
    assert_eq!(opened.origin()["busybox.version"], "BusyBox v1");
    assert_eq!(
        opened.origin()["busybox.sha256"],
        file_sha256(&busybox).unwrap()
    );
}

#[test]
fn the_same_parts_give_the_same_digest_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, init, busybox) = parts(dir.path());
    let build = |name| {
        let cache = Cache::at(dir.path().join(name));
        let image = get_or_build(&cache, &kernel, &init, &busybox, &Quiet).unwrap();
        image.digest().to_owned()
    };
    assert_eq!(build("one"), build("two"));
}

#[test]
fn another_init_is_another_image_and_the_new_default() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, init, busybox) = parts(dir.path());
    let cache = Cache::at(dir.path().join("cache"));
    let old = get_or_build(&cache, &kernel, &init, &busybox, &Quiet).unwrap();
    fs::write(&init, "new init").unwrap();
    let new = get_or_build(&cache, &kernel, &init, &busybox, &Quiet).unwrap();
    assert_ne!(old.digest(), new.digest());
    assert_eq!(Image::default_in(&cache).unwrap().digest(), new.digest());
    old.verify().unwrap();
}

#[test]
fn applets_are_links_and_the_binary_is_not_replaced_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let (_, init, busybox) = parts(dir.path());
    let root = root(&init, &busybox).unwrap();
    assert!(root.contains("bin/sh"));
    assert!(root.contains("usr/bin/env"));
    assert!(!root.contains("linuxrc"));
    let mut archive = Vec::new();
    root.write(&mut archive, Path::new("memory")).unwrap();
    let script = fs::read(&busybox).unwrap();
    assert!(archive.windows(script.len()).any(|part| part == script));
}
