use super::*;

#[test]
fn a_frequency_within_the_tolerance_is_the_same() {
    assert!(is_same(2_000_000, 2_000_000));
    assert!(is_same(2_000_499, 2_000_000));
    assert!(is_same(1_999_501, 2_000_000));
    assert!(!is_same(2_000_501, 2_000_000));
    assert!(!is_same(1_999_499, 2_000_000));
    assert!(!is_same(u32::MAX, 1));
}
