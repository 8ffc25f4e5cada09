use super::Pattern;

#[test]
fn the_stream_is_the_published_generator() {
    // First outputs of SplitMix64 for seed 1234567, as its reference implementation gives them.
    let expected: [u64; 3] = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
    ];
    let bytes: Vec<u8> = expected
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert_eq!(Pattern::new(1_234_567).take(24), bytes);
}

#[test]
fn pieces_of_any_size_give_the_same_stream() {
    let whole = Pattern::new(7).take(10_000);
    let mut pieces = Pattern::new(7);
    let mut joined = Vec::new();
    let mut size = 0;
    while joined.len() < whole.len() {
        size = (size * 5 + 3) % 41;
        joined.extend(pieces.take(size.min(whole.len() - joined.len())));
    }
    assert_eq!(joined, whole);
}

#[test]
fn a_difference_is_found_where_it_is() {
    let mut bytes = Pattern::new(3).take(9_000);
    assert_eq!(Pattern::new(3).first_difference(&bytes), None);
    bytes[8_191] ^= 1;
    bytes[8_999] ^= 1;
    let mut pattern = Pattern::new(3);
    assert_eq!(pattern.first_difference(&bytes), Some(8_191));
    let mut reference = Pattern::new(3);
    let _ = reference.take(9_000);
    assert_eq!(
        pattern.take(16),
        reference.take(16),
        "the stream has moved on"
    );
}
