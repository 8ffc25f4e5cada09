//! The state file: a header of fixed length that can be read alone, then records.
//!
//! ```text
//!   0   magic                     "\x89FOREBAY"
//!   8   version of this layout    u32
//!  12   number of records         u32
//!  16   architecture              8 letters, zeros behind them
//!  24   maker of the processor    12 letters
//!  36   its family and model      u32, as CPUID leaf 1 says them
//!  40   guest memory in bytes     u64
//!  48   number of vCPUs           u32
//!  52   zero                      u32
//!  56   length of all records     u64
//!  64   SHA-256 of bytes 0 to 64 and of all records
//!  96   records: name (12 letters), version (u32), length (u64), that many bytes; each
//! ```
//!
//! Numbers are little-endian. The checksum is of everything else, so that no change of a byte goes
//! unnoticed; it is against damage, not against somebody who means it, who is met by the rules of
//! each record. A version is never changed, only followed by another.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::error::{RecordProblem, RestoreError, SnapshotError};
use crate::error::HostError;

/// The file's name in a snapshot's directory.
pub(crate) const NAME: &str = "state";

/// A first byte that is no text, so that nobody takes the file for one.
const MAGIC: [u8; 8] = *b"\x89FOREBAY";
const VERSION: u32 = 1;
const ARCHITECTURE: &str = "x86_64";
const HEADER_LEN: usize = 96;
/// Where the checksum begins, and what it is of in the header ends.
const SUMMED: usize = 64;
const NAME_LEN: usize = 12;
/// More records than any version had.
const RECORDS_MAX: usize = 64;
/// Longest file: every byte that executions may hold, many times over.
const LEN_MAX: u64 = 1 << 30;

/// What the header says of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Maker of the processor that it was saved on.
    pub(crate) vendor: [u8; 12],
    /// That processor's family, model and stepping. For people: what a guest needs is judged by
    /// what it was given.
    pub(crate) signature: u32,
    /// Guest memory, in bytes.
    pub(crate) memory: u64,
    /// Number of vCPUs.
    pub(crate) cpus: u32,
}

/// Named parts of a machine's state, each with a version of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Records(Vec<Record>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    name: String,
    version: u32,
    bytes: Vec<u8>,
}

impl Records {
    /// Adds one. Names have at most twelve letters and are there once, as all of ours are.
    pub(crate) fn put(&mut self, name: &str, version: u32, bytes: Vec<u8>) {
        debug_assert!(name.len() <= NAME_LEN && self.0.iter().all(|record| record.name != name));
        self.0.push(Record {
            name: name.to_owned(),
            version,
            bytes,
        });
    }

    /// Takes one out, of the one version that is known.
    pub(crate) fn take(&mut self, name: &str, supported: u32) -> Result<Vec<u8>, RestoreError> {
        let at = self.0.iter().position(|record| record.name == name);
        let at = at.ok_or_else(|| RestoreError::record(name, RecordProblem::Missing))?;
        let Record { version, bytes, .. } = self.0.swap_remove(at);
        if version != supported {
            let problem = RecordProblem::Version {
                found: version,
                supported,
            };
            return Err(RestoreError::record(name, problem));
        }
        Ok(bytes)
    }

    /// To be called when everybody has taken theirs: what is left nobody knows.
    pub(crate) fn finish(self) -> Result<(), RestoreError> {
        match self.0.first() {
            Some(left) => Err(RestoreError::record(&left.name, RecordProblem::Unknown)),
            None => Ok(()),
        }
    }
}

/// The bytes of a state file.
///
/// # Errors
/// There are more of them than would be read back.
pub(crate) fn encode(shape: &Shape, records: &Records) -> Result<Vec<u8>, SnapshotError> {
    let mut body = Vec::new();
    for Record {
        name,
        version,
        bytes,
    } in &records.0
    {
        body.extend(letters::<NAME_LEN>(name));
        body.extend(version.to_le_bytes());
        body.extend((bytes.len() as u64).to_le_bytes());
        body.extend(bytes);
    }
    let mut file = Vec::with_capacity(HEADER_LEN + body.len());
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    file.extend((records.0.len() as u32).to_le_bytes());
    file.extend(letters::<8>(ARCHITECTURE));
    file.extend(shape.vendor);
    file.extend(shape.signature.to_le_bytes());
    file.extend(shape.memory.to_le_bytes());
    file.extend(shape.cpus.to_le_bytes());
    file.extend(0u32.to_le_bytes());
    file.extend((body.len() as u64).to_le_bytes());
    let sum = checksum(&file, &body);
    file.extend(sum);
    file.extend(body);
    match file.len() as u64 {
        bytes if bytes > LEN_MAX => Err(SnapshotError::TooLarge {
            bytes,
            most: LEN_MAX,
        }),
        _ => Ok(file),
    }
}

