use super::*;

#[test]
fn the_hash_of_abc_is_the_standards() {
    let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(sha256(b"abc"), expected);
}

#[test]
fn pieces_hash_like_the_whole() {
    let mut pieces = Sha256::new();
    pieces.update(b"a");
    pieces.update(b"");
    pieces.update(b"bc");
    assert_eq!(pieces.seen(), 3);
    assert_eq!(pieces.finish(), sha256(b"abc"));
}
