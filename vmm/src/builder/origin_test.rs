use super::*;
use crate::snapshot::form;
use crate::{CpuTemplate, CpuidRegister};

fn files(dir: &Path) -> (PathBuf, PathBuf) {
    let (kernel, layer) = (dir.join("vmlinux"), dir.join("layer.cpio"));
    fs::write(&kernel, "kernel").unwrap();
    fs::write(&layer, "layer").unwrap();
    (kernel, layer)
}

fn reread(origin: &OriginV1) -> OriginV1 {
    form::decode("vm", &form::encode(origin)).unwrap()
}

#[test]
fn all_of_a_builder_comes_back_but_the_limits_of_executions() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, layer) = files(dir.path());
    let template =
        CpuTemplate::x86_64_v3()
            .without("rdrand")
            .mask(1, 0, CpuidRegister::Ecx, 1 << 30);
    let mut builder = VmBuilder::default()
        .kernel(&kernel)
        .initramfs(&layer)
        .cmdline("quiet")
        .cmdline("debug=1")
        .cpus(3)
        .memory_mib(384)
        .forkable(true)
        .cpu_template(template.clone())
        .hostname("name")
        .env("A", OsString::from_vec(vec![b'=', 0xff]))
        .current_dir("/srv")
        .exec_memory_limit(1 << 26)
        .exec_process_limit(9)
        .exec_cpu_weight(7)
        .exec_cpu_limit(0.25)
        .exec_limits(crate::Limits {
            max_executions: 3,
            ..crate::Limits::default()
        });
    builder.user = Some("nobody:users".to_owned());
    let again = reread(&builder.origin()).builder().unwrap();
    builder.exec.limits = crate::Limits::default();
    assert_eq!(format!("{again:?}"), format!("{builder:?}"));
    assert_eq!(again.cpu_template, template);
}

#[test]
fn a_file_that_is_not_what_it_was_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, layer) = files(dir.path());
    let origin = VmBuilder::default()
        .kernel(&kernel)
        .initramfs(&layer)
        .origin();
    let _ = origin.builder().unwrap();
    let refused = || origin.builder().map(|_| ()).unwrap_err().to_string();

    fs::write(&layer, "longer than it was").unwrap();
    let error = refused();
    assert!(
        error.contains("layer.cpio") && error.contains("18 bytes"),
        "{error}"
    );

    fs::remove_file(&layer).unwrap();
    let error = refused();
    assert!(
        error.contains("layer.cpio") && error.contains("cannot be found"),
        "{error}"
    );

    // Of the same length, written later.
    fs::write(&layer, "LAYER").unwrap();
    let file = fs::File::options().append(true).open(&layer).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
    file.set_modified(later).unwrap();
    let error = refused();
    assert!(
        error.contains("layer.cpio") && error.contains("written to"),
        "{error}"
    );
}

#[test]
fn a_relative_path_is_kept_as_what_it_meant() {
    let origin = VmBuilder::default().kernel("some/vmlinux").origin();
    let here = std::env::current_dir().unwrap();
    let error = origin.builder().map(|_| ()).unwrap_err();
    let RestoreError::Origin { path, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(path, here.join("some/vmlinux"));
}

#[test]
fn a_template_of_a_level_or_register_that_does_not_exist_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (kernel, _) = files(dir.path());
    let with = |template: CpuTemplate| {
        let builder = VmBuilder::default().kernel(&kernel).cpu_template(template);
        form::encode(&builder.origin())
    };
    let good = with(CpuTemplate::x86_64_v3().mask(7, 0, CpuidRegister::Edx, 0x55));
    // `[level, [hidden], [[leaf, subleaf, register, bits]]]`
    let template = [0x83, 3, 0x80, 0x81, 0x84, 7, 0, 3, 0x18, 0x55];
    let at = good
        .windows(10)
        .position(|bytes| bytes == template)
        .unwrap();
    for (byte, wrong) in [(1, 4), (7, 4)] {
        let mut bytes = good.clone();
        bytes[at + byte] = wrong;
        let origin: OriginV1 = form::decode("vm", &bytes).unwrap();
        let error = origin.builder().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("CPU template"), "{error}");
    }
}

/// The bytes are what snapshots have.
#[test]
fn the_bytes_of_a_record_are_what_they_were() {
    let file = |path: &str, bytes| SourceV1 {
        path: path.as_bytes().to_vec().into(),
        bytes,
        changed: (1, 2),
    };
    let origin = OriginV1 {
        kernel: file("/k", 3),
        initramfs: vec![file("/i", 400)],
        cmdline: vec!["quiet".to_owned()],
        cpus: 2,
        memory_mib: 256,
        forkable: true,
        huge_pages: false,
        cpu_template: CpuTemplate::x86_64_v2().without("avx").save(),
        hostname: Some("h".to_owned()),
        env: vec![(b"K".to_vec().into(), b"v".to_vec().into())],
        current_dir: None,
        user: Some("u".to_owned()),
        memory_limit: None,
        process_limit: Some(5),
        cpu_weight: None,
        cpu_limit: Some(0.5),
        image: Some(ImageV1 {
            name: "n".to_owned(),
            directory: b"/d".to_vec().into(),
            digest: "0a".to_owned(),
            need: (1, 2, 3),
        }),
    };
    let bytes = form::encode(&origin);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "9183422f6b038201028183422f691901908201028165717569657402190100f5f48302816361\
         76788061688182414b4176f66175f605f6fb3fe000000000000084616e422f64623061830102\
         03"
    );
    assert_eq!(reread(&origin), origin);
}