/// The way back, to the last byte.
pub(crate) fn decode(file: &[u8]) -> Result<(Shape, Records), RestoreError> {
    let mut header = Fields(file);
    if header.bytes::<8>() != Some(MAGIC) {
        return Err(RestoreError::NotASnapshot);
    }
    let length = |expected: u64| RestoreError::Length {
        found: file.len() as u64,
        expected,
    };
    let short = || length(HEADER_LEN as u64);
    // Before anything whose place or meaning another version could change.
    let found = header.u32().ok_or_else(short)?;
    if found != VERSION {
        return Err(RestoreError::Version {
            found,
            supported: VERSION,
        });
    }
    let count = header.u32().ok_or_else(short)?;
    let architecture = header.bytes::<8>().ok_or_else(short)?;
    let shape = Shape {
        vendor: header.bytes().ok_or_else(short)?,
        signature: header.u32().ok_or_else(short)?,
        memory: header.u64().ok_or_else(short)?,
        cpus: header.u32().ok_or_else(short)?,
    };
    let zero = header.u32().ok_or_else(short)?;
    let body_len = header.u64().ok_or_else(short)?;
    let sum = header.bytes::<32>().ok_or_else(short)?;
    let body = header.0;
    if body.len() as u64 != body_len {
        return Err(length(body_len.saturating_add(HEADER_LEN as u64)));
    }
    let summed = file.get(..SUMMED).unwrap_or_default();
    if sum != checksum(summed, body) || zero != 0 {
        return Err(RestoreError::Damaged);
    }
    if architecture != letters::<8>(ARCHITECTURE) {
        return Err(RestoreError::Architecture {
            found: text(&architecture),
            host: ARCHITECTURE,
        });
    }
    Ok((shape, decode_records(body, count)?))
}

fn decode_records(body: &[u8], count: u32) -> Result<Records, RestoreError> {
    let mut rest = Fields(body);
    let mut records = Records::default();
    let broken = || RestoreError::Machine {
        rule: "its records are not as many, or not as long, as the header says",
    };
    while !rest.0.is_empty() {
        let name = rest.bytes::<NAME_LEN>().ok_or_else(broken)?;
        let version = rest.u32().ok_or_else(broken)?;
        let len = rest.u64().ok_or_else(broken)?;
        let len = usize::try_from(len).map_err(|_| broken())?;
        let bytes = rest.take(len).ok_or_else(broken)?;
        let name = text(&name);
        if records.0.iter().any(|record| record.name == name) {
            return Err(RestoreError::record(&name, RecordProblem::Duplicate));
        }
        if records.0.len() == RECORDS_MAX {
            return Err(broken());
        }
        records.0.push(Record {
            name,
            version,
            bytes: bytes.to_vec(),
        });
    }
    if records.0.len() as u64 != u64::from(count) {
        return Err(broken());
    }
    Ok(records)
}

/// Reads the state file of the snapshot in `directory`.
pub(crate) fn read(directory: &Path) -> Result<(Shape, Records), RestoreError> {
    let path = directory.join(NAME);
    let failed = |call| {
        let path = path.display();
        move |e| HostError::on(call, path, e)
    };
    // Something else that is called so, a pipe for example, is not waited for.
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(&path).map_err(failed("open"))?;
    let metadata = file.metadata().map_err(failed("stat"))?;
    if !metadata.is_file() {
        return Err(RestoreError::NotASnapshot);
    }
    let len = metadata.len();
    let too_large = |bytes| RestoreError::TooLarge {
        bytes,
        most: LEN_MAX,
    };
    if len > LEN_MAX {
        return Err(too_large(len));
    }
    let mut bytes = Vec::new();
    // One that grows meanwhile is not read for ever.
    let read = file.take(LEN_MAX + 1).read_to_end(&mut bytes);
    let read = read.map_err(failed("read"))? as u64;
    if read > LEN_MAX {
        return Err(too_large(read));
    }
    decode(&bytes)
}

fn checksum(header: &[u8], body: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update(header)
        .chain_update(body)
        .finalize()
        .into()
}

/// Letters with zeros behind them.
fn letters<const N: usize>(text: &str) -> [u8; N] {
    let mut letters = [0; N];
    for (to, from) in letters.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    letters
}

/// The way back, for people too: whatever else stands there is escaped.
fn text(letters: &[u8]) -> String {
    let end = letters.iter().rposition(|letter| *letter != 0);
    let letters = letters.get(..end.map_or(0, |end| end + 1));
    letters.unwrap_or_default().escape_ascii().to_string()
}

/// Reads fields from the front of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(field)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
#[path = "file_test.rs"]
mod tests;
