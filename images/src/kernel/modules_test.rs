use super::*;
use tempfile::TempDir;

/// A tree of modules, each with what it depends on.
fn tree(modules: &[(&str, &str)], builtin: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("modules.builtin"), builtin).unwrap();
    fs::create_dir(dir.path().join("kernel")).unwrap();
    for (path, depends) in modules {
        let path = dir.path().join("kernel").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let content = format!("\x7fELF\0license=GPL\0depends={depends}\0retpoline=Y\0");
        fs::write(&path, content).unwrap();
        if path.extension().unwrap() == "xz" {
            let plain = path.with_extension("");
            fs::rename(&path, &plain).unwrap();
            let done = Command::new("xz").arg(&plain).status().unwrap();
            assert!(done.success());
        }
    }
    dir
}

fn build(tree: &TempDir) -> Result<(Vec<String>, Vec<u8>)> {
    let target = tree.path().join("modules.cpio");
    let names = layer("linux-image-x", "6.12-x", tree.path(), &target)?;
    assert!(!tree.path().join("modules.ko").exists(), "scratch is left");
    Ok((names, fs::read(target).unwrap()))
}

#[test]
fn modules_are_loaded_behind_what_they_depend_on_and_once() {
    let tree = tree(
        &[
            ("drivers/virtio/virtio_mmio.ko.xz", "virtio,virtio-ring"),
            ("drivers/virtio/virtio.ko", ""),
            ("drivers/virtio/virtio-ring.ko", "virtio"),
            ("drivers/char/virtio_console.ko", "virtio,virtio_ring"),
            ("drivers/misc/pvpanic/pvpanic-mmio.ko", "pvpanic"),
            ("drivers/misc/pvpanic/pvpanic.ko", ""),
            ("drivers/net/virtio_net.ko", "virtio"),
        ],
        "",
    );
    let (names, archive) = build(&tree).unwrap();
    assert_eq!(
        names,
        [
            "virtio",
            "virtio_ring",
            "virtio_mmio",
            "virtio_console",
            "pvpanic",
            "pvpanic_mmio"
        ]
    );
    let text = String::from_utf8_lossy(&archive);
    let list = "/etc/forebay/kernel/6.12-x/kernel/drivers/virtio/virtio.ko\n\
                /etc/forebay/kernel/6.12-x/kernel/drivers/virtio/virtio-ring.ko\n\
                /etc/forebay/kernel/6.12-x/kernel/drivers/virtio/virtio_mmio.ko\n";
    assert!(text.contains(list), "{text}");
    assert!(
        text.contains("depends=virtio,virtio-ring"),
        "it is compressed"
    );
    assert!(!text.contains("virtio_net"));
    // As a layer it lies over any root, whatever links that has.
    let mut rest = &archive[..];
    while let Some((header, _)) = crate::newc::read(&mut rest, u32::MAX).unwrap() {
        assert!(header.name.starts_with(b"etc"), "{header:?}");
    }
}

#[test]
fn what_is_built_in_is_not_loaded() {
    let tree = tree(
        &[("drivers/virtio/virtio_mmio.ko", "virtio,virtio_ring")],
        "kernel/drivers/virtio/virtio.ko\nkernel/drivers/virtio/virtio_ring.ko\n\
         kernel/drivers/char/virtio_console.ko\n",
    );
    assert_eq!(build(&tree).unwrap().0, ["virtio_mmio"]);
}

#[test]
fn a_driver_that_is_needed_and_nowhere_is_named() {
    let tree = tree(&[("drivers/virtio/virtio_mmio.ko", "")], "");
    let error = build(&tree).unwrap_err().to_string();
    assert!(
        error.contains("virtio_console") && error.contains("linux-image-x"),
        "{error}"
    );
}

#[test]
fn modules_that_depend_on_each_other_do_not_go_round_for_ever() {
    let tree = tree(
        &[
            ("a/virtio_mmio.ko", "virtio_console"),
            ("a/virtio_console.ko", "virtio_mmio"),
        ],
        "",
    );
    assert_eq!(build(&tree).unwrap().0.len(), 2);
}
