//! From the index of a layout, or docker's own, to the layers and the configuration of one image.
//!
//! Newer versions of docker write both; then the layout counts, since it promises digests.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::blobs::{Blob, Blobs};
use crate::{ImageConfig, Result};

/// The platform that guests have.
const OS: &str = "linux";
const ARCHITECTURE: &str = "amd64";
/// How deep indexes may lie in each other.
const DEPTH_MAX: u32 = 4;
/// Most layers of an image; docker allows 127.
const LAYERS_MAX: usize = 512;
/// Most entries of all indexes, those counted again that lie in one that is named again.
const ENTRIES_MAX: usize = 4096;
/// How many names of images an error tells.
const TOLD_MAX: usize = 20;
/// How many characters of each.
const NAME_TOLD_MAX: usize = 128;
/// Annotations that name an image in an index.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// One image, as far as it is known without its layers.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) layers: Vec<Layer>,
    pub(super) config: ImageConfig,
    pub(super) origin: BTreeMap<String, String>,
}

/// One layer, lowest first.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) blob: Blob,
    /// SHA-256 of what it unpacks to, hexadecimal.
    pub(super) diff: String,
}

/// Finds the image of a reference, or the only one.
pub(super) fn choose(blobs: &Blobs, reference: Option<&str>) -> Result<Chosen> {
    let (config, layers, named) = if blobs.has("index.json") {
        of_layout(blobs, reference)?
    } else if blobs.has("manifest.json") {
        of_docker(blobs, reference)?
    } else {
        let reason = "it is no OCI image layout and nothing that `docker save` wrote: there is \
                      neither index.json nor manifest.json in it";
        return Err(blobs.wrong(reason));
    };
    let digest = config.sha256.clone();
    let text = blobs.text(&config)?;
    let configuration: Configuration = parse(blobs, &config.name, &text)?;
    let (os, architecture) = (&configuration.os, &configuration.architecture);
    if (os.as_str(), architecture.as_str()) != (OS, ARCHITECTURE) {
        let reason = format!("it is for {os}/{architecture}; guests are {OS}/{ARCHITECTURE}");
        return Err(blobs.wrong(reason));
    }
    let diffs = configuration.rootfs.diff_ids;
    if diffs.len() != layers.len() || layers.len() > LAYERS_MAX {
        let reason = format!(
            "its manifest has {} layers and its configuration {}; at most {LAYERS_MAX} are possible",
            layers.len(),
            diffs.len()
        );
        return Err(blobs.wrong(reason));
    }
    let layers = layers.into_iter().zip(&diffs).map(|(blob, diff)| {
        let diff = sha256(blobs, diff)?;
        Ok(Layer { blob, diff })
    });
    let mut origin = BTreeMap::new();
    if let Some(named) = named {
        origin.insert("oci.reference".to_owned(), named);
    }
    if let Some(digest) = digest {
        origin.insert("oci.config_sha256".to_owned(), digest);
    }
    Ok(Chosen {
        layers: layers.collect::<Result<_>>()?,
        config: configuration
            .config
            .unwrap_or_default()
            .into_config(blobs)?,
        origin,
    })
}

type Found = (Blob, Vec<Blob>, Option<String>);

/// By an OCI layout's `index.json`.
fn of_layout(blobs: &Blobs, reference: Option<&str>) -> Result<Found> {
    let index: Index = parse(blobs, "index.json", &blobs.text(&plain_file("index.json"))?)?;
    let mut indexes = Indexes {
        blobs,
        left: ENTRIES_MAX,
        read: HashMap::new(),
    };
    let mut found = indexes.entries(index, 0)?;
    let all = names(found.iter().map(Entry::shown));
    if let Some(reference) = reference {
        found.retain(|entry| {
            *entry.digest == *reference
                || entry
                    .name
                    .as_deref()
                    .is_some_and(|name| is_named(name, reference))
        });
    }
    found.dedup_by(|one, two| one.digest == two.digest);
    let entry = match (found.pop(), found.is_empty()) {
        (Some(only), true) => only,
        (None, _) => return Err(none_of(blobs, reference, &all)),
        (Some(last), _) => {
            found.push(last);
            return Err(several(blobs, &names(found.iter().map(Entry::shown))));
        }
    };
    let blob = blob(blobs, &entry.digest, entry.size)?;
    let manifest: Manifest = parse(blobs, &blob.name, &blobs.text(&blob)?)?;
    let layers = manifest.layers.iter().map(|layer| layer.blob(blobs));
    Ok((
        manifest.config.blob(blobs)?,
        layers.collect::<Result<_>>()?,
        entry.name.as_deref().map(str::to_owned),
    ))
}

