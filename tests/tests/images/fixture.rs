//! A container image of busybox and a few files that are easily lost on the way.

use std::fs::{self, File};
use std::io::{BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use cpio::newc::Reader;
use forebay_images::progress::Quiet;
use forebay_images::{Built, Cache, Foundation, ImageBuilder, Source};
use forebay_tests::sha256;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

/// What its commands are made of.
const APPLETS: [&str; 14] = [
    "cat",
    "cut",
    "echo",
    "env",
    "id",
    "ls",
    "printf",
    "pwd",
    "readlink",
    "sh",
    "sha256sum",
    "sort",
    "stat",
    "test",
];

/// The busybox of the image that tests boot.
fn busybox() -> Vec<u8> {
    let image = forebay_tests::image();
    for layer in image.initramfs() {
        let mut archive = BufReader::new(File::open(layer).unwrap());
        loop {
            let mut entry = Reader::new(archive).unwrap();
            if entry.entry().is_trailer() {
                break;
            }
            if entry.entry().name() == "bin/busybox" {
                let mut contents = Vec::new();
                entry.read_to_end(&mut contents).unwrap();
                return contents;
            }
            archive = entry.finish().unwrap();
        }
    }
    panic!("there is no busybox in the image that tests boot");
}

/// A directory that is gone at the end of a test, with a cache whose default image is the one that
/// tests boot.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let images = place.cache().root().join("images");
        fs::create_dir_all(&images).unwrap();
        let default = fs::canonicalize(forebay_tests::image().directory()).unwrap();
        symlink(default, images.join("default")).unwrap();
        place
    }

    pub(crate) fn cache(&self) -> Cache {
        Cache::at(self.dir.path().join("cache"))
    }

    pub(crate) fn build(&self, source: &Source) -> Built {
        let cache = self.cache();
        let foundation = Foundation::of(&forebay_tests::image()).unwrap();
        ImageBuilder::new(&cache, foundation)
            .build(source, &Quiet)
            .unwrap()
    }

    /// A directory with busybox and these of its commands.
    pub(crate) fn root(&self, applets: &[&str]) -> PathBuf {
        let root = self.dir.path().join("root");
        fs::create_dir_all(root.join("bin")).unwrap();
        let program = root.join("bin/busybox");
        fs::write(&program, busybox()).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        for applet in applets {
            symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        root
    }

    /// An OCI image layout of [`layers`], with this configuration.
    pub(crate) fn container(&self, config: &Value) -> PathBuf {
        let layout = self.dir.path().join("layout");
        fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
        let blob = |bytes: &[u8]| {
            let digest = digest(bytes);
            fs::write(layout.join("blobs/sha256").join(&digest), bytes).unwrap();
            json!({ "digest": format!("sha256:{digest}"), "size": bytes.len() })
        };
        let layers = layers();
        let diffs: Vec<_> = layers
            .iter()
            .map(|tar| format!("sha256:{}", digest(tar)))
            .collect();
        let config = json!({
            "os": "linux", "architecture": "amd64", "config": config,
            "rootfs": { "diff_ids": diffs },
        });
        let layers: Vec<_> = layers.iter().map(|tar| blob(tar)).collect();
        let manifest = json!({ "config": blob(config.to_string().as_bytes()), "layers": layers });
        let index = json!({ "manifests": [blob(manifest.to_string().as_bytes())] });
        fs::write(layout.join("index.json"), index.to_string()).unwrap();
        layout
    }
}

fn digest(bytes: &[u8]) -> String {
    sha256(bytes).to_string()
}

/// Two layers: the upper one takes away and changes.
fn layers() -> [Vec<u8>; 2] {
    let mut lower = Layer::new();
    lower
        .directory("bin", 0o755)
        .file("bin/busybox", 0o755, (0, 0), &busybox());
    for applet in APPLETS {
        lower.link(EntryType::Symlink, &format!("bin/{applet}"), "busybox");
    }
    let long = format!("srv/{}", "long-name/".repeat(20));
    lower
        .file(
            "etc/passwd",
            0o644,
            (0, 0),
            b"root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/srv:/bin/sh\n",
        )
        .file("etc/group", 0o644, (0, 0), b"root:x:0:\nstaff:x:1001:\n")
        .file("srv/data", 0o640, (1000, 1001), b"data")
        .link(EntryType::Link, "srv/same", "srv/data")
        .file("srv/tool", 0o4755, (0, 0), b"tool")
        .node(EntryType::Char, "srv/null", (1, 3))
        .node(EntryType::Fifo, "srv/fifo", (0, 0))
        .file(&format!("{long}end"), 0o644, (0, 0), b"far")
        .file("srv/gone", 0o644, (0, 0), b"")
        .file("srv/opaque/old", 0o644, (0, 0), b"");
    let mut upper = Layer::new();
    upper
        .file("srv/.wh.gone", 0o644, (0, 0), b"")
        .file("srv/opaque/.wh..wh..opq", 0o644, (0, 0), b"")
        .file("srv/opaque/new", 0o644, (0, 0), b"new");
    [lower.finish(), upper.finish()]
}

struct Layer(Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn header(kind: EntryType, mode: u32, owner: (u64, u64)) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(owner.0);
        header.set_gid(owner.1);
        header.set_mtime(1_000_000_000);
        header.set_size(0);
        header
    }

    fn directory(&mut self, path: &str, mode: u32) -> &mut Self {
        let mut header = Self::header(EntryType::Directory, mode, (0, 0));
        self.0.append_data(&mut header, path, &[][..]).unwrap();
        self
    }

    fn file(&mut self, path: &str, mode: u32, owner: (u64, u64), contents: &[u8]) -> &mut Self {
        let mut header = Self::header(EntryType::Regular, mode, owner);
        header.set_size(contents.len() as u64);
        self.0.append_data(&mut header, path, contents).unwrap();
        self
    }

    fn link(&mut self, kind: EntryType, path: &str, target: &str) -> &mut Self {
        let mut header = Self::header(kind, 0o777, (0, 0));
        self.0
            .append_link(&mut header, path, Path::new(target))
            .unwrap();
        self
    }

    fn node(&mut self, kind: EntryType, path: &str, device: (u32, u32)) -> &mut Self {
        let mut header = Self::header(kind, 0o666, (0, 0));
        header.set_device_major(device.0).unwrap();
        header.set_device_minor(device.1).unwrap();
        self.0.append_data(&mut header, path, &[][..]).unwrap();
        self
    }

    fn finish(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}
