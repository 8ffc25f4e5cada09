//! Reproducible `newc` archives: the same entries give the same bytes, whatever order they were
//! added in and whatever the host's files say about owner and time.
//!
//! Owns the archive's contents and order; the `cpio` crate owns the header format. Called by the
//! image builders here and by the test rig for its own initramfs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, ModeFileType, trailer};

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
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, contents: Contents },
    Symlink { target: String },
    CharDevice { mode: u32, major: u32, minor: u32 },
}

#[derive(Debug, Clone)]
enum Contents {
    Bytes(Vec<u8>),
    Host(PathBuf),
}

impl InitramfsBuilder {
    /// An archive without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory with these permission bits.
    pub fn directory(&mut self, path: &str, mode: u32) -> &mut Self {
        self.add(path, Entry::Directory { mode })
    }

    /// Adds a regular file with these permission bits and contents.
    pub fn file(&mut self, path: &str, mode: u32, contents: impl Into<Vec<u8>>) -> &mut Self {
        let contents = Contents::Bytes(contents.into());
        self.add(path, Entry::File { mode, contents })
    }

    /// Adds a regular file whose contents are read from the host when the archive is written.
    pub fn host_file(&mut self, path: &str, mode: u32, source: impl Into<PathBuf>) -> &mut Self {
        let contents = Contents::Host(source.into());
        self.add(path, Entry::File { mode, contents })
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> &mut Self {
        let target = target.to_owned();
        self.add(path, Entry::Symlink { target })
    }

    /// Adds a character device node.
    pub fn char_device(&mut self, path: &str, mode: u32, major: u32, minor: u32) -> &mut Self {
        self.add(path, Entry::CharDevice { mode, major, minor })
    }

    /// Adds the two nodes that a program started as `/init` needs before it mounts `/dev`:
    /// `/dev/console`, which the kernel opens as its standard streams, and `/dev/null`.
    pub fn early_devices(&mut self) -> &mut Self {
        self.char_device("dev/console", 0o600, 5, 1)
            .char_device("dev/null", 0o666, 1, 3)
    }

    /// Whether an entry of this path was added.
    pub fn contains(&self, path: &str) -> bool {
        self.entries.contains_key(path.trim_matches('/'))
    }

    /// Writes the archive, trailer included. Its length is a multiple of four.
    ///
    /// # Errors
    /// [`Error::Entry`] for a path or size that no archive can hold, [`Error::File`] if a host file
    /// cannot be read (`destination` is only for the error text of a failed write).
    pub fn write(&self, writer: impl Write, destination: &Path) -> Result<()> {
        let written = |error| Error::file("write", destination)(error);
        let mut writer = writer;
        let mut ino = 0;
        for (path, entry) in self.with_parents()? {
            ino += 1;
            let header = Builder::new(&path).ino(ino);
            writer = match entry {
                Entry::Directory { mode } => header
                    .mode(mode)
                    .nlink(2)
                    .set_mode_file_type(ModeFileType::Directory)
                    .write(writer, 0)
                    .finish()
                    .map_err(written)?,
                Entry::File { mode, contents } => {
                    let header = header.mode(mode).set_mode_file_type(ModeFileType::Regular);
                    match contents {
                        Contents::Bytes(bytes) => {
                            let size = size_field(&path, bytes.len() as u64)?;
                            let mut file = header.write(writer, size);
                            file.write_all(&bytes).map_err(written)?;
                            file.finish().map_err(written)?
                        }
                        Contents::Host(source) => append(&path, header, &source, writer, written)?,
                    }
                }
                Entry::Symlink { target } => {
                    let size = size_field(&path, target.len() as u64)?;
                    let mut link = header
                        .mode(0o777)
                        .set_mode_file_type(ModeFileType::Symlink)
                        .write(writer, size);
                    link.write_all(target.as_bytes()).map_err(written)?;
                    link.finish().map_err(written)?
                }
                Entry::CharDevice { mode, major, minor } => header
                    .mode(mode)
                    .rdev_major(major)
                    .rdev_minor(minor)
                    .set_mode_file_type(ModeFileType::Char)
                    .write(writer, 0)
                    .finish()
                    .map_err(written)?,
            };
        }
        trailer(writer).and_then(|mut w| w.flush()).map_err(written)
    }

    /// Writes the archive into a new file.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_file(&self, path: &Path) -> Result<()> {
        let file = File::create(path).map_err(Error::file("create", path))?;
        self.write(BufWriter::with_capacity(256 * 1024, file), path)
    }

    fn add(&mut self, path: &str, entry: Entry) -> &mut Self {
        self.entries
            .insert(path.trim_matches('/').to_owned(), entry);
        self
    }

    /// All entries in path order with the directories that nobody added. Path order puts a
    /// directory before what is in it, as the kernel's unpacker needs.
    fn with_parents(&self) -> Result<BTreeMap<String, Entry>> {
        let mut entries = BTreeMap::new();
        for (path, entry) in &self.entries {
            let refuse = |reason: &str| Error::Entry {
                path: path.clone(),
                reason: reason.to_owned(),
            };
            if path.is_empty() || path.contains('\0') {
                return Err(refuse("a path is not empty and has no NUL byte"));
            }
            if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(refuse("a path has no empty part, `.` or `..`"));
            }
            for (end, _) in path.match_indices('/') {
                let parent = &path[..end];
                match self.entries.get(parent) {
                    None => {
                        entries.insert(parent.to_owned(), Entry::Directory { mode: 0o755 });
                    }
                    Some(Entry::Directory { .. }) => {}
                    Some(_) => return Err(refuse("a parent of it is not a directory")),
                }
            }
            entries.insert(path.clone(), entry.clone());
        }
        Ok(entries)
    }
}

/// Appends a host file. Its size is taken from the open file, and a file that grows or shrinks
/// while it is read is an error: a wrong size would shift every entry behind it.
fn append<W: Write>(
    path: &str,
    header: Builder,
    source: &Path,
    writer: W,
    written: impl Fn(io::Error) -> Error,
) -> Result<W> {
    let mut file = File::open(source).map_err(Error::file("open", source))?;
    let metadata = file.metadata().map_err(Error::file("read", source))?;
    if !metadata.is_file() {
        return Err(Error::Entry {
            path: path.to_owned(),
            reason: format!("{} is not a regular file", source.display()),
        });
    }
    let size = size_field(path, metadata.len())?;
    let mut entry = header.write(writer, size);
    let copied = io::copy(&mut file, &mut entry).map_err(&written)?;
    if copied != metadata.len() {
        return Err(Error::Entry {
            path: path.to_owned(),
            reason: format!("{} changed while it was read", source.display()),
        });
    }
    entry.finish().map_err(&written)
}

fn size_field(path: &str, size: u64) -> Result<u32> {
    u32::try_from(size).map_err(|_| Error::Entry {
        path: path.to_owned(),
        reason: format!("{size} bytes are more than an archive entry holds (4 GiB)"),
    })
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
