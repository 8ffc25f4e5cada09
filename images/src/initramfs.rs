//! Reproducible `newc` archives made by hand: the same entries give the same bytes, whatever order
//! they were added in and whatever the host's files say about owner and time.
//!
//! For what the images and the test rig are made of beside whole roots; the [`Tree`] below owns
//! order and form.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::tree::{Contents, Kind, Meta, Node, Refused, Tree};
use crate::{Error, Result};

/// Collects entries and writes them as an uncompressed `newc` archive.
///
/// Paths are absolute inside the archive, with or without the leading slash. Missing parent
/// directories are added with mode 0755 — also where a lower layer has the directory with another
/// mode, so a layer that puts something below `/tmp` should name `/tmp` itself. Everything belongs
/// to root, with modification time 0 and inode numbers in path order. An entry that is added twice
/// is written once, as added last.
#[derive(Debug, Clone, Default)]
pub struct InitramfsBuilder {
    tree: Tree,
    /// The first entry that cannot be, told when the archive is written.
    refused: Option<Refused>,
}

impl InitramfsBuilder {
    /// An archive without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory with these permission bits.
    pub fn directory(&mut self, path: &str, mode: u32) -> &mut Self {
        self.add(path, mode, Kind::Directory)
    }

    /// Adds a regular file with these permission bits and contents.
    pub fn file(&mut self, path: &str, mode: u32, contents: impl Into<Vec<u8>>) -> &mut Self {
        self.add(path, mode, Kind::File(Contents::Bytes(contents.into())))
    }

    /// Adds a regular file whose contents are read from the host when the archive is written.
    pub fn host_file(&mut self, path: &str, mode: u32, source: impl Into<PathBuf>) -> &mut Self {
        self.add(path, mode, Kind::File(Contents::Host(source.into())))
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> &mut Self {
        self.add(path, 0o777, Kind::Symlink(target.as_bytes().to_vec()))
    }

    /// Adds a character device node.
    pub fn char_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) -> &mut Self {
        self.add(path, mode, Kind::CharDevice { major, minor })
    }

    /// Adds the two nodes that a program started as `/init` needs before it mounts `/dev`:
    /// `/dev/console`, which the kernel opens as its standard streams, and `/dev/null`.
    pub fn early_devices(&mut self) -> &mut Self {
        self.char_device("dev/console", 0o600, 5, 1)
            .char_device("dev/null", 0o666, 1, 3)
    }

    /// Whether an entry of this path was added.
    pub fn contains(&self, path: &str) -> bool {
        self.tree.get(path.trim_matches('/').as_bytes()).is_some()
    }

    /// Writes the archive, trailer included. Its length is a multiple of four.
    ///
    /// # Errors
    /// [`Error::Entry`] for a path or size that no archive can hold, [`Error::File`] if a host file
    /// cannot be read (`destination` is only for the error text of a failed write).
    pub fn write(&self, writer: impl Write, destination: &Path) -> Result<()> {
        if let Some(Refused { path, reason }) = self.refused.clone() {
            return Err(Error::Entry { path, reason });
        }
        self.tree.write(writer, destination)
    }

    /// Writes the archive into a new file.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_file(&self, path: &Path) -> Result<()> {
        let file = File::create(path).map_err(Error::file("create", path))?;
        self.write(BufWriter::with_capacity(256 * 1024, file), path)
    }

    /// What the archive takes in the guest's memory when it is unpacked, in bytes.
    pub(crate) fn unpacked_len(&self) -> u64 {
        self.tree.unpacked_len()
    }

    fn add(&mut self, path: &str, mode: u32, kind: Kind) -> &mut Self {
        let path = path.trim_matches('/');
        let node = Node {
            meta: Meta::of_root(mode),
            kind,
        };
        // Written by programmers: what an archive may mean by these is a mistake here.
        let added = if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            let reason = "a path has no empty part, `.` or `..`";
            Err(Refused::new(path.as_bytes(), reason))
        } else {
            self.tree.insert(path.as_bytes(), node)
        };
        if let Err(refused) = added {
            self.refused.get_or_insert(refused);
        }
        self
    }
}

/// Writes archives one after the other into one file, each starting on a multiple of four bytes, as
/// the kernel's unpacker takes them.
///
/// # Errors
/// [`Error::File`].
pub fn concatenate(layers: &[&Path], target: &Path) -> Result<()> {
    let mut out = File::create(target).map_err(Error::file("create", target))?;
    for layer in layers {
        let mut file = File::open(layer).map_err(Error::file("open", layer))?;
        let copied = io::copy(&mut file, &mut out).map_err(Error::file("write", target))?;
        let padding = (4 - copied % 4) % 4;
        out.write_all(&[0; 4][..padding as usize])
            .map_err(Error::file("write", target))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "initramfs_test.rs"]
mod tests;
