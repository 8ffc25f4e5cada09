//! `image.json`: what it says, how it is written, and the digest over it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::KernelKind;
use crate::foreign_text::shown;
use crate::{ContentKey, Error, ImageConfig, Result, file_sha256};

/// The description's file name inside an image directory.
pub(super) const DESCRIPTION: &str = "image.json";

/// The newest description format this version reads. A description is written in the oldest that can
/// say what is in it: 2 has `config`.
const FORMAT: u32 = 2;
/// The format without `config`.
const FORMAT_WITHOUT_CONFIG: u32 = 1;

/// What goes into a new image. The files are already in its directory.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    /// For people.
    pub(crate) name: &'a str,
    /// File name of the kernel in the directory.
    pub(crate) kernel: &'a str,
    /// How it boots.
    pub(crate) kernel_kind: KernelKind,
    /// File names of the layers, lowest first, each with what it takes when it is unpacked, in bytes.
    pub(crate) initramfs: &'a [(&'a str, u64)],
    /// Additions to the command line.
    pub(crate) cmdline: &'a str,
    /// How commands run.
    pub(crate) config: ImageConfig,
    /// What it was made of.
    pub(crate) origin: BTreeMap<String, String>,
}

/// What [`describe`] found.
pub(crate) struct Described {
    /// The image's.
    pub(crate) digest: String,
    /// Each file's path and SHA-256.
    pub(crate) files: Vec<(PathBuf, String)>,
}

/// Writes the description of the image whose files lie in `directory`.
pub(crate) fn describe(directory: &Path, parts: Parts<'_>) -> Result<Described> {
    let record = |name: &str| -> Result<FileRecord> {
        let path = directory.join(name);
        let size = fs::metadata(&path)
            .map_err(Error::file("read", &path))?
            .len();
        Ok(FileRecord {
            path: name.to_owned(),
            size,
            sha256: file_sha256(&path)?,
            unpacked: None,
        })
    };
    let kernel = KernelRecord {
        kind: parts.kernel_kind,
        file: record(parts.kernel)?,
    };
    let initramfs = parts
        .initramfs
        .iter()
        .map(|(name, unpacked)| {
            Ok(FileRecord {
                unpacked: Some(*unpacked),
                ..record(name)?
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let digests: Vec<_> = std::iter::once(&kernel.file)
        .chain(&initramfs)
        .map(|file| file.sha256.clone())
        .collect();
    let digest = digest_of(&digests, parts.kernel_kind, parts.cmdline, &parts.config);
    let files = std::iter::once(&kernel.file)
        .chain(&initramfs)
        .map(|file| (directory.join(&file.path), file.sha256.clone()))
        .collect();
    let description = Description {
        format: match parts.config.is_empty() {
            true => FORMAT_WITHOUT_CONFIG,
            false => FORMAT,
        },
        name: parts.name.to_owned(),
        digest: digest.clone(),
        kernel,
        initramfs,
        cmdline: parts.cmdline.to_owned(),
        config: parts.config,
        origin: parts.origin,
    };
    let path = directory.join(DESCRIPTION);
    let mut text =
        serde_json::to_vec_pretty(&description).map_err(|source| Error::Description {
            path: path.clone(),
            source,
        })?;
    text.push(b'\n');
    fs::write(&path, text).map_err(Error::file("write", &path))?;
    Ok(Described { digest, files })
}

/// The digest over what a guest can see, of the files' digests: the kernel's, then each layer's.
pub(super) fn digest_of(
    file_digests: &[String],
    kind: KernelKind,
    cmdline: &str,
    config: &ImageConfig,
) -> String {
    let files = file_digests.iter().fold(
        ContentKey::new("image").text(kind.name()).text(cmdline),
        |key, file| key.text(file),
    );
    if config.is_empty() {
        return files.digest();
    }
    let ImageConfig {
        env,
        user,
        workdir,
        entrypoint,
        cmd,
    } = config;
    let mut key = files.text("config");
    for (name, value) in env {
        key = key.text("env").text(name).text(value);
    }
    if let Some(user) = user {
        key = key.text("user").text(user);
    }
    if let Some(directory) = workdir {
        key = key.text("workdir").text(directory);
    }
    for word in entrypoint {
        key = key.text("entrypoint").text(word);
    }
    for word in cmd {
        key = key.text("cmd").text(word);
    }
    key.digest()
}

#[derive(Deserialize)]
struct Versioned {
    format: u32,
}

/// `image.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    pub(super) format: u32,
    pub(super) name: String,
    pub(super) digest: String,
    pub(super) kernel: KernelRecord,
    pub(super) initramfs: Vec<FileRecord>,
    pub(super) cmdline: String,
    #[serde(default, skip_serializing_if = "ImageConfig::is_empty")]
    pub(super) config: ImageConfig,
    pub(super) origin: BTreeMap<String, String>,
}

impl Description {
    /// That of the image in a directory.
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(DESCRIPTION);
        let text = fs::read(&path).map_err(Error::file("read", &path))?;
        let understood = |source: serde_json::Error| Error::Description {
            path: path.clone(),
            // It may quote what is there.
            source: serde::de::Error::custom(shown(&source.to_string())),
        };
        // The format number alone first: a newer description may have fields that mean otherwise.
        let Versioned { format } = serde_json::from_slice(&text).map_err(understood)?;
        if format > FORMAT {
            return Err(Error::Format {
                path,
                found: format,
                supported: FORMAT,
            });
        }
        serde_json::from_slice(&text).map_err(understood)
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct KernelRecord {
    pub(super) kind: KernelKind,
    #[serde(flatten)]
    pub(super) file: FileRecord,
}

/// One file: its name in the image's directory, size in bytes, contents.
#[derive(Serialize, Deserialize)]
pub(super) struct FileRecord {
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) sha256: String,
    /// Of a layer: what it takes in the guest's memory when it is unpacked, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unpacked: Option<u64>,
}

impl FileRecord {
    /// Whether the file is as recorded: in the image's directory and nowhere else, by whatever way.
    pub(super) fn check(&self, directory: &Path) -> Result<(), String> {
        let mut parts = Path::new(&self.path).components();
        let name = parts.next();
        let plain = matches!(name, Some(Component::Normal(name)) if name == self.path.as_str());
        if !plain || parts.next().is_some() {
            return Err("not the name of a file in the image's directory".to_owned());
        }
        let metadata =
            fs::symlink_metadata(directory.join(&self.path)).map_err(|e| e.to_string())?;
        if !metadata.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        if metadata.len() != self.size {
            let (found, recorded) = (metadata.len(), self.size);
            return Err(format!("it has {found} bytes, {recorded} are recorded"));
        }
        Ok(())
    }
}
