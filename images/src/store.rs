//! The images of a cache: their names, what they share, and how they go.
//!
//! ```text
//! images/web ──▶ 3f0c9a…       a name: a link, replaced in one step
//! images/3f0c9a…/              an image, under its digest's first digits
//!     image.json
//!     root.cpio  init.cpio  vmlinux
//!         └─ hard links ─┐
//! blobs/<sha256> ────────┘     what images share is on the disk once
//! ```
//!
//! An image is made elsewhere and appears with all its files in one step. Publishing and removing
//! hold one lock of the cache; a blob goes with the last image that has it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::image::{CACHE_KIND, Described};
use crate::{Cache, Error, Image, Result, cache};

/// The cache kind of files that images share.
const BLOBS: &str = "blobs";
/// The lock that whoever publishes or removes images holds.
const LOCK: &str = "images";
/// Least digits of a digest that are taken for one.
const PREFIX_MIN: usize = 4;
/// Longest name of an image, in bytes.
const NAME_MAX: usize = 64;
/// Digits of the digest in a directory's name.
const DIGITS: usize = 16;

/// An image of a cache, as [`list`] finds it.
#[derive(Debug)]
pub struct Listed {
    /// Its names, in order; it may have none.
    pub names: Vec<String>,
    /// Its directory in the cache.
    pub directory: PathBuf,
    /// What opening it gives. A damaged image, or one that a newer version made, is there all the same
    /// and can be removed.
    pub image: Result<Image>,
    /// What its files take on the disk, in bytes, shared ones included.
    pub size: u64,
    /// When it was made.
    pub created: SystemTime,
}

impl Listed {
    /// Its digest; of one that cannot be opened the directory's name, which is how the digest begins.
    pub fn digest(&self) -> &str {
        match &self.image {
            Ok(image) => image.digest(),
            Err(_) => {
                let name = self.directory.file_name();
                name.and_then(|name| name.to_str()).unwrap_or_default()
            }
        }
    }

    /// Whether these are digits of its digest, as far as they are known.
    fn has_digits(&self, reference: &str) -> bool {
        let digest = self.digest();
        digest.starts_with(reference)
            || self.image.is_err() && digest.len() >= DIGITS && reference.starts_with(digest)
    }
}

/// What [`remove`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Removed {
    /// A name; the image has others and stays.
    Name,
    /// The image with all its names, and this many bytes of files that no other image has.
    Image {
        /// What is free now, in bytes.
        freed: u64,
    },
}

/// The images of a cache, the newest first.
///
/// # Errors
/// [`Error::File`] if the cache cannot be read.
pub fn list(cache: &Cache) -> Result<Vec<Listed>> {
    let directory = cache.root().join(CACHE_KIND);
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::file("list", &directory)(error)),
    };
    let mut images = Vec::new();
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::file("list", &directory))?;
        let file_name = entry.file_name();
        let Some(name) = file_name.to_str().filter(|name| !name.starts_with('.')) else {
            continue;
        };
        let path = entry.path();
        if let Ok(target) = fs::read_link(&path) {
            names.push((name.to_owned(), directory.join(target)));
            continue;
        }
        let image = Image::open(&path);
        // After opening: what is gone now was removed meanwhile.
        let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_dir) else {
            continue;
        };
        images.push(Listed {
            names: Vec::new(),
            size: disk_size(&path),
            created: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            directory: path,
            image,
        });
    }
    names.sort();
    for (name, target) in names {
        let named = images.iter_mut().find(|listed| listed.directory == target);
        if let Some(listed) = named {
            listed.names.push(name);
        }
    }
    images.sort_by(|one, two| (two.created, one.digest()).cmp(&(one.created, two.digest())));
    Ok(images)
}

/// Opens the image of a name, or of a digest or its first digits, four at least.
///
/// # Errors
/// [`Error::NoSuchImage`], [`Error::AmbiguousImage`], otherwise as [`Image::open`].
pub fn find(cache: &Cache, reference: &str) -> Result<Image> {
    find_listed(cache, reference)?.image
}

/// As [`find`], but whether it opens or not.
fn find_listed(cache: &Cache, reference: &str) -> Result<Listed> {
    let mut images = list(cache)?;
    let is_named = |listed: &Listed| listed.names.iter().any(|name| name == reference);
    if let Some(at) = images.iter().position(is_named) {
        return Ok(images.swap_remove(at));
    }
    if reference.len() < PREFIX_MIN {
        images.clear();
    }
    images.retain(|listed| listed.has_digits(reference));
    // The default image is kept under what it was built from: two of those may be equal.
    images.dedup_by(|one, two| one.digest() == two.digest());
    match (images.pop(), images.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => Err(Error::NoSuchImage {
            reference: reference.to_owned(),
            cache: cache.root().to_path_buf(),
        }),
        (Some(_), others) => Err(Error::AmbiguousImage {
            reference: reference.to_owned(),
            count: others + 1,
        }),
    }
}

