//! The cache directory: where it is, how an entry appears in it, how builds keep out of each
//! other's way.
//!
//! An entry is a directory named by its content key. It is built under a temporary name and renamed
//! when complete, so an entry that exists is whole. Nothing is ever changed in place.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::{Error, Result};

/// What is built, in a scratch directory.
const CONTENT: &str = "content";
/// The file beside it whose lock the builder holds.
const OWNER: &str = "lock";

/// The directory in which kernels, images and downloads are kept.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The user's cache: `$FOREBAY_CACHE`, else `$XDG_CACHE_HOME/forebay`, else `~/.cache/forebay`.
    /// Creates nothing.
    ///
    /// # Errors
    /// [`Error::NoCacheDirectory`] if none of the three variables is set.
    pub fn of_user() -> Result<Self> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(dir) = variable("FOREBAY_CACHE") {
            Ok(Self::at(dir))
        } else if let Some(dir) = variable("XDG_CACHE_HOME") {
            Ok(Self::at(Path::new(&dir).join("forebay")))
        } else if let Some(home) = variable("HOME") {
            Ok(Self::at(Path::new(&home).join(".cache/forebay")))
        } else {
            Err(Error::NoCacheDirectory)
        }
    }

    /// A cache in a directory of the caller's choice. Creates nothing.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What everything in it takes on the disk, in bytes: files of several names once. What goes
    /// while this looks does not count.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read.
    pub fn size(&self) -> Result<u64> {
        let mut size = 0;
        let mut seen = HashSet::new();
        let mut open = vec![self.root.clone()];
        while let Some(directory) = open.pop() {
            let entries = match fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::file("list", &directory)(error)),
            };
            for entry in entries.flatten() {
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => open.push(entry.path()),
                    Ok(metadata) if seen.insert((metadata.dev(), metadata.ino())) => {
                        // `st_blocks` counts these, whatever the file system's are.
                        size += metadata.blocks() * 512;
                    }
                    _ => {}
                }
            }
        }
        Ok(size)
    }

    /// Where an entry of a kind (`"kernel"`) with this key is, or would be.
    pub fn path(&self, kind: &str, key: &str) -> PathBuf {
        self.root.join(kind).join(key)
    }

    /// An entry's directory, if it is there.
    pub fn get(&self, kind: &str, key: &str) -> Option<PathBuf> {
        Some(self.path(kind, key)).filter(|path| path.is_dir())
    }

    /// Builds an entry: `fill` writes into an empty temporary directory, which then takes the
    /// entry's name in one step. If it fails, nothing is left. If somebody else published the same
    /// key meanwhile, theirs stays: equal keys mean equal contents.
    ///
    /// # Errors
    /// Whatever `fill` returns, or [`Error::File`].
    pub fn publish<E: From<Error>>(
        &self,
        kind: &str,
        key: &str,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let target = self.path(kind, key);
        let scratch = self.scratch(kind, key)?;
        fill(scratch.path())?;
        match fs::rename(scratch.path(), &target) {
            Err(error) if !target.is_dir() => Err(Error::file("create", &target)(error).into()),
            _ => Ok(target),
        }
    }

    /// Gets an entry, building it if it is not there (see [`publish`](Self::publish)).
    ///
    /// # Errors
    /// Whatever `fill` returns, or [`Error::File`].
    pub fn get_or_publish<E: From<Error>>(
        &self,
        kind: &str,
        key: &str,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        match self.get(kind, key) {
            Some(path) => Ok(path),
            None => self.publish(kind, key, fill),
        }
    }

    /// An empty directory beside the entries of a kind, for a build that takes several steps; it goes
    /// when it is dropped. What builds of the same key left behind when they were killed is removed
    /// first.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn scratch(&self, kind: &str, key: &str) -> Result<Scratch> {
        let directory = self.root.join(kind);
        let prefix = format!(".{key}.");
        // Nobody's directory is seen before its lock is held.
        let _alone = self.lock("scratch")?;
        fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let of_key = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            // A longer key's has one more part.
            if of_key.is_some_and(|unique| !unique.contains('.')) {
                remove_abandoned(&entry.path());
            }
        }
        let outer = tempfile::Builder::new()
            .prefix(&prefix)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir_in(&directory)
            .map_err(Error::file("create", &directory))?;
        let path = outer.path().join(CONTENT);
        fs::create_dir(&path).map_err(Error::file("create", &path))?;
        let lock = lock_file(&outer.path().join(OWNER))?;
        Ok(Scratch {
            path,
            _outer: outer,
            _lock: lock,
        })
    }

    /// Waits until no other process holds the lock of this name, then holds it. Long builds take
    /// one, so that two of them do not do the same work at the same time. Dropping it, or the death
    /// of the process, releases it.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn lock(&self, name: &str) -> Result<CacheLock> {
        fs::create_dir_all(&self.root).map_err(Error::file("create", &self.root))?;
        let path = self.root.join(format!("{name}.lock"));
        lock_file(&path).map(|file| CacheLock { _file: file })
    }
}

/// A held lock of the cache; see [`Cache::lock`].
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub struct CacheLock {
    _file: File,
}

/// A directory of a build, which is removed with this, whatever becomes of the build; see
/// [`Cache::scratch`]. Should the process be killed, the next build removes it.
#[derive(Debug)]
#[must_use = "dropping it removes the directory"]
pub struct Scratch {
    path: PathBuf,
    _outer: tempfile::TempDir,
    /// Says to others, in whatever thread, process or container, that it is in use.
    _lock: File,
}

impl Scratch {
    /// Where it is. It may be renamed to become an entry of the cache.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the scratch directory of a build that is no more; that of one which runs stays.
fn remove_abandoned(outer: &Path) {
    // Without the file, its build was killed before it had a lock, or is just removing it.
    let lock = File::open(outer.join(OWNER)).ok();
    let is_held = lock.as_ref().is_some_and(|lock| {
        let attempt = rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive);
        attempt == Err(rustix::io::Errno::WOULDBLOCK)
    });
    if !is_held {
        // What stays is in nobody's way.
        let _ = remove_tree(outer);
    }
}

/// Creates a file where there is none, and waits until nobody else holds its lock.
fn lock_file(path: &Path) -> Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(Error::file("open", path))?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::file("lock", path)(error.into())),
        }
    }
}

/// Removes a directory and all in it; it is no error if there is none.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file("remove", path)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "cache_test.rs"]
mod tests;
