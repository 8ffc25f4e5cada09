//! The headers of a tar archive, with the extensions of PAX and GNU: one description per entry.
//!
//! Extensions are read here and not by the `tar` crate, which would read one of any length into
//! memory. Called for layers ([`crate::layer`]) and for the archives that hold them
//! ([`crate::oci`]).

use std::io::{self, Read};

use tar::{Entries, Entry, EntryType, Header};

use crate::foreign_text::shown;
use crate::tree::Refused;
use crate::{Error, Result};

/// Longest extension of a header, in bytes: the longest path and attribute are far below.
const EXTENSION_MAX: u64 = 1 << 20;

/// Shows each entry of an archive to `visit`, in order. `archive` names it in errors.
///
/// # Errors
/// [`Error::Archive`] with the entry that cannot be had, and why.
pub(crate) fn each<'a, R: Read + 'a>(
    archive: &str,
    entries: io::Result<Entries<'a, R>>,
    mut visit: impl FnMut(&Described, &mut Entry<'a, R>) -> Result<(), Refused>,
) -> Result<()> {
    let refuse = |Refused { path, reason }| Error::Archive {
        archive: shown(archive),
        // Shown with its quotes.
        entry: path,
        reason: shown(&reason),
    };
    let unreadable = |after: &[u8], error: io::Error| {
        let text = error.to_string();
        // What follows quotes the header, whatever bytes those are.
        let error = text.lines().next().unwrap_or_default();
        let reason = match after {
            b"" => format!("this cannot be read as a tar archive: {error}"),
            _ => format!("behind it, the archive cannot be read: {error}"),
        };
        refuse(Refused::new(after, reason))
    };
    let entries = entries.map_err(|error| unreadable(b"", error))?;
    let mut extensions = Extensions::default();
    let mut last = Vec::new();
    for entry in entries.raw(true) {
        let mut entry = entry.map_err(|error| unreadable(&last, error))?;
        let header = entry.header().clone();
        let kind = header.entry_type();
        let is_extension = kind.is_pax_local_extensions()
            || kind.is_pax_global_extensions()
            || kind.is_gnu_longname()
            || kind.is_gnu_longlink();
        let taken = if is_extension {
            let path = header.path_bytes();
            extension(&mut entry, &path).and_then(|text| extensions.take(kind, &text, &path))
        } else {
            extensions.finish(&header).and_then(|described| {
                let visited = visit(&described, &mut entry);
                last = described.path;
                visited
            })
        };
        taken.map_err(refuse)?;
    }
    Ok(())
}

/// Reads an extension's text.
fn extension(entry: &mut impl Read, path: &[u8]) -> Result<Vec<u8>, Refused> {
    let mut text = Vec::new();
    let read = entry.take(EXTENSION_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| Refused::new(path, error.to_string()))?;
    if text.len() as u64 > EXTENSION_MAX {
        let reason = format!("a header's extension is longer than {EXTENSION_MAX} bytes");
        return Err(Refused::new(path, reason));
    }
    Ok(text)
}

/// What the headers before an entry say about it.
#[derive(Debug, Default)]
struct Extensions {
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    next: Records,
    /// For all entries that follow.
    global: Records,
}

/// Records of PAX that mean something here.
#[derive(Debug, Default)]
struct Records {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<i64>,
    attributes: bool,
    sparse: bool,
}

/// An entry with all that was said about it.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) path: Vec<u8>,
    /// The target of a link.
    pub(crate) link: Vec<u8>,
    /// Of the contents, in bytes.
    pub(crate) size: u64,
    /// Permission bits, set-user-id, set-group-id and sticky included.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds since 1970, as they were said: there may be none that an initramfs can say.
    pub(crate) mtime: i64,
    /// Whether it has extended attributes.
    pub(crate) attributes: bool,
}

