//! Files by name: in a directory, or in a tar archive, which may be compressed as a whole and is not
//! unpacked. Names never lead out of either.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{Budget, wrong};
use crate::compression::{Hashing, plain};
use crate::spool::{Spool, Stretch};
use crate::tree::Refused;
use crate::{Error, Result, headers};

/// Most files of an archive.
const MEMBERS_MAX: usize = 1 << 16;
/// Longest text that is read into memory, in bytes: manifests and configurations.
const TEXT_MAX: u64 = 4 << 20;

/// A file that is to be read, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) name: String,
    /// SHA-256, hexadecimal, where it was promised.
    pub(super) sha256: Option<String>,
    /// Bytes, where they were promised.
    pub(super) size: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Blobs {
    path: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Directory(OwnedFd),
    Archive(HashMap<String, Member>),
}

#[derive(Debug)]
enum Member {
    File(Stretch),
    /// The same as another one: older versions of docker write repeated layers so.
    Link(String),
}

impl Blobs {
    pub(super) fn open(path: &Path, spool: &mut Spool, budget: Budget<'_>) -> Result<Self> {
        let metadata = path.metadata().map_err(Error::file("open", path))?;
        let place = if metadata.is_dir() {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
            let opened = rustix::fs::open(path, flags, Mode::empty());
            Place::Directory(opened.map_err(|error| Error::file("open", path)(error.into()))?)
        } else {
            Place::Archive(members(path, spool, budget)?)
        };
        Ok(Self {
            path: path.to_path_buf(),
            place,
        })
    }

    /// An error about this image.
    pub(super) fn wrong(&self, reason: impl Into<String>) -> Error {
        wrong(&self.path, reason.into())
    }

    /// Whether there is a file of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        matches!(self.find(name), Ok(Some(_)))
    }

    /// A file, after its digest and size were compared with what was promised.
    pub(super) fn read(&self, blob: &Blob) -> Result<impl Read + use<>> {
        let name = &blob.name;
        let missing = || self.wrong(format!("{name} is missing"));
        let file = self.find(name)?.ok_or_else(missing)?;
        if let Some(size) = blob.size.filter(|size| *size != file.len()) {
            let reason = format!("{name} has {} bytes, {size} are promised", file.len());
            return Err(self.wrong(reason));
        }
        if let Some(promised) = &blob.sha256 {
            let found = Hashing::new(file.read()).finish();
            let found = found.map_err(|error| self.wrong(format!("{name}: {error}")))?;
            if found != *promised {
                return Err(self.wrong(format!("{name} has SHA-256 {found}, not the promised one")));
            }
        }
        Ok(file.read())
    }

    /// As [`read`](Self::read), a text that fits into memory.
    pub(super) fn text(&self, blob: &Blob) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let unread = |error: io::Error| self.wrong(format!("{}: {error}", blob.name));
        let reader = self.read(blob)?.take(TEXT_MAX + 1);
        BufReader::new(reader)
            .read_to_end(&mut text)
            .map_err(unread)?;
        if text.len() as u64 > TEXT_MAX {
            let reason = format!("{} is longer than {TEXT_MAX} bytes", blob.name);
            return Err(self.wrong(reason));
        }
        Ok(text)
    }

    fn find(&self, name: &str) -> Result<Option<Stretch>> {
        let inside = Path::new(name)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        if name.is_empty() || !inside {
            return Err(self.wrong(format!("{name:?} leads out of it")));
        }
        match &self.place {
            Place::Directory(directory) => self.find_in(directory, name),
            Place::Archive(members) => Ok(match members.get(name) {
                Some(Member::File(file)) => Some(file.clone()),
                // One step: what is repeated is a file.
                Some(Member::Link(target)) => match members.get(target) {
                    Some(Member::File(file)) => Some(file.clone()),
                    _ => None,
                },
                None => None,
            }),
        }
    }

    fn find_in(&self, directory: &OwnedFd, name: &str) -> Result<Option<Stretch>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = match rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => return Err(self.wrong(format!("{name}: {}", io::Error::from(error)))),
        };
        let metadata = file.metadata().map_err(Error::file("read", &self.path))?;
        if !metadata.is_file() {
            return Err(self.wrong(format!("{name} is not a file")));
        }
        let len = metadata.len();
        Ok(Some(Stretch::of_file(Arc::new(file), 0, len)))
    }
}

/// Where the files of an archive are in it.
fn members(
    path: &Path,
    spool: &mut Spool,
    mut budget: Budget<'_>,
) -> Result<HashMap<String, Member>> {
    let unread = |error: io::Error| wrong(path, error.to_string());
    let mut file = File::open(path).map_err(Error::file("open", path))?;
    let mut magic = [0; 512];
    let is_tar = file.read_exact(&mut magic).is_ok() && magic.get(257..262) == Some(b"ustar");
    file.rewind().map_err(unread)?;
    let whole = if is_tar {
        let len = file.metadata().map_err(unread)?.len();
        Stretch::of_file(Arc::new(file), 0, len)
    } else {
        // Compressed: its parts can only be found in what comes out.
        let plain = plain(file).map_err(unread)?;
        spool.take(budget.bound(plain)).map_err(unread)?
    };
    let mut members = HashMap::new();
    let mut tar = tar::Archive::new(whole.seekable());
    headers::each(
        &path.display().to_string(),
        tar.entries_with_seek(),
        |described, entry| {
            let refuse = |reason: String| Refused::new(&described.path, reason);
            if members.len() >= MEMBERS_MAX {
                return Err(refuse(format!("more than {MEMBERS_MAX} files")));
            }
            let Ok(name) = std::str::from_utf8(&described.path) else {
                // Nothing that a manifest could name.
                return Ok(());
            };
            let name = name.strip_prefix("./").unwrap_or(name);
            let member = match entry.header().entry_type() {
                kind if kind.is_file() => {
                    let stretch = whole.part(entry.raw_file_position(), described.size);
                    Member::File(
                        stretch.ok_or_else(|| refuse("the archive ends within it".to_owned()))?,
                    )
                }
                kind if kind.is_symlink() || kind.is_hard_link() => {
                    let target = std::str::from_utf8(&described.link).unwrap_or_default();
                    // Relative to its own directory as a symbolic link, to the top as a hard one.
                    Member::Link(target.trim_start_matches("../").to_owned())
                }
                _ => return Ok(()),
            };
            members.insert(name.to_owned(), member);
            Ok(())
        },
    )?;
    Ok(members)
}