/// A manifest for our platform that an index leads to.
#[derive(Debug, Clone)]
struct Entry {
    /// Of the nearest entry on the way to it that has one.
    name: Option<Rc<str>>,
    digest: Rc<str>,
    size: u64,
}

impl Entry {
    fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.digest)
    }
}

/// Reads indexes that may lie in each other, each once: a few that name one another many times lead
/// to more manifests than could ever be looked at.
struct Indexes<'a> {
    blobs: &'a Blobs,
    /// Entries that may still be looked at.
    left: usize,
    /// What is in those that were read, by their digests.
    read: HashMap<String, Vec<Entry>>,
}

impl Indexes<'_> {
    /// All manifests for our platform.
    fn entries(&mut self, index: Index, depth: u32) -> Result<Vec<Entry>> {
        if depth > DEPTH_MAX {
            return Err(self.blobs.wrong("its indexes lie too deep in each other"));
        }
        self.count(index.manifests.len())?;
        let mut entries = Vec::new();
        for descriptor in index.manifests {
            if !descriptor.fits() {
                continue;
            }
            let name: Option<Rc<str>> = descriptor.name().map(Rc::from);
            if !descriptor.is_index() {
                entries.push(Entry {
                    name,
                    digest: descriptor.digest.into(),
                    size: descriptor.size,
                });
                continue;
            }
            let inner = match self.read.get(&descriptor.digest).cloned() {
                Some(inner) => {
                    self.count(inner.len())?;
                    inner
                }
                None => {
                    let blob = descriptor.blob(self.blobs)?;
                    let index = parse(self.blobs, &blob.name, &self.blobs.text(&blob)?)?;
                    let inner = self.entries(index, depth + 1)?;
                    self.read.insert(descriptor.digest, inner.clone());
                    inner
                }
            };
            entries.extend(inner.into_iter().map(|entry| Entry {
                name: entry.name.or_else(|| name.clone()),
                ..entry
            }));
        }
        Ok(entries)
    }

    fn count(&mut self, entries: usize) -> Result<()> {
        self.left = self.left.checked_sub(entries).ok_or_else(|| {
            let reason = format!("its indexes have more than {ENTRIES_MAX} entries");
            self.blobs.wrong(reason)
        })?;
        Ok(())
    }
}

/// By docker's own `manifest.json`, which promises no digests but for what the configuration says.
fn of_docker(blobs: &Blobs, reference: Option<&str>) -> Result<Found> {
    let text = blobs.text(&plain_file("manifest.json"))?;
    let mut images: Vec<DockerImage> = parse(blobs, "manifest.json", &text)?;
    let tags = |images: &[DockerImage]| {
        let tags = images
            .iter()
            .flat_map(|image| image.repo_tags.iter().flatten());
        names(tags.map(String::as_str))
    };
    let all = tags(&images);
    if let Some(reference) = reference {
        images.retain(|image| {
            let mut tags = image.repo_tags.iter().flatten();
            tags.any(|name| is_named(name, reference))
        });
    }
    let image = match (images.pop(), images.is_empty()) {
        (Some(only), true) => only,
        (None, _) => return Err(none_of(blobs, reference, &all)),
        (Some(last), _) => {
            images.push(last);
            return Err(several(blobs, &tags(&images)));
        }
    };
    // Named by its digest.
    let base = image.config.rsplit('/').next().unwrap_or_default();
    let digest = base.strip_suffix(".json").unwrap_or(base).to_owned();
    let config = Blob {
        sha256: Some(digest).filter(|digest| is_sha256(digest)),
        ..plain_file(&image.config)
    };
    let layers = image.layers.iter().map(|name| plain_file(name)).collect();
    let name = image.repo_tags.into_iter().flatten().next();
    Ok((config, layers, name))
}

fn plain_file(name: &str) -> Blob {
    Blob {
        name: name.to_owned(),
        sha256: None,
        size: None,
    }
}

