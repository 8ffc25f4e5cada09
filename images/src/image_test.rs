use super::description::DESCRIPTION;
use super::*;

fn write_image(directory: &Path, cmdline: &str) -> String {
    fs::write(directory.join("vmlinux"), "kernel").unwrap();
    fs::write(directory.join("initramfs.cpio"), "layer").unwrap();
    describe(
        directory,
        Parts {
            name: "test",
            kernel: "vmlinux",
            kernel_kind: KernelKind::Vmlinux,
            initramfs: &[("initramfs.cpio", 8192)],
            cmdline,
            config: ImageConfig::default(),
            origin: BTreeMap::from([("kernel".into(), "made up".into())]),
        },
    )
    .unwrap()
    .digest
}

#[test]
fn a_written_image_opens_with_the_same_digest() {
    let dir = tempfile::tempdir().unwrap();
    let digest = write_image(dir.path(), "quiet");
    let image = Image::open(dir.path()).unwrap();
    assert_eq!(image.digest(), digest);
    assert_eq!(image.kernel(), dir.path().join("vmlinux"));
    assert_eq!(image.initramfs(), [dir.path().join("initramfs.cpio")]);
    assert_eq!(image.cmdline(), "quiet");
    assert_eq!(image.name(), "test");
    image.verify().unwrap();
}

#[test]
fn a_layer_changes_the_digest_and_goes_on_top() {
    let dir = tempfile::tempdir().unwrap();
    write_image(dir.path(), "");
    let plain = Image::open(dir.path()).unwrap();
    let layer = dir.path().join("more.cpio");
    fs::write(&layer, "more").unwrap();
    let layered = plain.clone().with_layer(&layer).unwrap();
    assert_ne!(plain.digest(), layered.digest());
    assert_eq!(layered.initramfs().last(), Some(&layer));
    layered.verify().unwrap();
    fs::write(&layer, "else").unwrap();
    assert!(matches!(layered.verify(), Err(Error::DamagedImage { .. })));
}

#[test]
fn the_command_line_is_part_of_the_digest() {
    let one = tempfile::tempdir().unwrap();
    let two = tempfile::tempdir().unwrap();
    assert_ne!(
        write_image(one.path(), ""),
        write_image(two.path(), "quiet")
    );
}

#[test]
fn a_cut_file_is_found_when_opening() {
    let dir = tempfile::tempdir().unwrap();
    write_image(dir.path(), "");
    fs::write(dir.path().join("vmlinux"), "kern").unwrap();
    let error = Image::open(dir.path()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("vmlinux: it has 4 bytes, 6 are recorded"),
        "{text}"
    );
}

#[test]
fn a_missing_file_is_found_when_opening() {
    let dir = tempfile::tempdir().unwrap();
    write_image(dir.path(), "");
    fs::remove_file(dir.path().join("initramfs.cpio")).unwrap();
    let error = Image::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::DamagedImage { .. }), "{error}");
}

#[test]
fn a_changed_byte_is_found_when_verifying() {
    let dir = tempfile::tempdir().unwrap();
    write_image(dir.path(), "");
    fs::write(dir.path().join("vmlinux"), "kernal").unwrap();
    let error = Image::open(dir.path()).unwrap().verify().unwrap_err();
    assert!(error.to_string().contains("vmlinux"), "{error}");
}

#[test]
fn a_newer_format_is_refused_by_its_number() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join(DESCRIPTION),
        r#"{"format": 9, "unheard": 1}"#,
    )
    .unwrap();
    let error = Image::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Format { found: 9, .. }), "{error}");
}

#[test]
fn text_that_is_no_description_is_an_error_with_the_path() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(DESCRIPTION), "{").unwrap();
    let error = Image::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Description { .. }), "{error}");
    assert!(error.to_string().contains(DESCRIPTION), "{error}");
}

#[test]
fn a_missing_default_names_the_command_that_builds_it() {
    let dir = tempfile::tempdir().unwrap();
    let error = Image::default_in(&Cache::at(dir.path())).unwrap_err();
    assert!(error.to_string().contains("cargo xtask image"), "{error}");
}

#[test]
fn an_image_that_says_nothing_of_its_commands_is_in_the_form_that_older_versions_read() {
    let dir = tempfile::tempdir().unwrap();
    write_image(dir.path(), "");
    let text = fs::read_to_string(dir.path().join(DESCRIPTION)).unwrap();
    assert!(
        text.contains("\"format\": 1") && !text.contains("config"),
        "{text}"
    );
    assert!(Image::open(dir.path()).unwrap().command().is_empty());
}

#[test]
fn a_layer_of_an_older_description_is_taken_to_unpack_to_its_own_length() {
    let dir = tempfile::tempdir().unwrap();
    write_image(dir.path(), "");
    let path = dir.path().join(DESCRIPTION);
    let need = Image::open(dir.path()).unwrap().memory_need();
    assert_eq!((need.kernel, need.archives, need.unpacked), (6, 5, 8192));
    let text = fs::read_to_string(&path).unwrap();
    let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
    older["initramfs"][0]
        .as_object_mut()
        .unwrap()
        .remove("unpacked")
        .unwrap();
    fs::write(&path, older.to_string()).unwrap();
    let need = Image::open(dir.path()).unwrap().memory_need();
    assert_eq!((need.archives, need.unpacked), (5, 5));
    assert_eq!(need.least_bytes(), 6 + 5 + 2 * 5 + (16 << 20));
}

#[test]
fn the_kind_of_a_kernel_is_seen_in_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kernel");
    let mut bzimage = vec![0; 0x300];
    bzimage[0x202..0x206].copy_from_slice(b"HdrS");
    for (content, kind) in [
        (&bzimage[..], KernelKind::BzImage),
        (&bzimage[..0x204], KernelKind::Vmlinux),
        (b"\x7fELF", KernelKind::Vmlinux),
    ] {
        fs::write(&path, content).unwrap();
        assert_eq!(KernelKind::of_file(&path).unwrap(), kind);
    }
    let error = KernelKind::of_file(dir.path()).unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
}

#[test]
fn files_of_an_image_are_plain_files_of_its_directory() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), "kernel").unwrap();
    let absolute = outside.path().to_str().unwrap();
    for path in [
        absolute,
        "sub/../vmlinux",
        "../vmlinux",
        "./vmlinux",
        "vmlinux/",
        "sub/vmlinux",
        "link",
        "",
        ".",
        "sub",
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/vmlinux"), "kernel").unwrap();
        std::os::unix::fs::symlink("vmlinux", dir.path().join("link")).unwrap();
        write_image(dir.path(), "");
        let description = dir.path().join(DESCRIPTION);
        let text = fs::read_to_string(&description).unwrap();
        let changed = text.replace("\"path\": \"vmlinux\"", &format!("\"path\": {path:?}"));
        assert_ne!(text, changed);
        fs::write(&description, changed).unwrap();
        let error = Image::open(dir.path()).unwrap_err();
        assert!(
            matches!(error, Error::DamagedImage { .. }),
            "{path}: {error}"
        );
    }
}

#[test]
fn kernel_and_archives_that_cannot_be_loaded_are_told_apart_from_a_need_of_memory() {
    let need = |kernel, archives| MemoryNeed {
        kernel,
        archives,
        unpacked: u64::MAX,
    };
    assert!(need(100 << 20, 2 << 30).can_be_met());
    assert!(!need(100 << 20, 3 << 30).can_be_met());
    assert!(!need(u64::MAX, 1).can_be_met());
}
