use super::*;

#[test]
fn a_terminal_gets_what_fits_it() {
    assert_eq!(fit("one\ntwo\nthree", 3, 2), "one\ntwo");
    assert_eq!(fit("one\ntwo\nthree", 4, 9), "one\ntwo\nthre");
    assert_eq!(fit("one\ntwo", 0, 0), "one\ntwo");
    assert_eq!(fit("äöü", 2, 1), "äö");
}
