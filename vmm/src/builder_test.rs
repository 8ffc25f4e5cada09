use super::*;

fn refusal(builder: VmBuilder) -> UsageError {
    match builder.kernel("/nowhere/vmlinux").start_machine() {
        Err(StartError::Usage(e)) => e,
        other => panic!("expected a usage error, got {other:?}"),
    }
}

#[test]
fn wrong_numbers_are_refused_by_name_value_and_bound() {
    let error = refusal(VmBuilder::default().cpus(0));
    assert_eq!((error.field, error.value.as_str()), ("cpus", "0"));
    assert!(error.bound.contains("254"));
    assert_eq!(refusal(VmBuilder::default().cpus(255)).field, "cpus");
    for mib in [0, 63, MEMORY_MIB_MAX + 1, u32::MAX] {
        let error = refusal(VmBuilder::default().memory_mib(mib));
        assert_eq!(error.field, "memory_mib");
        assert_eq!(error.value, mib.to_string());
    }
    for limit in [Duration::ZERO, Duration::from_secs(3601)] {
        let error = refusal(VmBuilder::default().boot_deadline(limit));
        assert_eq!(error.field, "boot_deadline");
    }
    for bytes in [0, CONSOLE_CAPACITY_MIN - 1, CONSOLE_CAPACITY_MAX + 1] {
        let error = refusal(VmBuilder::default().console_capacity(bytes));
        assert_eq!(error.field, "console_capacity");
    }
    assert_eq!(
        refusal(VmBuilder::default().cmdline("a\nb")).field,
        "cmdline"
    );
}

#[test]
fn memory_in_huge_pages_is_an_even_number_of_mib_and_not_forkable() {
    let huge = || VmBuilder::default().huge_pages(true);
    assert_eq!(refusal(huge().memory_mib(65)).field, "memory_mib");
    let error = refusal(huge().forkable(true));
    assert_eq!(error.field, "huge_pages");
    assert!(error.bound.contains("forkable"), "{error}");
}

#[test]
fn an_attach_socket_that_cannot_be_is_refused_before_anything_is_made() {
    let start = |path: &str| {
        let builder = VmBuilder::default().kernel("/nowhere/vmlinux");
        builder.attach_socket(path).bind().err()
    };
    for path in ["x".repeat(108), String::new()] {
        let Some(StartError::Usage(error)) = start(&path) else {
            panic!("expected a usage error");
        };
        assert_eq!(error.field, "attach_socket");
        assert!(error.bound.contains("107"), "{error}");
    }
    let unusable = start("/nowhere/socket");
    assert!(
        matches!(unusable, Some(StartError::Attach(_))),
        "{unusable:?}"
    );
}

#[test]
fn a_machine_without_executions_takes_no_attach_socket() {
    let builder = VmBuilder::default().attach_socket("/tmp/socket");
    assert_eq!(refusal(builder).field, "attach_socket");
}

#[test]
fn the_bounds_themselves_are_allowed() {
    for builder in [
        VmBuilder::default().cpus(1).memory_mib(MEMORY_MIB_MIN),
        VmBuilder::default()
            .cpus(CPUS_MAX)
            .memory_mib(MEMORY_MIB_MAX)
            .boot_deadline(BOOT_DEADLINE_MAX),
    ] {
        assert!(builder.kernel("/nowhere/vmlinux").spec().is_ok());
    }
}

#[test]
fn layers_and_words_keep_their_order() {
    let spec = VmBuilder::default()
        .kernel("/k")
        .initramfs("/a")
        .initramfs("/b")
        .cmdline("x=1")
        .cmdline("x=2")
        .spec()
        .unwrap();
    assert_eq!(spec.kernel, PathBuf::from("/k"));
    assert_eq!(spec.initramfs, [PathBuf::from("/a"), PathBuf::from("/b")]);
    let line = String::from_utf8(spec.cmdline.as_bytes_with_nul().to_vec()).unwrap();
    assert!(line.ends_with(" x=1 x=2\0"), "{line}");
}

/// An image whose files are as large as these, in MiB, and have nothing in them.
fn image_of(kernel: u64, archive: u64, unpacked: u64) -> (tempfile::TempDir, Image) {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, mib: u64| {
        let file = std::fs::File::create(dir.path().join(name)).unwrap();
        file.set_len(mib << 20).unwrap();
        format!(r#""path": "{name}", "size": {}, "sha256": """#, mib << 20)
    };
    let mut digest = forebay_images::ContentKey::new("image").text("vmlinux");
    for nothing in ["", "", ""] {
        digest = digest.text(nothing);
    }
    let digest = digest.digest();
    let description = format!(
        r#"{{"format": 1, "name": "", "digest": "{digest}", "cmdline": "", "origin": {{}},
            "kernel": {{"kind": "vmlinux", {}}},
            "initramfs": [{{{}, "unpacked": {}}}]}}"#,
        file("vmlinux", kernel),
        file("root.cpio", archive),
        unpacked << 20,
    );
    std::fs::write(dir.path().join("image.json"), description).unwrap();
    let image = Image::open(dir.path()).unwrap();
    (dir, image)
}

#[test]
fn an_image_that_cannot_fit_is_refused_with_the_numbers() {
    let (_directory, image) = image_of(20, 100, 110);
    // 20 + 100 + 2 * 110, and 16 for the kernel's own.
    let error = refusal(VmBuilder::default().image(image.clone()).memory_mib(355));
    assert_eq!(error.field, "memory_mib");
    for number in ["356", "20 MiB", "100 MiB", "110 MiB"] {
        assert!(error.bound.contains(number), "{error}");
    }
    let enough = VmBuilder::default().image(image).memory_mib(356);
    let started = enough.kernel("/nowhere/vmlinux").start_machine();
    assert!(!matches!(started, Err(StartError::Usage(_))), "{started:?}");
}

#[test]
fn an_image_that_no_guest_can_boot_is_not_met_by_advice_to_add_memory() {
    let (_directory, image) = image_of(20, 3072, 3072);
    for mib in [256, MEMORY_MIB_MAX] {
        let error = refusal(VmBuilder::default().image(image.clone()).memory_mib(mib));
        assert_eq!(error.field, "image");
        assert!(error.bound.contains("below 3 GiB"), "{error}");
    }
}
