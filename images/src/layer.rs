//! A tar archive into a tree: one layer of a container image, or a whole root.
//!
//! Owns what the types of entries mean, and the names by which a layer takes away what is below it.
//! [`headers`] reads what is said about an entry; the [`Tree`] judges paths and links.
//!
//! | in an archive | in the tree |
//! |---|---|
//! | files, directories, links, devices, fifos | the same, with mode, owner and time |
//! | `.wh.NAME`, `.wh..wh..opq` in a layer | what lower layers have there is gone |
//! | extended attributes | lost, since `newc` has none: noted |
//! | sparse files, unknown types | refused |

use std::io::{self, Read};

use tar::{EntryType, Header};

use crate::Result;
use crate::headers::{self, Described};
use crate::notes::Notes;
use crate::spool::Spool;
use crate::tree::{Contents, Kind, Meta, Node, Refused, Tree};

/// Before a name in a layer: what lower layers have there is taken away.
const WHITEOUT: &[u8] = b".wh.";
/// All that lower layers have in the directory is taken away.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Before names that a union file system kept for itself.
const RESERVED: &[u8] = b".wh..wh.";

/// What an archive is unpacked under.
#[derive(Debug)]
pub(crate) struct Unpack<'a> {
    pub(crate) tree: &'a mut Tree,
    /// Where contents go.
    pub(crate) spool: &'a mut Spool,
    pub(crate) notes: &'a mut Notes,
    /// Whether names may be whiteouts.
    pub(crate) layer: bool,
    /// Times after this one, in seconds since 1970, become it.
    pub(crate) newest: Option<u32>,
}

impl Unpack<'_> {
    /// Unpacks one archive to its end. `archive` names it in errors.
    ///
    /// # Errors
    /// [`Error::Archive`](crate::Error::Archive) with the entry that cannot be had, and why.
    pub(crate) fn run(&mut self, archive: &str, reader: impl Read) -> Result<()> {
        let mut tar = tar::Archive::new(reader);
        headers::each(archive, tar.entries(), |described, entry| {
            let header = entry.header().clone();
            self.entry(described, &header, entry)
        })
    }

    fn entry(
        &mut self,
        described: &Described,
        header: &Header,
        contents: &mut impl Read,
    ) -> Result<(), Refused> {
        let path = &described.path;
        if self.layer && self.whiteout(path)? {
            return Ok(());
        }
        if described.attributes {
            self.notes.attributes_lost(path);
        }
        let refuse = |reason: &str| Refused::new(path, reason);
        let number = |field: io::Result<Option<u32>>| match field {
            Ok(Some(number)) => Ok(number),
            _ => Err(Refused::new(path, "a device without its numbers")),
        };
        let device = || -> Result<(u32, u32), Refused> {
            Ok((
                number(header.device_major())?,
                number(header.device_minor())?,
            ))
        };
        let kind = match header.entry_type() {
            // Before POSIX, a slash at the end was what made a directory.
            EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => Kind::Directory,
            EntryType::Regular | EntryType::Continuous => {
                let unspooled = |error: io::Error| Refused::new(path, error.to_string());
                // One that is cut off is found when the next header is looked for.
                let stretch = self.spool.take(contents).map_err(unspooled)?;
                Kind::File(Contents::Spooled(stretch))
            }
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink(described.link.clone()),
            EntryType::Link => return self.tree.link(path, &described.link),
            EntryType::Char => {
                let (major, minor) = device()?;
                Kind::CharDevice { major, minor }
            }
            EntryType::Block => {
                let (major, minor) = device()?;
                Kind::BlockDevice { major, minor }
            }
            EntryType::Fifo => Kind::Fifo,
            EntryType::GNUSparse => return Err(refuse("sparse files are not understood")),
            other => {
                let kind = char::from(other.as_byte());
                return Err(refuse(&format!(
                    "entries of type {kind:?} are not understood"
                )));
            }
        };
        let meta = Meta {
            mode: described.mode,
            uid: described.uid,
            gid: described.gid,
            mtime: self.notes.time(path, described.mtime, self.newest),
        };
        self.tree.insert(path, Node { meta, kind })
    }

    /// Does what a name asks for that is a whiteout; whether it was one.
    fn whiteout(&mut self, path: &[u8]) -> Result<bool, Refused> {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let at = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |slash| slash + 1);
        let (directory, name) = path.split_at_checked(at).unwrap_or((b"", path));
        if name == OPAQUE {
            self.tree.opaque(directory)?;
        } else if path
            .split(|byte| *byte == b'/')
            .any(|part| part.starts_with(RESERVED))
        {
            // Of a union file system of old, and nothing that a guest should see.
        } else if let Some(gone) = name.strip_prefix(WHITEOUT) {
            if matches!(gone, b"" | b"." | b"..") {
                return Err(Refused::new(path, "a whiteout of nothing"));
            }
            self.tree.whiteout(&[directory, gone].concat())?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

#[cfg(test)]
#[path = "layer_test.rs"]
mod tests;
