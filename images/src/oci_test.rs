use std::collections::BTreeMap as Map;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use super::*;
use crate::testing::{Item, Layout, files, gzip, sha256, spool, tar, zstd};

fn read_from(path: &Path, reference: Option<&str>, limit: u64) -> Result<(Tree, Unpacked)> {
    let (mut tree, mut notes) = (Tree::new(), Notes::default());
    let unpacked = read(
        path,
        reference,
        &mut tree,
        &mut spool(),
        &mut notes,
        limit,
        None,
    )?;
    Ok((tree, unpacked))
}

fn found(path: &Path) -> Vec<String> {
    files(&read_from(path, None, 1 << 20).unwrap().0)
}

fn refusal(path: &Path) -> String {
    read_from(path, None, 1 << 20).unwrap_err().to_string()
}

/// A layout of three layers, each compressed another way.
fn layout() -> (TempDir, Layout) {
    let dir = tempdir().unwrap();
    let mut layout = Layout::new(dir.path());
    let one = tar(&[Item::file("a", "1"), Item::file("gone", "x")]);
    let two = tar(&[Item::file(".wh.gone", ""), Item::file("b", "2")]);
    let three = tar(&[Item::file("a", "3")]);
    layout
        .layer(&one, &one)
        .layer(&gzip(&two), &two)
        .layer(&zstd(&three), &three);
    (dir, layout)
}

/// The files of a directory as an archive, the way `tar -C DIR -c .` names them.
fn packed(directory: &Path) -> Vec<u8> {
    fn collect(root: &Path, directory: &Path, items: &mut Vec<Item>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("./{}", path.strip_prefix(root).unwrap().display());
            if path.is_dir() {
                items.push(Item::directory(name + "/", 0o755));
                collect(root, &path, items);
            } else {
                items.push(Item::file(name, fs::read(&path).unwrap()));
            }
        }
    }
    let mut items = Vec::new();
    collect(directory, directory, &mut items);
    tar(&items)
}

#[test]
fn a_layout_is_read_from_a_directory_a_tar_and_a_compressed_tar() {
    let (_dir, layout) = layout();
    let directory = layout.finish();
    let expected = ["a=3", "b=2"];
    assert_eq!(found(directory), expected);
    let elsewhere = tempdir().unwrap();
    let file = elsewhere.path().join("image");
    let archive = packed(directory);
    for bytes in [archive.clone(), gzip(&archive), zstd(&archive)] {
        fs::write(&file, bytes).unwrap();
        assert_eq!(found(&file), expected);
    }
}

#[test]
fn the_configuration_arrives() {
    let (_dir, mut layout) = layout();
    layout.config = json!({
        "Env": ["PATH=/bin", "A=b=c"], "User": "app:app", "WorkingDir": "/srv",
        "Entrypoint": ["/bin/entry"], "Cmd": ["serve", "--all"], "ExposedPorts": { "80/tcp": {} },
    });
    let (_, unpacked) = read_from(layout.finish(), None, 1 << 20).unwrap();
    let pairs = [("PATH", "/bin"), ("A", "b=c")];
    let expected = ImageConfig {
        env: Map::from(pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))),
        user: Some("app:app".to_owned()),
        workdir: Some("/srv".to_owned()),
        entrypoint: vec!["/bin/entry".to_owned()],
        cmd: vec!["serve".to_owned(), "--all".to_owned()],
    };
    assert_eq!(unpacked.config, expected);
    assert_eq!(expected.command(), ["/bin/entry", "serve", "--all"]);
}

#[test]
fn a_configuration_that_says_nothing_is_empty() {
    let (_dir, mut layout) = layout();
    layout.config = json!({ "Env": null, "User": "", "WorkingDir": "", "Cmd": null });
    assert!(
        read_from(layout.finish(), None, 1 << 20)
            .unwrap()
            .1
            .config
            .is_empty()
    );
    layout.config = Value::Null;
    assert!(
        read_from(layout.finish(), None, 1 << 20)
            .unwrap()
            .1
            .config
            .is_empty()
    );
}

