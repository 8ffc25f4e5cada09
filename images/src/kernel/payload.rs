//! The uncompressed kernel inside a bzImage.
//!
//! The header says where in the protected-mode part the payload is; its last four bytes are the
//! length of what comes out. Only zstd is undone here, which distributions use today.

use std::io::Read as _;

/// Longest kernel that is taken out, in bytes.
const LEN_MAX: u32 = 256 << 20;
const SECTOR: usize = 512;
const ZSTD_MAGIC: &[u8] = b"\x28\xb5\x2f\xfd";
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// The `vmlinux` in a bzImage; `None` if it cannot be taken out.
pub(super) fn uncompressed(bzimage: &[u8]) -> Option<Vec<u8>> {
    let (frame, len) = payload(bzimage)?;
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(frame).ok()?;
    let mut vmlinux = Vec::with_capacity(len as usize);
    // One more byte than it should be, so that a longer one is seen.
    let mut bounded = (&mut decoder).take(u64::from(len) + 1);
    bounded.read_to_end(&mut vmlinux).ok()?;
    (vmlinux.len() == len as usize && vmlinux.starts_with(ELF_MAGIC)).then_some(vmlinux)
}

/// The compressed kernel, and its length when it is uncompressed.
fn payload(bzimage: &[u8]) -> Option<(&[u8], u32)> {
    let word = |at: usize| {
        let bytes = bzimage.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    };
    if bzimage.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let setup = match bzimage.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let start = ((setup + 1) * SECTOR).checked_add(word(0x248)? as usize)?;
    let end = start.checked_add(word(0x24c)? as usize)?;
    let (frame, len) = bzimage.get(start..end)?.split_last_chunk()?;
    let len = u32::from_le_bytes(*len);
    (frame.starts_with(ZSTD_MAGIC) && len <= LEN_MAX).then_some((frame, len))
}

#[cfg(test)]
#[path = "payload_test.rs"]
mod tests;
