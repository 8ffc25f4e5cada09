use super::*;

#[test]
fn a_files_digest_is_its_sha256() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("abc");
    std::fs::write(&path, "abc").unwrap();
    assert_eq!(
        file_sha256(&path).unwrap(),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn parts_that_read_alike_when_joined_give_different_keys() {
    let one = ContentKey::new("k").text("ab").text("c").digest();
    let two = ContentKey::new("k").text("a").text("bc").digest();
    let three = ContentKey::new("k").text("abc").digest();
    assert_ne!(one, two);
    assert_ne!(one, three);
    assert_ne!(two, three);
}

#[test]
fn a_missing_file_is_named_in_the_error() {
    let error = file_sha256(Path::new("/nonexistent/kernel")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/kernel"), "{error}");
}
