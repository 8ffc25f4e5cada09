use super::*;
use crate::testing::{gzip, zstd};

fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    plain(bytes)?.read_to_end(&mut out)?;
    Ok(out)
}

#[test]
fn plain_gzip_and_zstd_are_told_apart_by_their_first_bytes() {
    let text = b"some text, some text, some text".repeat(1000);
    assert_eq!(read(&text).unwrap(), text);
    assert_eq!(read(&gzip(&text)).unwrap(), text);
    assert_eq!(read(&zstd(&text)).unwrap(), text);
    assert_eq!(read(b"").unwrap(), b"");
}

#[test]
fn parts_that_follow_each_other_are_one() {
    assert_eq!(
        read(&[gzip(b"one"), gzip(b"two")].concat()).unwrap(),
        b"onetwo"
    );
    let skipped = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"xyz"].concat();
    let frames = [zstd(b"one"), skipped.clone(), zstd(b"two"), skipped.clone()].concat();
    assert_eq!(read(&frames).unwrap(), b"onetwo");
    assert_eq!(read(&[skipped, zstd(b"x")].concat()).unwrap(), b"x");
}

#[test]
fn what_is_cut_or_changed_is_an_error() {
    let text = b"0123456789".repeat(1000);
    for whole in [gzip(&text), zstd(&text)] {
        assert!(read(&whole[..whole.len() - 5]).is_err());
        let mut noise = whole.clone();
        noise.extend_from_slice(b"noise");
        // gzip ignores what is behind its last member as gzip(1) does; zstd does not.
        if whole.starts_with(&ZSTD) {
            assert!(read(&noise).is_err());
        }
    }
}

#[test]
fn another_compression_is_named() {
    let error = read(b"\xfd7zXZ\0...").unwrap_err();
    assert!(error.to_string().contains("xz"), "{error}");
}

#[test]
fn what_expands_without_end_ends_at_the_bound() {
    for bomb in [gzip(&vec![0; 10 << 20]), zstd(&vec![0; 10 << 20])] {
        let mut left = 1 << 20;
        let mut bounded = Bounded {
            inner: plain(&bomb[..]).unwrap(),
            left: &mut left,
            limit: 1 << 20,
        };
        let mut out = Vec::new();
        let error = bounded.read_to_end(&mut out).unwrap_err();
        assert!(out.len() <= 1 << 20);
        assert!(
            error.to_string().contains("more than 1048576 bytes"),
            "{error}"
        );
    }
}

#[test]
fn several_streams_share_one_bound() {
    let mut left = 10;
    for (stream, fits) in [(&b"123456"[..], true), (b"7890", true), (b"!", false)] {
        let mut bounded = Bounded {
            inner: stream,
            left: &mut left,
            limit: 10,
        };
        assert_eq!(bounded.read_to_end(&mut Vec::new()).is_ok(), fits);
    }
}
