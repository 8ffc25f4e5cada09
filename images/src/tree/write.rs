//! A tree as an initramfs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use super::{Contents, Kind, Node, Tree};
use crate::newc::{self, Header};
use crate::{Error, Result};

/// Size of a page in the guest, in bytes.
const PAGE: u64 = 4096;
/// What the guest's kernel keeps for each name and inode beside its contents, in bytes.
const ENTRY: u64 = 1024;

impl Tree {
    /// Writes the tree as an uncompressed `newc` archive, trailer included: names in order, inodes
    /// numbered in that order. `destination` is for the text of a failed write.
    ///
    /// # Errors
    /// [`Error::Entry`] for a file that no archive can hold, [`Error::File`].
    pub(crate) fn write(&self, mut writer: impl Write, destination: &Path) -> Result<()> {
        let written = |error| Error::file("write", destination)(error);
        let links = self.links();
        let mut inodes: HashMap<usize, u32> = HashMap::new();
        for (path, name) in &self.names {
            let Some(node) = self.nodes.get(name.node) else {
                continue;
            };
            let known = inodes.get(&name.node).copied();
            // At most CHANGES_MAX of them.
            let next = inodes.len() as u32 + 1;
            let mut header = header(path, node);
            header.ino = *inodes.entry(name.node).or_insert(next);
            header.nlink = match node.kind {
                Kind::Directory => 2,
                // The kernel makes each of these by itself.
                Kind::Symlink(_) => 1,
                _ => links.get(&name.node).copied().unwrap_or(1),
            };
            match &node.kind {
                Kind::File(contents) if known.is_none() => {
                    file(header, contents, &mut writer, &written)?;
                }
                Kind::Symlink(target) => {
                    header.size = target.len() as u32; // at most PATH_MAX
                    header.write(&mut writer).map_err(written)?;
                    writer.write_all(target).map_err(written)?;
                    newc::pad(&mut writer, target.len() as u64).map_err(written)?;
                }
                _ => header.write(&mut writer).map_err(written)?,
            }
        }
        newc::trailer(&mut writer)
            .and_then(|()| writer.flush())
            .map_err(written)
    }

    /// What the tree takes in the guest's memory when it is unpacked, in bytes: whole pages of files,
    /// and what the kernel keeps for each entry. A host file that cannot be looked at counts nothing.
    pub(crate) fn unpacked_len(&self) -> u64 {
        let links = self.links();
        let contents = links.keys().map(|node| {
            let len = match self.nodes.get(*node).map(|node| &node.kind) {
                Some(Kind::File(Contents::Bytes(bytes))) => bytes.len() as u64,
                Some(Kind::File(Contents::Spooled(stretch))) => stretch.len(),
                Some(Kind::File(Contents::Host(path))) => {
                    fs::metadata(path).map_or(0, |metadata| metadata.len())
                }
                _ => 0,
            };
            len.next_multiple_of(PAGE)
        });
        contents.sum::<u64>() + self.names.len() as u64 * ENTRY
    }

    /// How many names each node has.
    fn links(&self) -> HashMap<usize, u32> {
        let mut links = HashMap::new();
        for name in self.names.values() {
            *links.entry(name.node).or_insert(0) += 1;
        }
        links
    }
}

fn header(path: &[u8], node: &Node) -> Header {
    let (kind, device) = match node.kind {
        Kind::Directory => (newc::DIRECTORY, (0, 0)),
        Kind::File(_) => (newc::REGULAR, (0, 0)),
        Kind::Symlink(_) => (newc::SYMLINK, (0, 0)),
        Kind::CharDevice { major, minor } => (newc::CHARACTER, (major, minor)),
        Kind::BlockDevice { major, minor } => (newc::BLOCK, (major, minor)),
        Kind::Fifo => (newc::FIFO, (0, 0)),
    };
    Header {
        name: match path {
            b"" => b".".to_vec(),
            path => path.to_vec(),
        },
        mode: kind | node.meta.mode & !newc::TYPE_MASK,
        uid: node.meta.uid,
        gid: node.meta.gid,
        mtime: node.meta.mtime,
        device,
        ..Header::default()
    }
}

/// Writes a file with its contents. One of the host that grows or shrinks meanwhile is an error: a
/// wrong size would shift every entry behind it.
fn file(
    mut header: Header,
    contents: &Contents,
    mut writer: impl Write,
    written: &impl Fn(io::Error) -> Error,
) -> Result<()> {
    let shown = String::from_utf8_lossy(&header.name).into_owned();
    let refuse = |reason: String| Error::Entry {
        path: shown.clone(),
        reason,
    };
    let (mut source, len): (Box<dyn Read + '_>, u64) = match contents {
        Contents::Bytes(bytes) => (Box::new(&bytes[..]), bytes.len() as u64),
        Contents::Spooled(stretch) => (Box::new(stretch.read()), stretch.len()),
        Contents::Host(path) => {
            let file = File::open(path).map_err(Error::file("open", path))?;
            let metadata = file.metadata().map_err(Error::file("read", path))?;
            if !metadata.is_file() {
                return Err(refuse(format!("{} is not a regular file", path.display())));
            }
            (Box::new(file), metadata.len())
        }
    };
    header.size = u32::try_from(len).map_err(|_| {
        refuse(format!(
            "{len} bytes are more than an archive entry holds (4 GiB)"
        ))
    })?;
    header.write(&mut writer).map_err(written)?;
    let copied = io::copy(&mut source.by_ref().take(len), &mut writer).map_err(written)?;
    if copied != len || source.read(&mut [0]).map_err(written)? > 0 {
        return Err(refuse("its source changed while it was read".to_owned()));
    }
    newc::pad(&mut writer, len).map_err(written)
}