#[test]
fn a_configuration_that_no_guest_can_have_is_refused() {
    for (config, word) in [
        (json!({ "Env": ["NOTHING"] }), "NAME=VALUE"),
        (json!({ "Env": ["=x"] }), "NAME=VALUE"),
        (json!({ "WorkingDir": "srv" }), "not absolute"),
        (json!({ "Cmd": ["a\0b"] }), "NUL"),
        (json!({ "Cmd": 5 }), "invalid type"),
    ] {
        let (_dir, mut layout) = layout();
        layout.config = config;
        let text = refusal(layout.finish());
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let (dir, layout) = layout();
    layout.finish();
    for entry in fs::read_dir(dir.path().join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        fs::write(&path, &bad).unwrap();
        let text = refusal(dir.path());
        assert!(text.contains("SHA-256"), "{text}");
        fs::write(&path, &good[..good.len() - 1]).unwrap();
        let text = refusal(dir.path());
        assert!(text.contains("are promised"), "{text}");
        fs::remove_file(&path).unwrap();
        let text = refusal(dir.path());
        assert!(text.contains("missing"), "{text}");
        fs::write(&path, good).unwrap();
    }
    assert_eq!(found(dir.path()), ["a=3", "b=2"]);
}

#[test]
fn a_layer_that_unpacks_to_something_else_is_refused() {
    let dir = tempdir().unwrap();
    let mut layout = Layout::new(dir.path());
    layout.layer(&tar(&[Item::file("a", "1")]), &tar(&[Item::file("a", "2")]));
    let text = refusal(layout.finish());
    assert!(text.contains("unpacked it has SHA-256"), "{text}");
}

#[test]
fn a_bomb_ends_at_the_bound() {
    for compress in [gzip, zstd] {
        let dir = tempdir().unwrap();
        let mut layout = Layout::new(dir.path());
        let bomb = tar(&[Item::file("zeros", vec![0; 8 << 20])]);
        layout.layer(&compress(&bomb), &bomb);
        let text = refusal(layout.finish());
        assert!(text.contains("more than 1048576 bytes"), "{text}");
    }
}

#[test]
fn all_layers_share_the_bound() {
    let dir = tempdir().unwrap();
    let mut layout = Layout::new(dir.path());
    for name in ["a", "b", "c"] {
        let layer = tar(&[Item::file(name, vec![b'x'; 400_000])]);
        layout.layer(&gzip(&layer), &layer);
    }
    let text = refusal(layout.finish());
    assert!(
        text.contains("\"c\"") && text.contains("more than"),
        "{text}"
    );
}

#[test]
fn the_platform_of_guests_is_chosen_among_several() {
    let (dir, ours) = layout();
    let mut theirs = Layout::new(dir.path());
    theirs.platform = ("linux", "arm64");
    let other = tar(&[Item::file("arm", "1")]);
    theirs.layer(&other, &other);
    // As `docker buildx` writes it: an index in the index.
    let inner = json!({ "manifests": [theirs.manifest(), ours.manifest()] });
    let mut inner = ours.blob(inner.to_string().as_bytes());
    inner["mediaType"] = "application/vnd.oci.image.index.v1+json".into();
    ours.index(&[inner]);
    assert_eq!(found(dir.path()), ["a=3", "b=2"]);
    theirs.index(&[theirs.manifest()]);
    let text = refusal(dir.path());
    assert!(text.contains("no image for linux/amd64"), "{text}");
    let mut unmarked = theirs.manifest();
    unmarked["platform"] = Value::Null;
    theirs.index(&[unmarked]);
    let text = refusal(dir.path());
    assert!(text.contains("linux/arm64"), "{text}");
}

#[test]
fn one_of_several_images_is_chosen_by_name_tag_or_digest() {
    let (dir, one) = layout();
    let mut two = Layout::new(dir.path());
    let layer = tar(&[Item::file("two", "2")]);
    two.layer(&layer, &layer);
    let named = |layout: &Layout, name: &str| {
        let mut descriptor = layout.manifest();
        descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        descriptor
    };
    let second = named(&two, "example.org/app:two");
    one.index(&[named(&one, "example.org/app:one"), second.clone()]);
    let text = refusal(dir.path());
    assert!(text.contains("app:one, example.org/app:two"), "{text}");
    let digest = second["digest"].as_str().unwrap();
    for reference in ["example.org/app:two", "app:two", "two", digest] {
        let (tree, unpacked) = read_from(dir.path(), Some(reference), 1 << 20).unwrap();
        assert_eq!(files(&tree), ["two=2"]);
        assert_eq!(unpacked.origin["oci.reference"], "example.org/app:two");
    }
    for wrong in ["wo", "three", ""] {
        let text = read_from(dir.path(), Some(wrong), 1 << 20)
            .unwrap_err()
            .to_string();
        assert!(text.contains("there is:"), "{wrong:?}: {text}");
    }
}

#[test]
fn indexes_within_indexes_come_to_an_end() {
    let (dir, layout) = layout();
    let mut descriptor = layout.manifest();
    for _ in 0..8 {
        descriptor = layout.blob(json!({ "manifests": [descriptor] }).to_string().as_bytes());
        descriptor["mediaType"] = "application/vnd.oci.image.index.v1+json".into();
    }
    layout.index(&[descriptor]);
    let text = refusal(dir.path());
    assert!(text.contains("too deep"), "{text}");
}

#[test]
fn indexes_that_name_each_other_many_times_are_refused_soon() {
    let (dir, layout) = layout();
    let mut descriptor = layout.manifest();
    for _ in 0..3 {
        let many = vec![descriptor; 200];
        descriptor = layout.blob(json!({ "manifests": many }).to_string().as_bytes());
        descriptor["mediaType"] = "application/vnd.oci.image.index.v1+json".into();
    }
    layout.index(&[descriptor]);
    let text = refusal(dir.path());
    assert!(text.contains("4096 entries"), "{text}");
}

#[test]
fn indexes_that_lead_to_nothing_are_counted_too() {
    let (dir, layout) = layout();
    let mut foreign = layout.manifest();
    foreign["platform"] = json!({ "os": "plan9", "architecture": "mips" });
    layout.index(&vec![foreign; 5000]);
    let text = refusal(dir.path());
    assert!(text.contains("4096 entries"), "{text}");
}

#[test]
fn an_index_of_several_names_is_found_by_each() {
    let (dir, layout) = layout();
    let mut inner = layout.blob(
        json!({ "manifests": [layout.manifest()] })
            .to_string()
            .as_bytes(),
    );
    inner["mediaType"] = "application/vnd.oci.image.index.v1+json".into();
    let named = ["app:one", "app:two"].map(|name| {
        let mut inner = inner.clone();
        inner["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        inner
    });
    layout.index(&named);
    for name in ["app:one", "app:two"] {
        let (_, unpacked) = read_from(dir.path(), Some(name), 1 << 20).unwrap();
        assert_eq!(unpacked.origin["oci.reference"], name);
    }
}

#[test]
fn what_an_image_says_reaches_no_terminal_as_it_is() {
    let hostile = "\u{1b}]0;x\u{7}\u{202e}";
    let (dir, layout) = layout();
    let named = [1, 2].map(|number| {
        let mut descriptor = layout.manifest();
        // Two that differ, so that none is chosen.
        descriptor["digest"] = format!("{hostile}{number}").into();
        descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": hostile });
        descriptor
    });
    layout.index(&named);
    let mut foreign = Layout::new(&dir.path().join("foreign"));
    foreign.platform = ("linux", "\u{1b}[2J\u{202e}");
    let mut unmarked = foreign.manifest();
    unmarked["platform"] = Value::Null;
    foreign.index(&[unmarked]);
    for path in [dir.path(), foreign.directory.as_path()] {
        let text = refusal(path);
        assert!(text.contains("\\u{202e}"), "{text:?}");
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
    }
}

#[test]
fn an_error_names_some_of_many_images() {
    let (dir, layout) = layout();
    let all: Vec<_> = (0..100)
        .map(|number| {
            let mut descriptor = layout.manifest();
            descriptor["digest"] = number.to_string().into();
            descriptor
        })
        .collect();
    layout.index(&all);
    let text = refusal(dir.path());
    assert!(text.contains("19 and 80 more"), "{text}");
}

/// What `docker save` wrote before it wrote layouts.
fn docker_save(layers: &[(&str, Vec<u8>)]) -> Vec<Item> {
    let diffs: Vec<_> = layers
        .iter()
        .map(|(_, tar)| format!("sha256:{}", sha256(tar)))
        .collect();
    let config = json!({
        "os": "linux", "architecture": "amd64", "rootfs": { "diff_ids": diffs },
        "config": { "Cmd": ["sh"] },
    })
    .to_string();
    let config_name = format!("{}.json", sha256(config.as_bytes()));
    let names: Vec<_> = layers
        .iter()
        .map(|(name, _)| format!("{name}/layer.tar"))
        .collect();
    let manifest = json!([{ "Config": config_name, "RepoTags": ["app:1"], "Layers": names }]);
    let mut items = vec![
        Item::file(config_name, config),
        Item::file("manifest.json", manifest.to_string()),
    ];
    for (name, tar) in layers {
        items.push(Item::file(format!("{name}/layer.tar"), tar));
    }
    items
}

fn written(dir: &TempDir, items: &[Item]) -> PathBuf {
    let path = dir.path().join("saved.tar");
    fs::write(&path, tar(items)).unwrap();
    path
}

#[test]
fn what_docker_saved_is_read() {
    let dir = tempdir().unwrap();
    let layers = [
        ("one", tar(&[Item::file("a", "1")])),
        ("two", tar(&[Item::file("b", "2")])),
    ];
    let path = written(&dir, &docker_save(&layers));
    assert_eq!(found(&path), ["a=1", "b=2"]);
    let (_, unpacked) = read_from(&path, Some("app:1"), 1 << 20).unwrap();
    assert_eq!(unpacked.config.cmd, ["sh"]);
    assert!(read_from(&path, Some("app:2"), 1 << 20).is_err());
}

#[test]
fn a_layer_that_docker_saved_as_a_link_to_another_is_read() {
    let dir = tempdir().unwrap();
    let layer = tar(&[Item::file("a", "1")]);
    let mut items = docker_save(&[("one", layer.clone()), ("two", layer)]);
    let last = items.last_mut().unwrap();
    *last = Item::symlink("two/layer.tar", "../one/layer.tar");
    assert_eq!(found(&written(&dir, &items)), ["a=1"]);
}

#[test]
fn a_changed_configuration_of_docker_is_found_by_its_name() {
    let dir = tempdir().unwrap();
    let mut items = docker_save(&[("one", tar(&[]))]);
    items[0].contents.push(b' ');
    let text = refusal(&written(&dir, &items));
    assert!(text.contains("SHA-256"), "{text}");
}

#[test]
fn names_in_a_manifest_do_not_lead_out() {
    let outside = tempdir().unwrap();
    fs::write(
        outside.path().join("layer.tar"),
        tar(&[Item::file("a", "1")]),
    )
    .unwrap();
    for name in ["../layer.tar", "/etc/passwd", "x/../../layer.tar", ""] {
        let inside = outside.path().join("image");
        fs::create_dir_all(&inside).unwrap();
        let manifest = json!([{ "Config": name, "RepoTags": [], "Layers": [] }]);
        fs::write(inside.join("manifest.json"), manifest.to_string()).unwrap();
        let text = refusal(&inside);
        assert!(text.contains("leads out"), "{text}");
    }
}

#[test]
fn links_in_a_directory_do_not_lead_out() {
    let (dir, layout) = layout();
    layout.finish();
    let outside = tempdir().unwrap();
    let index = dir.path().join("index.json");
    fs::rename(&index, outside.path().join("index.json")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("index.json"), &index).unwrap();
    assert!(read_from(dir.path(), None, 1 << 20).is_err());
    // Within it they may.
    fs::remove_file(&index).unwrap();
    fs::rename(
        outside.path().join("index.json"),
        dir.path().join("real.json"),
    )
    .unwrap();
    std::os::unix::fs::symlink("real.json", &index).unwrap();
    assert_eq!(found(dir.path()), ["a=3", "b=2"]);
}

#[test]
fn what_is_no_container_image_is_said_to_be_none() {
    let dir = tempdir().unwrap();
    assert!(refusal(dir.path()).contains("neither index.json nor manifest.json"));
    let file = dir.path().join("file");
    fs::write(&file, tar(&[Item::file("etc/passwd", "root")])).unwrap();
    assert!(refusal(&file).contains("neither index.json nor manifest.json"));
    fs::write(&file, "text").unwrap();
    assert!(!refusal(&file).is_empty());
    fs::write(dir.path().join("index.json"), "{").unwrap();
    assert!(refusal(dir.path()).contains("index.json"));
}

#[test]
fn an_archive_that_is_cut_is_refused() {
    let (_dir, layout) = layout();
    let archive = packed(layout.finish());
    let elsewhere = tempdir().unwrap();
    let file = elsewhere.path().join("cut.tar");
    for len in [600, archive.len() / 2, archive.len() - 1600] {
        fs::write(&file, &archive[..len]).unwrap();
        assert!(!refusal(&file).is_empty());
    }
}

#[test]
fn manifest_and_configuration_must_name_the_same_number_of_layers() {
    let (_dir, layout) = layout();
    let mut manifest = layout.manifest();
    let digest = manifest["digest"]
        .as_str()
        .unwrap()
        .trim_start_matches("sha256:")
        .to_owned();
    let path = layout.directory.join("blobs/sha256").join(digest);
    let mut text: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    text["layers"].as_array_mut().unwrap().pop();
    manifest = layout.blob(text.to_string().as_bytes());
    layout.index(&[manifest]);
    let text = refusal(&layout.directory);
    assert!(
        text.contains("has 2 layers and its configuration 3"),
        "{text}"
    );
}
