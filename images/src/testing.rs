//! What the tests of this crate share: archives made by hand, trees as lists.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};
use tar::{EntryType, Header};

use crate::compression::Hashing;
use crate::newc;
use crate::spool::Spool;
use crate::tree::Tree;
use crate::{Foundation, KernelKind};

/// One entry of an archive.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) kind: EntryType,
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) contents: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) owner: (u64, u64),
    pub(crate) mtime: u64,
    pub(crate) device: (u32, u32),
}

impl Item {
    fn new(kind: EntryType, path: impl AsRef<[u8]>, mode: u32) -> Self {
        Self {
            kind,
            path: path.as_ref().to_vec(),
            link: Vec::new(),
            contents: Vec::new(),
            mode,
            owner: (0, 0),
            mtime: 0,
            device: (0, 0),
        }
    }

    pub(crate) fn file(path: impl AsRef<[u8]>, contents: impl AsRef<[u8]>) -> Self {
        Self {
            contents: contents.as_ref().to_vec(),
            ..Self::new(EntryType::Regular, path, 0o644)
        }
    }

    pub(crate) fn directory(path: impl AsRef<[u8]>, mode: u32) -> Self {
        Self::new(EntryType::Directory, path, mode)
    }

    pub(crate) fn symlink(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        Self {
            link: target.as_ref().to_vec(),
            ..Self::new(EntryType::Symlink, path, 0o777)
        }
    }

    pub(crate) fn hard_link(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        Self {
            link: target.as_ref().to_vec(),
            ..Self::new(EntryType::Link, path, 0o644)
        }
    }

    pub(crate) fn of_kind(kind: EntryType, path: &str, device: (u32, u32)) -> Self {
        Self {
            device,
            ..Self::new(kind, path, 0o600)
        }
    }

    pub(crate) fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn at(mut self, path: impl AsRef<[u8]>) -> Self {
        self.path = path.as_ref().to_vec();
        self
    }

    fn append(&self, out: &mut Vec<u8>) {
        if self.path.len() > 100 {
            extension(
                out,
                EntryType::GNULongName,
                &[&self.path[..], b"\0"].concat(),
            );
        }
        if self.link.len() > 100 {
            extension(
                out,
                EntryType::GNULongLink,
                &[&self.link[..], b"\0"].concat(),
            );
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(self.kind);
        put(&mut header.as_old_mut().name, &self.path);
        put(&mut header.as_old_mut().linkname, &self.link);
        header.set_mode(self.mode);
        header.set_uid(self.owner.0);
        header.set_gid(self.owner.1);
        header.set_mtime(self.mtime);
        header.set_size(self.contents.len() as u64);
        header.set_device_major(self.device.0).unwrap();
        header.set_device_minor(self.device.1).unwrap();
        block(out, &mut header, &self.contents);
    }
}

fn put(field: &mut [u8; 100], value: &[u8]) {
    let len = value.len().min(field.len());
    field[..len].copy_from_slice(&value[..len]);
}

fn block(out: &mut Vec<u8>, header: &mut Header, contents: &[u8]) {
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(contents);
    out.resize(out.len().next_multiple_of(512), 0);
}

/// A header that says something about the next.
pub(crate) fn extension(out: &mut Vec<u8>, kind: EntryType, text: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0);
    header.set_size(text.len() as u64);
    block(out, &mut header, text);
}

/// Records of PAX.
pub(crate) fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut len = rest;
        while len != rest + len.to_string().len() {
            len = rest + len.to_string().len();
        }
        text.extend_from_slice(format!("{len} {key}=").as_bytes());
        text.extend_from_slice(value);
        text.push(b'\n');
    }
    text
}

/// An archive of these, with its end.
pub(crate) fn tar(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        item.append(&mut out);
    }
    out.resize(out.len() + 1024, 0);
    out
}

pub(crate) fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(plain: &[u8]) -> Vec<u8> {
    compress_to_vec(plain, CompressionLevel::Fastest)
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Hashing::new(bytes).finish().unwrap()
}

/// An OCI image layout in a directory.
pub(crate) struct Layout {
    pub(crate) directory: PathBuf,
    layers: Vec<Value>,
    diffs: Vec<String>,
    pub(crate) config: Value,
    pub(crate) platform: (&'static str, &'static str),
}

