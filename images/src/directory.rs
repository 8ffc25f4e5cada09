//! A directory of the host into a tree.
//!
//! Links are taken as they are and never followed, so nothing outside the directory gets in. Times are
//! kept, since programs compare them: Python those of a module and of what it compiled from it, make
//! those of everything. The builder's identity is not: what belongs to the user or group who builds
//! belongs to root in the guest; other owners stay. The directory itself becomes a root of mode 0755 and
//! time 0.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use crate::notes::Notes;
use crate::spool::Spool;
use crate::tree::{Contents, Kind, Meta, Node, Refused, Tree};
use crate::{Error, Result};

/// Adds all of a directory to a tree. `limit` is how many bytes of contents it may have; times after
/// `newest`, in seconds since 1970, become it.
///
/// # Errors
/// [`Error::File`] for what cannot be read, [`Error::Archive`] for what a tree cannot hold.
pub(crate) fn read(
    root: &Path,
    tree: &mut Tree,
    spool: &mut Spool,
    notes: &mut Notes,
    limit: u64,
    newest: Option<u32>,
) -> Result<()> {
    let mut reader = Reader {
        root,
        tree,
        spool,
        notes,
        left: limit,
        limit,
        newest,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        linked: HashMap::new(),
    };
    reader.insert(b"", Meta::of_root(0o755), Kind::Directory)?;
    // Not by recursion: a directory may be as deep as a path is long.
    let mut open = vec![(root.to_path_buf(), Vec::new())];
    while let Some((directory, path)) = open.pop() {
        let listed = fs::read_dir(&directory).map_err(Error::file("list", &directory))?;
        for entry in listed {
            let entry = entry.map_err(Error::file("list", &directory))?;
            let name = entry.file_name();
            let path = match path.as_slice() {
                b"" => name.as_bytes().to_vec(),
                above => [above, b"/", name.as_bytes()].concat(),
            };
            if reader.entry(&entry.path(), &path)? {
                open.push((entry.path(), path));
            }
        }
    }
    Ok(())
}

struct Reader<'a> {
    root: &'a Path,
    tree: &'a mut Tree,
    spool: &'a mut Spool,
    notes: &'a mut Notes,
    left: u64,
    limit: u64,
    newest: Option<u32>,
    uid: u32,
    gid: u32,
    /// Files with several names, by device and inode: the first name.
    linked: HashMap<(u64, u64), Vec<u8>>,
}

impl Reader<'_> {
    /// Adds one entry; whether it is a directory, with more in it.
    fn entry(&mut self, source: &Path, path: &[u8]) -> Result<bool> {
        let metadata = fs::symlink_metadata(source).map_err(Error::file("read", source))?;
        let kind = metadata.file_type();
        let (major, minor) = (
            rustix::fs::major(metadata.rdev()),
            rustix::fs::minor(metadata.rdev()),
        );
        if !kind.is_dir() && metadata.nlink() > 1 {
            let key = (metadata.dev(), metadata.ino());
            if let Some(first) = self.linked.get(&key) {
                let linked = self.tree.link(path, first);
                return linked
                    .map(|()| false)
                    .map_err(|refused| self.refused(refused));
            }
            self.linked.insert(key, path.to_vec());
        }
        let kind = if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            let target = fs::read_link(source).map_err(Error::file("read", source))?;
            Kind::Symlink(target.as_os_str().as_bytes().to_vec())
        } else if kind.is_char_device() {
            Kind::CharDevice { major, minor }
        } else if kind.is_block_device() {
            Kind::BlockDevice { major, minor }
        } else if kind.is_fifo() {
            Kind::Fifo
        } else if kind.is_socket() {
            self.notes.socket_left_out(path);
            return Ok(false);
        } else {
            Kind::File(self.contents(source, path)?)
        };
        if has_attributes(source) {
            self.notes.attributes_lost(path);
        }
        let more = matches!(kind, Kind::Directory);
        let meta = self.meta(path, &metadata);
        self.insert(path, meta, kind)?;
        Ok(more)
    }

    fn contents(&mut self, source: &Path, path: &[u8]) -> Result<Contents> {
        let failed = Error::file("read", source);
        let opened = File::options()
            .read(true)
            // What was a file a moment ago may be a link or a fifo now.
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(source);
        let take = |file: File| -> io::Result<_> {
            self.spool
                .take(io::Read::take(file, self.left.saturating_add(1)))
        };
        let stretch = opened.and_then(take).map_err(failed)?;
        self.left = self.left.checked_sub(stretch.len()).ok_or_else(|| {
            let reason = format!("with it there are more than {} bytes of files", self.limit);
            self.refused(Refused::new(path, reason))
        })?;
        Ok(Contents::Spooled(stretch))
    }

    fn meta(&mut self, path: &[u8], metadata: &Metadata) -> Meta {
        let or_root = |id: u32, own: u32| if id == own { 0 } else { id };
        Meta {
            mode: metadata.mode() & 0o7777,
            uid: or_root(metadata.uid(), self.uid),
            gid: or_root(metadata.gid(), self.gid),
            mtime: self.notes.time(path, metadata.mtime(), self.newest),
        }
    }

    fn insert(&mut self, path: &[u8], meta: Meta, kind: Kind) -> Result<()> {
        let inserted = self.tree.insert(path, Node { meta, kind });
        inserted.map_err(|refused| self.refused(refused))
    }

    fn refused(&self, refused: Refused) -> Error {
        Error::Archive {
            archive: self.root.display().to_string(),
            entry: refused.path,
            reason: refused.reason,
        }
    }
}

/// Whether a file has extended attributes that mean something to programs: not those of the host's
/// security modules.
fn has_attributes(path: &Path) -> bool {
    let mut names = vec![0; 4096];
    let Ok(len) = rustix::fs::llistxattr(path, &mut names[..]) else {
        return false;
    };
    names
        .get(..len)
        .unwrap_or_default()
        .split(|byte| *byte == 0)
        .any(|name| {
            name.starts_with(b"user.")
                || name == b"security.capability"
                || name.starts_with(b"system.posix_acl")
        })
}

#[cfg(test)]
#[path = "directory_test.rs"]
mod tests;
