use super::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// A bzImage with this payload, four bytes of which say what its length will be.
fn bzimage(frame: &[u8], len: u32) -> Vec<u8> {
    const OFFSET: usize = 64;
    let mut file = vec![0; 2 * SECTOR + OFFSET];
    file[0x1f1] = 1;
    file[0x202..0x206].copy_from_slice(b"HdrS");
    file[0x248..0x24c].copy_from_slice(&(OFFSET as u32).to_le_bytes());
    file[0x24c..0x250].copy_from_slice(&(frame.len() as u32 + 4).to_le_bytes());
    file.extend(frame);
    file.extend(len.to_le_bytes());
    file.extend([7; 100]); // the decompressor lies behind it
    file
}

fn vmlinux() -> Vec<u8> {
    let mut kernel = b"\x7fELF".to_vec();
    kernel.extend((0..100_000u32).flat_map(|n| (n / 7).to_le_bytes()));
    kernel
}

fn compressed() -> (Vec<u8>, u32) {
    let kernel = vmlinux();
    let frame = compress_to_vec(&kernel[..], CompressionLevel::Fastest);
    (frame, kernel.len() as u32)
}

#[test]
fn the_kernel_comes_out_as_it_went_in() {
    let (frame, len) = compressed();
    assert_eq!(uncompressed(&bzimage(&frame, len)), Some(vmlinux()));
}

#[test]
fn a_window_larger_than_the_content_is_no_obstacle() {
    let (mut frame, len) = compressed();
    assert_eq!(frame[4] & 1 << 5, 0, "no window in it");
    frame[5] = 17 << 3; // 128 MiB, as kernels have it
    assert_eq!(uncompressed(&bzimage(&frame, len)), Some(vmlinux()));
}

#[test]
fn what_cannot_be_taken_out_is_left_in() {
    let (frame, len) = compressed();
    let whole = bzimage(&frame, len);
    assert_eq!(uncompressed(&bzimage(&frame, len + 1)), None, "shorter");
    assert_eq!(uncompressed(&bzimage(&frame, len - 1)), None, "longer");
    assert_eq!(uncompressed(&bzimage(&frame, u32::MAX)), None, "vast");
    assert_eq!(uncompressed(&bzimage(b"\x1f\x8b\x08", 3)), None, "gzip");
    for cut in [0, 0x1f1, 0x205, 0x24f, whole.len() / 2] {
        assert_eq!(uncompressed(&whole[..cut]), None, "cut at {cut}");
    }
    let mut elsewhere = whole.clone();
    elsewhere[0x248..0x250].fill(0xff);
    assert_eq!(uncompressed(&elsewhere), None);
}