impl Extensions {
    fn take(&mut self, kind: EntryType, text: &[u8], path: &[u8]) -> Result<(), Refused> {
        let until_nul = || {
            text.split(|byte| *byte == 0)
                .next()
                .unwrap_or_default()
                .to_vec()
        };
        match kind {
            EntryType::GNULongName => self.long_path = Some(until_nul()),
            EntryType::GNULongLink => self.long_link = Some(until_nul()),
            EntryType::XGlobalHeader => self.global.read(text, path)?,
            _ => self.next.read(text, path)?,
        }
        Ok(())
    }

    /// The entry of this header. What was said about it holds for no other.
    fn finish(&mut self, header: &Header) -> Result<Described, Refused> {
        let Self {
            long_path,
            long_link,
            next,
            global,
        } = self;
        let next = std::mem::take(next).or(global);
        let path = next
            .path
            .or(long_path.take())
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let link = next
            .link
            .or(long_link.take())
            .or(header.link_name_bytes().map(|name| name.into_owned()))
            .unwrap_or_default();
        let wrong =
            |what: &str| Refused::new(&path, format!("its {what} is not a number in range"));
        let size = header.entry_size().map_err(|_| wrong("size"))?;
        if next.sparse {
            return Err(Refused::new(&path, "sparse files are not understood"));
        }
        if next.size.is_some_and(|said| said != size) {
            let reason = "its size is too large for a header: an image cannot hold such a file";
            return Err(Refused::new(&path, reason));
        }
        let id = |said: Option<u64>, header: io::Result<u64>, what: &str| {
            let id = said.map_or_else(|| header.map_err(|_| wrong(what)), Ok)?;
            u32::try_from(id).map_err(|_| wrong(what))
        };
        let mtime = match next.mtime {
            Some(seconds) => seconds,
            None => header.mtime().map_err(|_| wrong("time"))?.cast_signed(),
        };
        let mode = header.mode().map_err(|_| wrong("mode"))? & 0o7777;
        let uid = id(next.uid, header.uid(), "user")?;
        let gid = id(next.gid, header.gid(), "group")?;
        Ok(Described {
            path,
            link,
            size,
            mode,
            uid,
            gid,
            mtime,
            attributes: next.attributes,
        })
    }
}

impl Records {
    fn read(&mut self, text: &[u8], path: &[u8]) -> Result<(), Refused> {
        let wrong = || Refused::new(path, "its PAX header cannot be understood");
        let mut rest = text;
        while !rest.is_empty() {
            let (key, value, next) = record(rest).ok_or_else(wrong)?;
            rest = next;
            let number = || {
                let text = std::str::from_utf8(value).ok();
                text.and_then(|text| text.parse().ok()).ok_or_else(wrong)
            };
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(number()?),
                b"uid" => self.uid = Some(number()?),
                b"gid" => self.gid = Some(number()?),
                b"mtime" => self.mtime = Some(whole_seconds(value).ok_or_else(wrong)?),
                key if key.starts_with(b"SCHILY.xattr.")
                    || key.starts_with(b"LIBARCHIVE.xattr.") =>
                {
                    self.attributes = true;
                }
                key if key.starts_with(b"GNU.sparse.") => self.sparse = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// Copies only what counts: a record may be long, and there may be many entries.
    fn or(self, other: &Self) -> Self {
        Self {
            path: self.path.or_else(|| other.path.clone()),
            link: self.link.or_else(|| other.link.clone()),
            size: self.size.or(other.size),
            uid: self.uid.or(other.uid),
            gid: self.gid.or(other.gid),
            mtime: self.mtime.or(other.mtime),
            attributes: self.attributes || other.attributes,
            sparse: self.sparse || other.sparse,
        }
    }
}

/// The first of some records, `<length> <key>=<value>\n`, and what follows it. Not by its newline: a
/// value may have some.
fn record(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = text.iter().position(|byte| *byte == b' ')?;
    let len = std::str::from_utf8(text.get(..blank)?).ok()?.parse().ok()?;
    let (record, rest) = text.split_at_checked(len)?;
    let record = record.get(blank + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((record.get(..equals)?, record.get(equals + 1..)?, rest))
}

/// `1700000000.25` without its fraction.
fn whole_seconds(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?;
    text.split('.').next()?.parse().ok()
}

#[cfg(test)]
#[path = "headers_test.rs"]
mod tests;
