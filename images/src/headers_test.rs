use tar::EntryType;

use super::*;
use crate::testing::{Item, extension, pax, tar};

/// Path and target of an entry; then owner, group and time.
type Found = (String, String, (u32, u32, i64));

fn all(archive: &[u8]) -> Result<Vec<Found>> {
    let mut tar = tar::Archive::new(archive);
    let mut found = Vec::new();
    each("test", tar.entries(), |described, _| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let meta = (described.uid, described.gid, described.mtime);
        found.push((text(&described.path), text(&described.link), meta));
        Ok(())
    })?;
    Ok(found)
}

fn paths(archive: &[u8]) -> Vec<String> {
    all(archive)
        .unwrap()
        .into_iter()
        .map(|(path, _, _)| path)
        .collect()
}

#[test]
fn long_names_of_gnu_hold_for_one_entry() {
    let long = "d/".repeat(100) + "file";
    let archive = tar(&[
        Item::file(&long, "1"),
        Item::symlink("l", &long),
        Item::file("b", "2"),
    ]);
    let found = all(&archive).unwrap();
    assert_eq!(found[0].0, long);
    assert_eq!((found[1].0.as_str(), &found[1].1), ("l", &long));
    assert_eq!((found[2].0.as_str(), found[2].1.as_str()), ("b", ""));
}

#[test]
fn records_of_pax_hold_for_one_entry_and_win_over_the_header() {
    let mut archive = Vec::new();
    let records = pax(&[
        ("path", b"from/pax"),
        ("mtime", b"1234.75"),
        ("uid", b"3000000"),
        ("gid", b"7"),
        ("comment", b"a = b\nc"),
    ]);
    extension(&mut archive, EntryType::XHeader, &records);
    archive.extend(tar(&[Item::file("header", "1"), Item::file("next", "2")]));
    let found = all(&archive).unwrap();
    assert_eq!(found[0].0, "from/pax");
    assert_eq!(found[0].2, (3_000_000, 7, 1234));
    assert_eq!((found[1].0.as_str(), found[1].2.0), ("next", 0));
}

#[test]
fn global_records_hold_for_all_entries_that_say_nothing_else() {
    let mut archive = Vec::new();
    extension(
        &mut archive,
        EntryType::XGlobalHeader,
        &pax(&[("uid", b"5")]),
    );
    extension(&mut archive, EntryType::XHeader, &pax(&[("uid", b"6")]));
    archive.extend(tar(&[Item::file("a", "1"), Item::file("b", "2")]));
    let owners: Vec<_> = all(&archive)
        .unwrap()
        .iter()
        .map(|found| found.2.0)
        .collect();
    assert_eq!(owners, [6, 5]);
}

/// Counts what is read.
struct Counted<R>(R, u64);

impl<R: Read> Read for &mut Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1 += read as u64;
        Ok(read)
    }
}

#[test]
fn an_extension_of_any_length_is_refused_before_it_is_read() {
    for kind in [
        EntryType::GNULongName,
        EntryType::GNULongLink,
        EntryType::XHeader,
    ] {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(64 << 20);
        header.set_cksum();
        let mut source = Counted(header.as_bytes().chain(io::repeat(b'x')), 0);
        let mut tar = tar::Archive::new(&mut source);
        let refused = each("test", tar.entries(), |_, _| Ok(())).unwrap_err();
        assert!(
            refused.to_string().contains("extension is longer"),
            "{refused}"
        );
        assert!(source.1 < 2 << 20, "{} bytes were read", source.1);
    }
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    for (record, what) in [
        (("uid", &b"4294967296"[..]), "user"),
        (("gid", b"99999999999"), "group"),
        (("size", b"5"), "size"),
        (("uid", b"root"), "PAX header"),
        (("mtime", b"soon"), "PAX header"),
    ] {
        let mut archive = Vec::new();
        extension(&mut archive, EntryType::XHeader, &pax(&[record]));
        archive.extend(tar(&[Item::file("a", "1")]));
        let text = all(&archive).unwrap_err().to_string();
        assert!(text.contains(what), "{record:?}: {text}");
    }
}

#[test]
fn times_before_1970_and_after_2106_are_read_as_they_are_said() {
    for (said, expected) in [(&b"-5"[..], -5), (b"99999999999", 99_999_999_999)] {
        let mut archive = Vec::new();
        extension(&mut archive, EntryType::XHeader, &pax(&[("mtime", said)]));
        archive.extend(tar(&[Item::file("a", "1")]));
        assert_eq!(all(&archive).unwrap()[0].2.2, expected);
    }
}

#[test]
fn a_broken_record_is_refused() {
    for broken in [&b"99 path=x\n"[..], b"x path=y\n", b"8 pathx\n"] {
        let mut archive = Vec::new();
        extension(&mut archive, EntryType::XHeader, broken);
        archive.extend(tar(&[Item::file("a", "1")]));
        assert!(all(&archive).is_err(), "{broken:?}");
    }
}

#[test]
fn an_archive_without_entries_has_none() {
    assert!(paths(&tar(&[])).is_empty());
}

#[test]
fn what_an_archive_says_reaches_no_terminal_as_it_is() {
    let mut archive = tar(&[Item::file("a\u{1b}[2J\u{202e}", "1")]);
    archive.truncate(1024);
    archive.extend([b'\x1b'; 512]);
    let text = all(&archive).unwrap_err().to_string();
    assert!(text.contains("\\u{202e}"), "{text:?}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
}