impl Layout {
    pub(crate) fn new(directory: &Path) -> Self {
        fs::create_dir_all(directory.join("blobs/sha256")).unwrap();
        fs::write(
            directory.join("oci-layout"),
            r#"{"imageLayoutVersion":"1.0.0"}"#,
        )
        .unwrap();
        Self {
            directory: directory.to_path_buf(),
            layers: Vec::new(),
            diffs: Vec::new(),
            config: json!({}),
            platform: ("linux", "amd64"),
        }
    }

    pub(crate) fn blob(&self, bytes: &[u8]) -> Value {
        let digest = sha256(bytes);
        fs::write(self.directory.join("blobs/sha256").join(&digest), bytes).unwrap();
        json!({ "digest": format!("sha256:{digest}"), "size": bytes.len() })
    }

    /// Adds a layer: `kept` is what is in the blob, `plain` what that unpacks to.
    pub(crate) fn layer(&mut self, kept: &[u8], plain: &[u8]) -> &mut Self {
        let blob = self.blob(kept);
        self.layers.push(blob);
        self.diffs.push(format!("sha256:{}", sha256(plain)));
        self
    }

    /// Writes manifest and configuration; gives the manifest's descriptor.
    pub(crate) fn manifest(&self) -> Value {
        let (os, architecture) = self.platform;
        let config = json!({
            "os": os, "architecture": architecture, "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": self.diffs },
        });
        let config = self.blob(config.to_string().as_bytes());
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": self.layers });
        let mut descriptor = self.blob(manifest.to_string().as_bytes());
        descriptor["mediaType"] = "application/vnd.oci.image.manifest.v1+json".into();
        descriptor["platform"] = json!({ "os": os, "architecture": architecture });
        descriptor
    }

    pub(crate) fn index(&self, manifests: &[Value]) {
        let index = json!({ "schemaVersion": 2, "manifests": manifests });
        fs::write(self.directory.join("index.json"), index.to_string()).unwrap();
    }

    /// The whole layout with this one image.
    pub(crate) fn finish(&self) -> &Path {
        self.index(&[self.manifest()]);
        &self.directory
    }
}

/// A foundation of a kernel that is written into a directory.
pub(crate) fn foundation(dir: &Path) -> Foundation {
    let kernel = dir.join("kernel");
    fs::write(&kernel, "kernel").unwrap();
    Foundation {
        kernel,
        kernel_kind: KernelKind::Vmlinux,
        init: b"our init".to_vec(),
        cmdline: String::new(),
        modules: None,
        origin: BTreeMap::from([("kernel.release".to_owned(), "1".to_owned())]),
    }
}

/// A spool somewhere.
pub(crate) fn spool() -> Spool {
    Spool::within(&std::env::temp_dir()).unwrap()
}

/// The archive that a tree gives.
pub(crate) fn cpio(tree: &Tree) -> Vec<u8> {
    let mut out = Vec::new();
    tree.write(&mut out, Path::new("memory")).unwrap();
    out
}

/// All entries of a tree as the guest's kernel would find them: each in a directory that came before.
pub(crate) fn entries(tree: &Tree) -> Vec<(newc::Header, Vec<u8>)> {
    let archive = cpio(tree);
    let mut rest = &archive[..];
    let mut entries: Vec<(newc::Header, Vec<u8>)> = Vec::new();
    while let Some(entry) = newc::read(&mut rest, u32::MAX).unwrap() {
        if let Some(slash) = entry.0.name.iter().rposition(|byte| *byte == b'/') {
            let parent = &entry.0.name[..slash];
            let found = entries.iter().find(|(header, _)| header.name == parent);
            let kind = found.map(|(header, _)| header.mode & newc::TYPE_MASK);
            assert_eq!(kind, Some(newc::DIRECTORY), "{:?}", entry.0);
        }
        entries.push(entry);
    }
    entries
}

/// `path` or `path=contents` of all but directories.
pub(crate) fn files(tree: &Tree) -> Vec<String> {
    entries(tree)
        .into_iter()
        .filter(|(header, _)| header.mode & newc::TYPE_MASK != newc::DIRECTORY)
        .map(|(header, contents)| {
            let path = String::from_utf8(header.name).unwrap();
            match contents.is_empty() {
                true => path,
                false => format!("{path}={}", String::from_utf8_lossy(&contents)),
            }
        })
        .collect()
}
