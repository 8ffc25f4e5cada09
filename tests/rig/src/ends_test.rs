use super::*;

#[test]
fn an_archive_is_unpacked_without_waiting_for_the_ports_end() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "text").unwrap();
    let archive = Command::new("tar")
        .args(["--create", "--file", "-", "--directory"])
        .arg(dir.path())
        .arg("file")
        .output()
        .unwrap()
        .stdout;
    let (mut l1, host) = UnixStream::pair().unwrap();
    l1.write_all(&(archive.len() as u64).to_le_bytes()).unwrap();
    l1.write_all(&archive).unwrap();

    let target = tempfile::tempdir().unwrap();
    let length = unpack(host, target.path()).unwrap();
    assert_eq!(length, archive.len() as u64);
    let unpacked = std::fs::read(target.path().join("file")).unwrap();
    assert_eq!(unpacked, b"text");
    // Kept open until here: the port has no end of its own.
    drop(l1);
}

#[test]
fn no_files_are_an_empty_archive() {
    let (mut l1, host) = UnixStream::pair().unwrap();
    l1.write_all(&0_u64.to_le_bytes()).unwrap();
    let target = tempfile::tempdir().unwrap();
    assert_eq!(unpack(host, target.path()).unwrap(), 0);
}

#[test]
fn an_archive_that_is_cut_short_is_an_error() {
    let (mut l1, host) = UnixStream::pair().unwrap();
    l1.write_all(&10_000_u64.to_le_bytes()).unwrap();
    l1.write_all(b"not an archive").unwrap();
    drop(l1);
    let target = tempfile::tempdir().unwrap();
    assert!(unpack(host, target.path()).is_err());
}
