use super::*;

#[test]
fn a_seed_repeats_its_bytes() {
    assert_eq!(Seed::new(7).bytes(1001), Seed::new(7).bytes(1001));
    assert_ne!(Seed::new(7).bytes(1001), Seed::new(8).bytes(1001));
    assert_eq!(Seed::new(7).bytes(1001).len(), 1001);
}

#[test]
fn a_printed_seed_can_be_read_back() {
    let seed = Seed::new(0xfeed_0000_0000_0001);
    assert_eq!(Seed::parse(&seed.to_string()), Some(seed.start()));
    assert_eq!(Seed::parse("12"), Some(12));
    assert_eq!(Seed::parse("twelve"), None);
}
