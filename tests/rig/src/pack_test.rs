use super::*;

#[test]
fn ldd_lines_give_paths_and_skip_what_the_kernel_maps() {
    let text = "\
\tlinux-vdso.so.1 (0x00007ffd)
\tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f1)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f3)
";
    let paths = parse_ldd(text).unwrap();
    assert_eq!(
        paths,
        [
            "/lib/x86_64-linux-gnu/libgcc_s.so.1",
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2"
        ]
        .map(PathBuf::from)
    );
}

#[test]
fn a_library_that_is_not_found_is_named() {
    let text = "\tlibslirp.so.0 => not found\n";
    assert_eq!(parse_ldd(text), Err("libslirp.so.0".to_owned()));
}

#[test]
fn both_names_of_a_merged_usr_are_one_path() {
    assert_eq!(merged("/lib/x/libc.so.6"), "usr/lib/x/libc.so.6");
    assert_eq!(merged("/usr/lib/x/libc.so.6"), "usr/lib/x/libc.so.6");
    assert_eq!(merged("/bin/sh"), "usr/bin/sh");
    assert_eq!(merged("/binary/x"), "binary/x");
    assert_eq!(merged("/"), "");
}

#[test]
fn a_dynamic_program_brings_its_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let mut packer = Packer {
        archive: InitramfsBuilder::new(),
        examined: BTreeSet::new(),
    };
    packer.add(&program, "/opt/program").unwrap();
    assert!(packer.archive.contains("opt/program"));
    assert!(
        packer
            .archive
            .contains("usr/lib/x86_64-linux-gnu/libc.so.6")
    );

    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/file"), "text").unwrap();
    std::os::unix::fs::symlink("file", dir.path().join("sub/link")).unwrap();
    packer.add(dir.path(), "/data/").unwrap();
    for path in ["data", "data/sub", "data/sub/file", "data/sub/link"] {
        assert!(packer.archive.contains(path), "{path}");
    }
}

#[test]
fn a_missing_program_is_named_as_the_caller_wrote_it() {
    let assets = Assets {
        emulator: crate::emulator::Program::installed(),
        kernel: "/nonexistent/vmlinuz".into(),
        modules: Vec::new(),
        busybox: "/bin/true".into(),
        init: "/nonexistent/init".into(),
    };
    let error = pack(&RigCommand::new("target/no-such"), &assets).unwrap_err();
    assert!(error.to_string().contains("target/no-such"), "{error}");
}