/// Whether an image of this name is meant: by the whole name, without its registry, or by its tag.
fn is_named(name: &str, reference: &str) -> bool {
    let shorter = |separator| {
        let rest = name.strip_suffix(reference);
        rest.is_some_and(|rest: &str| rest.ends_with(separator))
    };
    name == reference || shorter('/') || shorter(':')
}

/// Names for an error, not more than anybody would read.
fn names<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let told: Vec<_> = names.by_ref().take(TOLD_MAX).map(shorter).collect();
    match names.count() {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

/// The beginning of a name.
fn shorter(name: &str) -> String {
    name.chars().take(NAME_TOLD_MAX).collect()
}

fn none_of(blobs: &Blobs, reference: Option<&str>, names: &str) -> crate::Error {
    blobs.wrong(match reference {
        Some(reference) => format!("there is no {reference:?} in it; there is: {names}"),
        None => format!("there is no image for {OS}/{ARCHITECTURE} in it"),
    })
}

fn several(blobs: &Blobs, names: &str) -> crate::Error {
    blobs.wrong(format!(
        "there are several images in it, name one of: {names}"
    ))
}

fn parse<T: DeserializeOwned>(blobs: &Blobs, name: &str, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| blobs.wrong(format!("{name}: {error}")))
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The hexadecimal part of a digest.
fn sha256(blobs: &Blobs, digest: &str) -> Result<String> {
    match digest.strip_prefix("sha256:") {
        Some(text) if is_sha256(text) => Ok(text.to_owned()),
        _ => Err(blobs.wrong(format!("{digest:?} is no SHA-256 digest"))),
    }
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    platform: Option<Platform>,
}

impl Descriptor {
    fn blob(&self, blobs: &Blobs) -> Result<Blob> {
        blob(blobs, &self.digest, self.size)
    }

    fn name(&self) -> Option<&str> {
        let named = NAMES.iter().find_map(|key| self.annotations.get(*key));
        named.map(String::as_str)
    }

    /// Whether it may be for our platform.
    fn fits(&self) -> bool {
        self.platform.as_ref().is_none_or(|platform| {
            (platform.os.as_str(), platform.architecture.as_str()) == (OS, ARCHITECTURE)
        })
    }

    fn is_index(&self) -> bool {
        self.media_type.contains("index") || self.media_type.contains("list")
    }
}

/// The blob of a descriptor.
fn blob(blobs: &Blobs, digest: &str, size: u64) -> Result<Blob> {
    let sha256 = sha256(blobs, digest)?;
    Ok(Blob {
        name: format!("blobs/sha256/{sha256}"),
        sha256: Some(sha256),
        size: Some(size),
    })
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct Configuration {
    os: String,
    architecture: String,
    config: Option<Execution>,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// What a container image says about its commands.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct Execution {
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
}

impl Execution {
    fn into_config(self, blobs: &Blobs) -> Result<ImageConfig> {
        let mut env = BTreeMap::new();
        for variable in self.env.into_iter().flatten() {
            match variable.split_once('=') {
                Some((name, value)) if !name.is_empty() => {
                    env.insert(name.to_owned(), value.to_owned());
                }
                _ => return Err(blobs.wrong(format!("Env has {variable:?}, not NAME=VALUE"))),
            }
        }
        let workdir = self.working_dir.filter(|directory| !directory.is_empty());
        if let Some(directory) = workdir.as_deref().filter(|path| !path.starts_with('/')) {
            return Err(blobs.wrong(format!("WorkingDir {directory:?} is not absolute")));
        }
        let config = ImageConfig {
            env,
            user: self.user.filter(|user| !user.is_empty()),
            workdir: workdir.as_deref().map(lexical),
            entrypoint: self.entrypoint.unwrap_or_default(),
            cmd: self.cmd.unwrap_or_default(),
        };
        let mut words = config
            .entrypoint
            .iter()
            .chain(&config.cmd)
            .chain(&config.user);
        let in_env = config
            .env
            .iter()
            .any(|(name, value)| name.contains('\0') || value.contains('\0'));
        let in_directory = config.workdir.iter().any(|path| path.contains('\0'));
        if in_env || in_directory || words.any(|word| word.contains('\0')) {
            return Err(blobs.wrong("its configuration has a NUL in it"));
        }
        Ok(config)
    }
}

/// An absolute path without `.`, `..` and double slashes: engines look at no file for that either.
fn lexical(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
