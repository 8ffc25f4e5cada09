//! The `newc` form of a cpio archive: headers of 13 hexadecimal numbers, then the name, then the
//! contents, each padded to four bytes. It is what the kernel unpacks an initramfs from.
//!
//! Owns the form alone. [`Tree`](crate::tree::Tree) decides what is in an archive; names are bytes, since
//! Linux's are. The form has no place for extended attributes, for times before 1970 or after 2106,
//! nor for files of 4 GiB or more.

use std::io::{self, BufReader, Read, Seek, Write};

const MAGIC: &[u8; 6] = b"070701";
const TRAILER: &[u8] = b"TRAILER!!!";
/// Bytes of a header, its magic included.
const HEADER_LEN: usize = 110;
/// The kernel skips an entry whose name, its NUL included, is longer.
const NAME_MAX: usize = 4096;

/// The type bits of a mode.
pub(crate) const TYPE_MASK: u32 = 0o170_000;
pub(crate) const DIRECTORY: u32 = 0o040_000;
pub(crate) const REGULAR: u32 = 0o100_000;
pub(crate) const SYMLINK: u32 = 0o120_000;
pub(crate) const CHARACTER: u32 = 0o020_000;
pub(crate) const BLOCK: u32 = 0o060_000;
pub(crate) const FIFO: u32 = 0o010_000;

/// What stands before the contents of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Header {
    /// Relative to the root, without a leading slash.
    pub(crate) name: Vec<u8>,
    pub(crate) ino: u32,
    /// Permissions and type bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Names of this inode in the archive. Those after the first have no contents.
    pub(crate) nlink: u32,
    /// Seconds since 1970.
    pub(crate) mtime: u32,
    /// Bytes of contents; the target of a symbolic link is its contents.
    pub(crate) size: u32,
    /// Major and minor number of a device.
    pub(crate) device: (u32, u32),
}

impl Header {
    /// Writes all that precedes the contents.
    pub(crate) fn write(&self, mut writer: impl Write) -> io::Result<()> {
        let name_len = self.name.len() + 1;
        let fields = [
            self.ino,
            self.mode,
            self.uid,
            self.gid,
            self.nlink,
            self.mtime,
            self.size,
            0,
            0,
            self.device.0,
            self.device.1,
            u32::try_from(name_len).map_err(|_| io::ErrorKind::InvalidInput)?,
            0,
        ];
        writer.write_all(MAGIC)?;
        for field in fields {
            write!(writer, "{field:08x}")?;
        }
        writer.write_all(&self.name)?;
        writer.write_all(&[0])?;
        pad(writer, (HEADER_LEN + name_len) as u64)
    }
}

/// Writes the padding after `len` bytes.
pub(crate) fn pad(mut writer: impl Write, len: u64) -> io::Result<()> {
    writer.write_all(&[0; 3][..padding(len)])
}

/// Writes the entry that ends an archive.
pub(crate) fn trailer(writer: impl Write) -> io::Result<()> {
    let end = Header {
        name: TRAILER.to_vec(),
        nlink: 1,
        ..Header::default()
    };
    end.write(writer)
}

/// Reads the next entry with its contents, which may be as long as `most`; `None` at the trailer.
pub(crate) fn read(mut reader: impl Read, most: u32) -> io::Result<Option<(Header, Vec<u8>)>> {
    let Some(header) = read_header(&mut reader)? else {
        return Ok(None);
    };
    let contents = read_contents(reader, &header, most)?;
    Ok(Some((header, contents)))
}

/// Reads all that precedes the contents of the next entry; `None` at the trailer.
pub(crate) fn read_header(mut reader: impl Read) -> io::Result<Option<Header>> {
    let mut raw = [0; HEADER_LEN];
    reader.read_exact(&mut raw)?;
    let Some(digits) = raw.strip_prefix(MAGIC) else {
        return Err(broken("not a newc archive"));
    };
    let mut fields = [0; 13];
    for (field, digits) in fields.iter_mut().zip(digits.chunks_exact(8)) {
        let number = std::str::from_utf8(digits).ok();
        *field = number
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| broken("a header's number is not hexadecimal"))?;
    }
    let [
        ino,
        mode,
        uid,
        gid,
        nlink,
        mtime,
        size,
        _,
        _,
        major,
        minor,
        name_len,
        _,
    ] = fields;
    let name_len = name_len as usize;
    if !(1..=NAME_MAX).contains(&name_len) {
        return Err(broken("a name is longer than expected"));
    }
    let mut name = vec![0; name_len];
    reader.read_exact(&mut name)?;
    skip_padding(&mut reader, (HEADER_LEN + name_len) as u64)?;
    name.pop();
    let header = Header {
        name,
        ino,
        mode,
        uid,
        gid,
        nlink,
        mtime,
        size,
        device: (major, minor),
    };
    Ok((header.name != TRAILER).then_some(header))
}

/// Reads the contents that follow a header, which may be as long as `most`.
pub(crate) fn read_contents(
    mut reader: impl Read,
    header: &Header,
    most: u32,
) -> io::Result<Vec<u8>> {
    if header.size > most {
        return Err(broken("an entry is longer than expected"));
    }
    let mut contents = vec![0; header.size as usize];
    reader.read_exact(&mut contents)?;
    skip_padding(reader, u64::from(header.size))?;
    Ok(contents)
}

/// Goes on behind the contents that follow a header, without reading them.
pub(crate) fn skip_contents<R: Read + Seek>(
    reader: &mut BufReader<R>,
    header: &Header,
) -> io::Result<()> {
    let len = i64::from(header.size);
    reader.seek_relative(len + padding(len.unsigned_abs()) as i64)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn padding(len: u64) -> usize {
    ((4 - len % 4) % 4) as usize
}

fn skip_padding(mut reader: impl Read, len: u64) -> io::Result<()> {
    reader.read_exact(&mut [0; 3][..padding(len)])
}
