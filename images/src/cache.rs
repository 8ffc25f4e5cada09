//! The cache directory: where it is, how an entry appears in it, how builds keep out of each
//! other's way.
//!
//! An entry is a directory named by its content key. It is built under a temporary name and renamed
//! when complete, so an entry that exists is whole. Nothing is ever changed in place.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FlockOperation;

use crate::{Error, Result};

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
        if let Err(error) = fill(&scratch) {
            remove_tree(&scratch)?;
            return Err(error);
        }
        if let Err(error) = fs::rename(&scratch, &target) {
            remove_tree(&scratch)?;
            if !target.is_dir() {
                return Err(Error::file("create", &target)(error).into());
            }
        }
        Ok(target)
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

    /// An empty directory beside the entries of a kind, for a build that takes several steps. The
    /// caller removes or renames it. What builds of the same key left behind when they were killed
    /// is removed first.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn scratch(&self, kind: &str, key: &str) -> Result<PathBuf> {
        let directory = self.root.join(kind);
        let prefix = format!(".{key}.");
        let own = std::process::id();
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let builder = name
                .to_str()
                .and_then(|name| name.strip_prefix(&prefix)?.parse::<u32>().ok());
            if builder.is_some_and(|pid| pid == own || !is_running(pid)) {
                remove_tree(&entry.path())?;
            }
        }
        let path = directory.join(format!("{prefix}{own}"));
        fs::create_dir_all(&path).map_err(Error::file("create", &path))?;
        Ok(path)
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
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::file("open", &path))?;
        loop {
            match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(CacheLock { _file: file }),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::file("lock", &path)(error.into())),
            }
        }
    }
}

/// A held lock of the cache; see [`Cache::lock`].
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub struct CacheLock {
    _file: File,
}

/// A directory of a build that is removed with this, whatever becomes of the build.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Of its own for each build of this process.
    pub(crate) fn of_build(cache: &Cache) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        cache.scratch("build", &format!("image-{number}")).map(Self)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is removed by the next build.
        let _ = remove_tree(&self.0);
    }
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
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