/// Removes a name, and the image with it unless it has other names; or, by a digest, the image with
/// all its names. It need not be one that opens. Guests that run on it have read it and go on.
///
/// # Errors
/// [`Error::NoSuchImage`], [`Error::AmbiguousImage`], [`Error::File`].
pub fn remove(cache: &Cache, reference: &str) -> Result<Removed> {
    let _alone = cache.lock(LOCK)?;
    let listed = find_listed(cache, reference)?;
    let unlink = |name: &str| {
        let link = cache.path(CACHE_KIND, name);
        fs::remove_file(&link).map_err(Error::file("remove", &link))
    };
    if listed.names.len() > 1 && listed.names.iter().any(|name| name == reference) {
        unlink(reference)?;
        return Ok(Removed::Name);
    }
    for name in &listed.names {
        unlink(name)?;
    }
    let directory = &listed.directory;
    let before = disk_size(directory);
    let shared = shared_size(directory);
    // Out of sight first, so that nobody opens a part of it.
    let going = cache.scratch(CACHE_KIND, "removed")?;
    let gone = going.path().join("image");
    fs::rename(directory, &gone).map_err(Error::file("remove", directory))?;
    cache::remove_tree(&gone)?;
    Ok(Removed::Image {
        freed: before.saturating_sub(shared) + sweep(cache)?,
    })
}

/// Puts an image into the cache, all at once, and gives it a name: `directory` with its description
/// and files, which must lie in the cache's file system, becomes its entry. If an equal image is
/// there, that one stays.
pub(crate) fn publish(
    cache: &Cache,
    directory: &Path,
    described: &Described,
    name: Option<&str>,
) -> Result<Image> {
    // Until it is opened, so that nobody removes it before.
    let _alone = cache.lock(LOCK)?;
    let digest = &described.digest;
    let entry_of = |key: &str| cache.path(CACHE_KIND, key);
    let is_other = |image: &Image| image.digest() != digest;
    // What else has these first digits was made to have them.
    let short = digest.get(..DIGITS).unwrap_or(digest);
    let key = match Image::open(entry_of(short)) {
        Ok(image) if is_other(&image) => digest,
        _ => short,
    };
    let entry = entry_of(key);
    let image = match Image::open(&entry) {
        Ok(image) if !is_other(&image) => image,
        _ => {
            share(cache, &described.files)?;
            // What is there and cannot be opened is of no use to anybody.
            cache::remove_tree(&entry)?;
            let parent = cache.root().join(CACHE_KIND);
            fs::create_dir_all(&parent).map_err(Error::file("create", &parent))?;
            fs::rename(directory, &entry).map_err(Error::file("create", &entry))?;
            Image::open(entry)?
        }
    };
    if let Some(name) = name {
        point(cache, name, key)?;
    }
    Ok(image)
}

/// Gives a name to an entry of the cache; whoever opens it meanwhile gets the old or the new one.
pub(crate) fn name(cache: &Cache, name: &str, entry: &str) -> Result<()> {
    let _alone = cache.lock(LOCK)?;
    point(cache, name, entry)
}

/// Makes each file the blob of its contents, or takes the place of the one that is there.
fn share(cache: &Cache, files: &[(PathBuf, String)]) -> Result<()> {
    let blobs = cache.root().join(BLOBS);
    fs::create_dir_all(&blobs).map_err(Error::file("create", &blobs))?;
    for (file, sha256) in files {
        let blob = blobs.join(sha256);
        let both = fs::metadata(&blob).ok().zip(fs::metadata(file).ok());
        if both.is_some_and(|(blob, file)| blob.len() == file.len()) {
            fs::remove_file(file).map_err(Error::file("replace", file))?;
            fs::hard_link(&blob, file).map_err(Error::file("link", file))?;
        } else {
            // None, or one that a full disk cut off.
            let _ = fs::remove_file(&blob);
            fs::hard_link(file, &blob).map_err(Error::file("link", &blob))?;
        }
    }
    Ok(())
}

/// Points a name at an entry, in one step.
fn point(cache: &Cache, name: &str, entry: &str) -> Result<()> {
    let link = cache.path(CACHE_KIND, name);
    if fs::read_link(&link).is_ok_and(|target| target == Path::new(entry)) {
        return Ok(());
    }
    let scratch = cache.scratch(CACHE_KIND, name)?;
    let new = scratch.path().join("link");
    std::os::unix::fs::symlink(entry, &new).map_err(Error::file("create", &new))?;
    fs::rename(&new, &link).map_err(Error::file("replace", &link))
}

/// Whether an image can have this name: letters, digits, `.`, `-` and `_`, the first a letter or
/// digit.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphanumeric());
    // What `rm` and `run` would take for a digest.
    let hexadecimal = name.len() >= DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    if begins && name.len() <= NAME_MAX && name.bytes().all(allowed) && !hexadecimal {
        return Ok(());
    }
    Err(Error::ImageName {
        name: name.to_owned(),
    })
}

/// Removes blobs that no image has any more; how many bytes that freed.
fn sweep(cache: &Cache) -> Result<u64> {
    let mut freed = 0;
    for entry in fs::read_dir(cache.root().join(BLOBS))
        .into_iter()
        .flatten()
        .flatten()
    {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.nlink() == 1 {
            let path = entry.path();
            fs::remove_file(&path).map_err(Error::file("remove", &path))?;
            freed += metadata.len();
        }
    }
    Ok(freed)
}

fn disk_size(directory: &Path) -> u64 {
    sizes(directory).map(|(len, _)| len).sum()
}

/// Of files that are elsewhere too.
fn shared_size(directory: &Path) -> u64 {
    let shared = sizes(directory).filter(|(_, links)| *links > 1);
    shared.map(|(len, _)| len).sum()
}

/// Length and number of links of each file.
fn sizes(directory: &Path) -> impl Iterator<Item = (u64, u64)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| (metadata.len(), metadata.nlink()))
}

#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
